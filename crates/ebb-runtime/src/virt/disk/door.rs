//! A disk as one life of its process sees it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ebb_types::{Result, bail};

use super::file::VirtualFile;
use super::inode::Inode;
use super::medium::Access;
use super::mount::Mount;
use super::spindles::Spindles;
use super::{Need, State, VirtualDisk};
use crate::backend::Work;
use crate::disk::{Compression, DirLock, DiskBackend, File, FileSystem, FileSystemBackend, OpenMode, Space};

/// The file in a directory whose lock stands for the directory, as in the real world.
const LOCK_NAME: &str = ".lock";

/// The disk as one life of its process sees it.
pub(in crate::virt) struct Door {
    pub(super) disk: Arc<VirtualDisk>,
    pub(super) life: u64,
}

impl Door {
    fn mount(&self, path: &Path) -> Mount {
        self.disk.state.lock().mount(self.life, path)
    }

    /// Work on names: a little time, then the effect.
    fn on_names<T: Send + 'static>(
        &self,
        kind: &'static str,
        path: &Path,
        work: impl FnOnce(&VirtualDisk, &mut State) -> Result<T> + Send + 'static,
    ) -> Work<'_, Result<T>> {
        let mount = self.mount(path);
        let need = Need::Memory(self.disk.options(mount.spindle).name_latency);
        let path = path.to_owned();
        Box::pin(self.disk.submit(kind, mount, need, None, move |disk, state, _| {
            state.check_mount(mount, kind, &path)?;
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
        let mount = self.mount(&path);
        let handle = self.disk.clone();
        self.on_names("open", &path.clone(), move |_, state| {
            let file = match (state.names.get(&path), mode) {
                (Some(_), OpenMode::CreateNew) => bail!(Exists, "{} exists", path.display()),
                (Some(_), _) | (None, OpenMode::ReadOnly | OpenMode::Existing) => state.names.file(&path)?,
                (None, OpenMode::Create | OpenMode::CreateNew) => {
                    state.names.directory_of(&path)?;
                    let number = state.number();
                    state.inodes.insert(number, Inode::on(mount.spindle));
                    state.names.add(number, &path, number);
                    number
                }
            };
            state.inode(file).open_count += 1;
            let is_read_only = mode == OpenMode::ReadOnly;
            let opened = VirtualFile { disk: handle, mount, file, path: path.as_path().into(), is_read_only };
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
            if state.spindles.index_of(&source) != state.spindles.index_of(&target) {
                let (source, target) = (source.display(), target.display());
                bail!(CrossDevice, "{source} and {target} are on different spindles: no rename moves bytes");
            }
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
        let mount = self.mount(&path);
        // A change during the sync is not promised to be covered, so it is not.
        let (upto, latency) = {
            let mut state = self.disk.state.lock();
            (state.number(), state.spindles[mount.spindle].options.sync_latency)
        };
        Box::pin(self.disk.submit(
            "sync_dir",
            mount,
            Need::Medium(latency, Access::sync(0)),
            None,
            move |disk, state, _| {
                state.check_mount(mount, "sync", &path)?;
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

    fn space<'a>(&'a self, path: &'a Path) -> Work<'a, Result<Space>> {
        let path = absolute(path);
        let spindle = self.mount(&path).spindle;
        self.on_names("space", &path, move |disk, state| {
            let capacity_bytes = state.spindles[spindle].options.capacity_bytes;
            let free_bytes = capacity_bytes.saturating_sub(state.used_bytes(spindle));
            Ok(Space { capacity_bytes, free_bytes, device: Spindles::device(&disk.name, spindle) })
        })
    }

    fn lock_dir<'a>(&'a self, path: &'a Path) -> Work<'a, Result<DirLock>> {
        let path = absolute(path);
        let handle = self.disk.clone();
        let mount = self.mount(&path);
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
                state.inodes.insert(number, Inode::on(mount.spindle));
                state.names.add(number, &name, number);
            }
            Ok(DirLock::new(LockGuard { disk: handle, mount, path }))
        })
    }

    fn file_system<'a>(&'a self, path: &'a Path) -> Work<'a, Result<FileSystem>> {
        let path = absolute(path);
        let (disk, mount) = (self.disk.clone(), self.mount(&path));
        self.on_names("file_system", &path.clone(), move |_, state| {
            state.names.check_directory(&path)?;
            Ok(FileSystem::new(VirtualFileSystem { disk, mount, path }))
        })
    }
}

/// All files and names of a spindle.
struct VirtualFileSystem {
    disk: Arc<VirtualDisk>,
    mount: Mount,
    path: PathBuf,
}

impl FileSystemBackend for VirtualFileSystem {
    fn sync_all(&self) -> Work<'_, Result<()>> {
        let mount = self.mount;
        let is_there = move |inode: &&mut Inode| inode.spindle == mount.spindle;
        // A change during the sync is not promised to be covered, so it is not.
        let (upto, need) = {
            let mut state = self.disk.state.lock();
            let bytes = state.inodes.values_mut().filter(is_there).map(|inode| inode.dirty_bytes()).sum();
            let latency = state.spindles[mount.spindle].options.sync_latency;
            (state.number(), Need::Medium(latency, Access::sync(bytes)))
        };
        let path = self.path.clone();
        Box::pin(self.disk.submit("sync_all", mount, need, None, move |disk, state, _| {
            state.check_mount(mount, "sync the file system of", &path)?;
            let planned = state.planned_fault("sync", &path);
            let State { inodes, dice, names, faults, spindles, .. } = &mut *state;
            let inodes = inodes.values_mut().filter(is_there);
            if planned.is_some() || (faults.sync_error > 0.0 && dice.chance(faults.sync_error)) {
                let lost: u64 = inodes.map(|inode| inode.fail_sync(upto, dice)).sum();
                disk.fault("sync_error", format!("everything: {lost} writes"));
                if let Some(error) = planned {
                    return Err(error);
                }
                bail!(Io, "cannot sync the file system of {}: input/output error", path.display());
            }
            inodes.for_each(|inode| inode.sync(upto));
            names.sync_all(upto, |directory| spindles.index_of(directory) == mount.spindle);
            state.collect();
            Ok(())
        }))
    }

    fn compression(&self) -> Work<'_, Result<Option<Compression>>> {
        let set = self.disk.options(self.mount.spindle).compression;
        Box::pin(async move { Ok(set) })
    }
}

struct LockGuard {
    disk: Arc<VirtualDisk>,
    mount: Mount,
    path: PathBuf,
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        let mut state = self.disk.state.lock();
        if state.life == self.mount.life && state.is_mounted(self.mount) {
            state.locks.remove(&self.path);
        }
    }
}
