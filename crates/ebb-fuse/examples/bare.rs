//! A mount that does nothing: names and sizes in memory, bytes nowhere (what is read is zero). What a request through the
//! kernel and this crate costs by itself, as a reference for mounts that do something.
//!
//! `cargo run --release -p ebb-fuse --example bare MOUNTPOINT`; it ends when it is unmounted.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use bytes::Bytes;
use ebb_fuse::vfs::{
    Allocate, Attr, CopyRange, DirEntry, DirPage, EntryDetail, Handle, IfLocked, Lock, NewFile, NewName, OpenMode,
    Privileges, Rename, Seek, SetAttr, StatFs, UnnamedFile, Vfs, WriteAt, XattrMode,
};
use ebb_fuse::{MountOptions, mount_vfs};
use ebb_runtime::Runtime;
use ebb_types::{Credentials, FileKind, InodeId, Result, err};
use parking_lot::Mutex;

/// Longest read of the kernel.
const ZEROS: usize = 1 << 20;

struct Bare {
    state: Mutex<State>,
    zeros: Bytes,
}

#[derive(Default)]
struct State {
    names: BTreeMap<(InodeId, Vec<u8>), InodeId>,
    attrs: BTreeMap<InodeId, Attr>,
    last: u64,
}

impl State {
    fn attr(&self, inode: InodeId) -> Result<Attr> {
        self.attrs.get(&inode).cloned().ok_or_else(|| err!(NotFound, "no {inode}"))
    }

    fn make(&mut self, parent: InodeId, name: &[u8], kind: FileKind) -> Result<Attr> {
        let key = (parent, name.to_vec());
        if self.names.contains_key(&key) {
            return Err(err!(Exists, "the name is there"));
        }
        self.last += 1;
        let attr = attr(InodeId::new(self.last), kind);
        self.names.insert(key, attr.inode);
        self.attrs.insert(attr.inode, attr);
        Ok(attr)
    }

    fn remove(&mut self, parent: InodeId, name: &[u8]) -> Result<()> {
        let inode = self.names.remove(&(parent, name.to_vec())).ok_or_else(|| err!(NotFound, "no such name"))?;
        self.attrs.remove(&inode);
        Ok(())
    }
}

fn attr(inode: InodeId, kind: FileKind) -> Attr {
    let (mode, links) = if kind == FileKind::Directory { (0o755, 2) } else { (0o644, 1) };
    Attr { mode, links, ..Attr::empty(inode, kind) }
}

fn refused<T>() -> Result<T> {
    Err(err!(Unsupported, "this mount does nothing"))
}

fn file(inode: InodeId) -> Handle {
    Handle(inode.raw())
}

impl Bare {
    fn new() -> Self {
        let root = attr(InodeId::ROOT, FileKind::Directory);
        let state = State { attrs: BTreeMap::from([(root.inode, root)]), last: 1, ..State::default() };
        Self { state: Mutex::new(state), zeros: Bytes::from(vec![0; ZEROS]) }
    }
}

impl Vfs for Bare {
    async fn lookup(&self, _: &Credentials, parent: InodeId, name: &[u8]) -> Result<Attr> {
        let state = self.state.lock();
        let inode = state.names.get(&(parent, name.to_vec())).copied().ok_or_else(|| err!(NotFound, "no such name"))?;
        state.attr(inode)
    }

    async fn get_attr(&self, inode: InodeId) -> Result<Attr> {
        self.state.lock().attr(inode)
    }

    async fn set_attr(&self, _: &Credentials, inode: InodeId, _file: Option<Handle>, set: SetAttr) -> Result<Attr> {
        let mut state = self.state.lock();
        if let (Some(attr), Some(size)) = (state.attrs.get_mut(&inode), set.size) {
            attr.size = size;
        }
        state.attr(inode)
    }

    async fn read_link(&self, _: InodeId) -> Result<Vec<u8>> {
        refused()
    }

    async fn make_node(&self, _: &Credentials, new: NewName<'_>, kind: FileKind, _: u32) -> Result<Attr> {
        self.state.lock().make(new.parent, new.name, kind)
    }

    async fn make_dir(&self, _: &Credentials, new: NewName<'_>) -> Result<Attr> {
        self.state.lock().make(new.parent, new.name, FileKind::Directory)
    }

    async fn symlink(&self, _: &Credentials, _: InodeId, _: &[u8], _: &[u8]) -> Result<Attr> {
        refused()
    }

    async fn link(&self, _: &Credentials, _: InodeId, _: InodeId, _: &[u8]) -> Result<Attr> {
        refused()
    }

    async fn unlink(&self, _: &Credentials, parent: InodeId, name: &[u8]) -> Result<()> {
        self.state.lock().remove(parent, name)
    }

    async fn remove_dir(&self, _: &Credentials, parent: InodeId, name: &[u8]) -> Result<()> {
        self.state.lock().remove(parent, name)
    }

    async fn rename(&self, _: &Credentials, _: Rename<'_>) -> Result<()> {
        refused()
    }

    async fn read_dir(&self, inode: InodeId, after: Option<u64>, limit: u32, detail: EntryDetail) -> Result<DirPage> {
        let state = self.state.lock();
        let of = state.names.range((inode, Vec::new())..).take_while(|((parent, _), _)| *parent == inode);
        let mut rest = of.zip(1..).skip(usize::try_from(after.unwrap_or(0)).unwrap_or(usize::MAX)).peekable();
        let mut page = DirPage::default();
        for (((_, name), child), cookie) in rest.by_ref().take(limit as usize) {
            let attr = state.attr(*child)?;
            let (kind, attr) = (attr.kind, (detail == EntryDetail::Attributes).then_some(attr));
            page.entries.push(DirEntry { name: name.clone(), inode: *child, kind, cookie, attr, map: None });
        }
        page.is_last = rest.peek().is_none();
        Ok(page)
    }

    async fn sync_dir(&self, _: InodeId) -> Result<()> {
        Ok(())
    }

    async fn stat_fs(&self, _: InodeId) -> Result<StatFs> {
        Ok(StatFs {
            capacity_bytes: 1 << 40,
            free_bytes: 1 << 40,
            available_bytes: 1 << 40,
            inodes: 1,
            ..StatFs::default()
        })
    }

    async fn get_xattr(&self, _: InodeId, _: &[u8]) -> Result<Vec<u8>> {
        Err(err!(NoAttribute, "there are none"))
    }

    async fn list_xattr(&self, _: InodeId) -> Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    async fn set_xattr(&self, _: &Credentials, _: InodeId, _: &[u8], _: Bytes, _: XattrMode) -> Result<()> {
        refused()
    }

    async fn remove_xattr(&self, _: &Credentials, _: InodeId, _: &[u8]) -> Result<()> {
        refused()
    }

    async fn open(&self, _: &Credentials, inode: InodeId, mode: OpenMode) -> Result<Handle> {
        let mut state = self.state.lock();
        let attr = state.attrs.get_mut(&inode).ok_or_else(|| err!(NotFound, "no {inode}"))?;
        if mode.cut.is_some() {
            attr.size = 0;
        }
        Ok(file(inode))
    }

    async fn create(&self, _: &Credentials, new: NewFile<'_>, _: Option<Privileges>) -> Result<(Handle, Attr)> {
        let attr = self.state.lock().make(new.name.parent, new.name.name, FileKind::File)?;
        Ok((file(attr.inode), attr))
    }

    async fn create_unnamed(&self, _: &Credentials, _: UnnamedFile<'_>) -> Result<(Handle, Attr)> {
        refused()
    }

    async fn flush(&self, _: Handle) -> Result<()> {
        Ok(())
    }

    async fn close(&self, _: Handle) {}

    async fn read(&self, file: Handle, offset: u64, len: u32) -> Result<Bytes> {
        let size = self.state.lock().attr(InodeId::new(file.0))?.size;
        let len = u64::from(len).min(size.saturating_sub(offset)).min(ZEROS as u64);
        Ok(self.zeros.slice(..usize::try_from(len).unwrap_or(0)))
    }

    async fn write(&self, file: Handle, place: WriteAt, data: Bytes, _: Privileges) -> Result<u64> {
        let mut state = self.state.lock();
        let attr = state.attrs.get_mut(&InodeId::new(file.0)).ok_or_else(|| err!(NotFound, "the file is gone"))?;
        let offset = match place {
            WriteAt::Offset(offset) => offset,
            WriteAt::End => attr.size,
        };
        attr.size = attr.size.max(offset + data.len() as u64);
        Ok(offset)
    }

    async fn fsync(&self, _: Handle) -> Result<()> {
        Ok(())
    }

    async fn allocate(&self, _: Handle, _: Allocate, _: u64, _: u64) -> Result<()> {
        refused()
    }

    async fn seek(&self, _: Handle, _: u64, _: Seek) -> Result<u64> {
        refused()
    }

    async fn copy_range(&self, _: CopyRange) -> Result<u64> {
        refused()
    }

    async fn set_lock(&self, _: InodeId, _: Lock, _: IfLocked) -> Result<()> {
        refused()
    }

    async fn test_lock(&self, _: InodeId, _: Lock) -> Result<Option<Lock>> {
        Ok(None)
    }

    async fn shut_down(&self) -> Result<()> {
        Ok(())
    }
}

fn main() -> ExitCode {
    let Some(mountpoint) = std::env::args().nth(1) else {
        eprintln!("usage: bare MOUNTPOINT");
        return ExitCode::from(2);
    };
    let threads = MountOptions::default().threads;
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    let served = tokio.map_err(|error| err!(Io, "{error}")).and_then(|tokio| {
        tokio.block_on(async {
            let vfs = Arc::new(Bare::new());
            let options = MountOptions::default();
            mount_vfs(&Runtime::real(), vfs, options, Path::new(&mountpoint), drop).await?.wait().await
        })
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
