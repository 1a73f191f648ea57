//! A disk as one life of its process sees it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ebb_types::{Result, bail};

use super::file::VirtualFile;
use super::inode::Inode;
use super::medium::Access;
use super::{Need, State, VirtualDisk};
use crate::backend::Work;
use crate::disk::{DirLock, DiskBackend, File, FileSystem, FileSystemBackend, OpenMode, Space};

/// The file in a directory whose lock stands for the directory, as in the real world.
const LOCK_NAME: &str = ".lock";

/// The disk as one life of its process sees it.
pub(in crate::virt) struct Door {
    pub(super) disk: Arc<VirtualDisk>,
    pub(super) life: u64,
}

impl Door {
    /// Work on names: a little time, then the effect.
    fn on_names<T: Send + 'static>(
        &self,
        kind: &'static str,
        path: &Path,
        work: impl FnOnce(&VirtualDisk, &mut State) -> Result<T> + Send + 'static,
    ) -> Work<'_, Result<T>> {
        let need = Need::Memory(self.disk.options().name_latency);
        let path = path.to_owned();
        Box::pin(self.disk.submit(kind, self.life, need, None, move |disk, state, _| {
            fail_as_planned(disk, state, kind, &path)?;
            work(disk, state)
        }))
    }
}

fn fail_as_planned(disk: &VirtualDisk, state: &mut State, kind: &str, path: &Path) -> Result<()> {
    state.planned_fault(kind, path).map_or(Ok(()), |error| {
        disk.fault("planned_fault", format!("{kind} {}", path.display()));
        Err(error)
    })
}

/// Virtual paths are absolute: a process has no working directory here.
fn absolute(path: &Path) -> PathBuf {
    Path::new("/").join(path).components().filter(|part| !matches!(part, std::path::Component::CurDir)).collect()
}

impl DiskBackend for Door {
    fn open<'a>(&'a self, path: &'a Path, mode: OpenMode) -> Work<'a, Result<File>> {
        let path = absolute(path);
        let life = self.life;
        let handle = self.disk.clone();
        self.on_names("open", &path.clone(), move |_, state| {
            let file = match (state.names.get(&path), mode) {
                (Some(_), OpenMode::CreateNew) => bail!(Exists, "{} exists", path.display()),
                (Some(_), _) | (None, OpenMode::ReadOnly | OpenMode::Existing) => state.names.file(&path)?,
                (None, OpenMode::Create | OpenMode::CreateNew) => {
                    state.names.directory_of(&path)?;
                    let number = state.number();
                    state.inodes.insert(number, Inode::default());
                    state.names.add(number, &path, number);
                    number
                }
            };
            state.inode(file).open_count += 1;
            let is_read_only = mode == OpenMode::ReadOnly;
            let opened = VirtualFile { disk: handle, life, file, path: path.as_path().into(), is_read_only };
            Ok(File::new(opened, &path))
        })
    }

    fn create_dir_all<'a>(&'a self, path: &'a Path) -> Work<'a, Result<()>> {
        let path = absolute(path);
        self.on_names("create_dir", &path.clone(), move |_, state| state.names.create_dir_all(&path))
    }

    fn read_dir<'a>(&'a self, path: &'a Path) -> Work<'a, Result<Vec<String>>> {
        let path = absolute(path);
        self.on_names("read_dir", &path.clone(), move |_, state| state.names.list(&path))
    }

    fn rename<'a>(&'a self, source: &'a Path, target: &'a Path) -> Work<'a, Result<()>> {
        let (source, target) = (absolute(source), absolute(target));
        self.on_names("rename", &target.clone(), move |_, state| {
            let number = state.number();
            state.names.rename(number, &source, &target)?;
            state.collect();
            Ok(())
        })
    }

    fn remove_file<'a>(&'a self, path: &'a Path) -> Work<'a, Result<()>> {
        let path = absolute(path);
        self.on_names("remove", &path.clone(), move |_, state| {
            let number = state.number();
            state.names.remove(number, &path)?;
            state.collect();
            Ok(())
        })
    }

    fn exists<'a>(&'a self, path: &'a Path) -> Work<'a, Result<bool>> {
        let path = absolute(path);
        self.on_names("exists", &path.clone(), move |_, state| Ok(state.names.get(&path).is_some()))
    }

    fn sync_dir<'a>(&'a self, path: &'a Path) -> Work<'a, Result<()>> {
        let path = absolute(path);
        // A change during the sync is not promised to be covered, so it is not.
        let (upto, latency) = {
            let mut state = self.disk.state.lock();
            (state.number(), state.medium.options.sync_latency)
        };
        Box::pin(self.disk.submit(
            "sync_dir",
            self.life,
            Need::Medium(latency, Access::sync(0)),
            None,
            move |disk, state, _| {
                state.names.check_directory(&path)?;
                fail_as_planned(disk, state, "sync_dir", &path)?;
                if state.is_drawn(state.faults.sync_error) {
                    disk.fault("sync_error", path.display().to_string());
                    bail!(Io, "cannot sync {}: input/output error", path.display());
                }
                state.names.sync(upto, &path);
                state.collect();
                Ok(())
            },
        ))
    }

    fn space<'a>(&'a self, _path: &'a Path) -> Work<'a, Result<Space>> {
        self.on_names("space", Path::new("/"), |disk, state| {
            let capacity_bytes = state.medium.options.capacity_bytes;
            let mixed = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            // Each process has a disk of its own.
            let device = disk.name.bytes().fold(0xcbf2_9ce4_8422_2325, mixed).max(1);
            Ok(Space { capacity_bytes, free_bytes: capacity_bytes.saturating_sub(state.used_bytes()), device })
        })
    }

    fn lock_dir<'a>(&'a self, path: &'a Path) -> Work<'a, Result<DirLock>> {
        let path = absolute(path);
        let handle = self.disk.clone();
        let life = self.life;
        self.on_names("lock_dir", &path.clone(), move |disk, state| {
            state.names.check_directory(&path)?;
            if !state.locks.insert(path.clone()) {
                bail!(
                    Busy,
                    "{} is in use by process {}: stop it first, or choose another directory",
                    path.display(),
                    disk.name
                );
            }
            let name = path.join(LOCK_NAME);
            if state.names.get(&name).is_none() {
                let number = state.number();
                state.inodes.insert(number, Inode::default());
                state.names.add(number, &name, number);
            }
            Ok(DirLock::new(LockGuard { disk: handle, life, path }))
        })
    }

    fn file_system<'a>(&'a self, path: &'a Path) -> Work<'a, Result<FileSystem>> {
        let path = absolute(path);
        let (disk, life) = (self.disk.clone(), self.life);
        self.on_names("file_system", &path.clone(), move |_, state| {
            state.names.check_directory(&path)?;
            Ok(FileSystem::new(VirtualFileSystem { disk, life, path }))
        })
    }
}

/// All files and names of a disk.
struct VirtualFileSystem {
    disk: Arc<VirtualDisk>,
    life: u64,
    path: PathBuf,
}

impl FileSystemBackend for VirtualFileSystem {
    fn sync_all(&self) -> Work<'_, Result<()>> {
        // A change during the sync is not promised to be covered, so it is not.
        let (upto, need) = {
            let mut state = self.disk.state.lock();
            let bytes = state.inodes.values().map(Inode::dirty_bytes).sum();
            (state.number(), Need::Medium(state.medium.options.sync_latency, Access::sync(bytes)))
        };
        let path = self.path.clone();
        Box::pin(self.disk.submit("sync_all", self.life, need, None, move |disk, state, _| {
            let planned = state.planned_fault("sync", &path);
            let State { inodes, dice, names, faults, .. } = &mut *state;
            if planned.is_some() || (faults.sync_error > 0.0 && dice.chance(faults.sync_error)) {
                let lost: u64 = inodes.values_mut().map(|inode| inode.fail_sync(upto, dice)).sum();
                disk.fault("sync_error", format!("everything: {lost} writes"));
                if let Some(error) = planned {
                    return Err(error);
                }
                bail!(Io, "cannot sync the file system of {}: input/output error", path.display());
            }
            inodes.values_mut().for_each(|inode| inode.sync(upto));
            names.sync_all(upto);
            state.collect();
            Ok(())
        }))
    }
}

struct LockGuard {
    disk: Arc<VirtualDisk>,
    life: u64,
    path: PathBuf,
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        let mut state = self.disk.state.lock();
        if state.life == self.life {
            state.locks.remove(&self.path);
        }
    }
}
