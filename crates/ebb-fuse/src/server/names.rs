//! Requests about inodes, names, directories and extended attributes.

use std::time::Duration;

use bytes::Bytes;
use ebb_types::{ErrorKind, FileKind, InodeId, Result, err};

use super::{PID_XATTR, Server, caller, empty};
use crate::abi::ROOT;
use crate::abi::reply::{self, Listing, kind_of_bits};
use crate::abi::request::{Header, InodeRequest, NameRequest, XattrRequest};
use crate::credentials;
use crate::vfs::{Attr, DirEntry, EntryDetail, Handle, NewName, Rename, RenameMode, Vfs, XattrMode};

/// Cookie of ".". It is above every cookie of a [`Vfs`], and still positive as a signed number.
const AFTER_DOT: u64 = i64::MAX as u64 - 1;
/// Cookie of "..".
const AFTER_DOT_DOT: u64 = i64::MAX as u64;

/// Maximum number of entries that are fetched for one request of any size.
const ENTRIES_MAX: u32 = 4096;

impl<V: Vfs> Server<V> {
    pub(super) async fn about_inode(&self, header: &Header, request: InodeRequest) -> Result<Bytes> {
        let inode = header.inode;
        Ok(match request {
            InodeRequest::Lookup { name } => {
                // The kernel has checked the search permission of the directory, groups and ACL included.
                match self.vfs.lookup(&credentials::of_header(header), inode, &name).await {
                    Ok(attr) => self.entry(inode, &name, &attr),
                    Err(error) if error.kind() == ErrorKind::NotFound => match self.name_validity(inode, &name, None) {
                        Duration::ZERO => return Err(error),
                        validity => reply::missing(validity),
                    },
                    Err(error) => return Err(error),
                }
            }
            InodeRequest::GetAttr => {
                let attr = self.current_attr(inode).await?;
                reply::attr(&attr, self.attr_validity(&attr))
            }
            InodeRequest::Statx => {
                let attr = self.current_attr(inode).await?;
                reply::statx(&attr, self.attr_validity(&attr))
            }
            InodeRequest::SetAttr { set, file } => {
                let (resizes, caller) = (set.size.is_some(), caller(header));
                let setting = self.vfs.set_attr(&caller, inode, file.map(Handle), set);
                let attr = if resizes { self.caches.change(inode, setting).await? } else { setting.await? };
                self.caches.overwrite_size(inode);
                reply::attr(&attr, self.attr_validity(&attr))
            }
            InodeRequest::ReadLink => self.vfs.read_link(inode).await?.into(),
            InodeRequest::StatFs => reply::stat_fs(&self.vfs.stat_fs(inode).await?),
            InodeRequest::OpenDir => reply::open(0, 0),
            InodeRequest::ReleaseDir => Bytes::new(),
            InodeRequest::ReadDir { offset, size, detail } => self.list(inode, offset, size, detail).await?,
            InodeRequest::FsyncDir => empty(self.vfs.sync_dir(inode).await?),
        })
    }

    /// Attributes, for a program that may read the file's data right after them.
    async fn current_attr(&self, inode: InodeId) -> Result<Attr> {
        self.caches.unguarded(inode).await;
        let attr = self.vfs.get_attr(inode).await?;
        self.caches.adapt(&attr).await;
        Ok(attr)
    }

    /// Fills a listing from `offset` on. One page of the file system is enough. It has at least as
    /// many entries as fit, or reaches the end of the directory.
    async fn list(&self, inode: InodeId, offset: u64, size: u32, detail: EntryDetail) -> Result<Bytes> {
        let mut listing = Listing::new(size, (detail == EntryDetail::Attributes).then_some(self.least));
        let dot = |name: &[u8], cookie| DirEntry {
            name: name.to_vec(),
            inode,
            kind: FileKind::Directory,
            cookie,
            attr: None,
            map: None,
        };
        let mut fits = true;
        if offset == 0 {
            fits = listing.add(&dot(b".", AFTER_DOT));
        }
        if fits && (offset == 0 || offset == AFTER_DOT) {
            fits = listing.add(&dot(b"..", AFTER_DOT_DOT));
        }
        if fits {
            let after = Some(offset).filter(|offset| *offset != 0 && *offset < AFTER_DOT);
            let page = self.vfs.read_dir(inode, after, listing.room().min(ENTRIES_MAX), detail).await?;
            for entry in &page.entries {
                if entry.cookie == 0 || entry.cookie >= AFTER_DOT {
                    return Err(err!(Internal, "directory {inode} lists an entry with the cookie {}", entry.cookie));
                }
                fits = listing.add(entry);
                if !fits {
                    break;
                }
            }
        }
        if !fits && listing.is_empty() {
            return Err(err!(Invalid, "{size} bytes do not hold one entry of directory {inode}"));
        }
        Ok(listing.finish())
    }

    pub(super) async fn change_names(&self, header: &Header, request: NameRequest) -> Result<Bytes> {
        let (caller, parent) = (caller(header), header.inode);
        let vfs = &self.vfs;
        Ok(match request {
            NameRequest::Symlink { name, target } => {
                self.entry(parent, &name, &vfs.symlink(&caller, parent, &name, &target).await?)
            }
            NameRequest::MakeNode { name, mode, umask, rdev } => {
                let kind = kind_of_bits(mode).ok_or_else(|| err!(Invalid, "mode {mode:o} is of no kind of file"))?;
                let new = NewName { parent, name: &name, mode: mode & 0o7777, umask };
                self.entry(parent, &name, &vfs.make_node(&caller, new, kind, rdev).await?)
            }
            NameRequest::MakeDir { name, mode, umask } => {
                let new = NewName { parent, name: &name, mode: mode & 0o7777, umask };
                self.entry(parent, &name, &vfs.make_dir(&caller, new).await?)
            }
            NameRequest::Unlink { name } => empty(vfs.unlink(&caller, parent, &name).await?),
            NameRequest::RemoveDir { name } => empty(vfs.remove_dir(&caller, parent, &name).await?),
            NameRequest::Rename { target_parent, flags, source, target } => {
                let rename = Rename {
                    source_parent: parent,
                    source_name: &source,
                    target_parent,
                    target_name: &target,
                    mode: rename_mode(flags)?,
                };
                let is_exchange = rename.mode == RenameMode::Exchange;
                vfs.rename(&caller, rename).await?;
                self.on_renamed(&[(target_parent, &*target), (parent, &*source)][..1 + usize::from(is_exchange)]);
                Bytes::new()
            }
            NameRequest::Link { inode, name } => {
                let attr = vfs.link(&caller, inode, parent, &name).await?;
                self.caches.overwrite_size(inode);
                self.entry(parent, &name, &attr)
            }
        })
    }

    /// Makes the kernel forget names after a rename, if it may not cache all the new names.
    ///
    /// After the reply, the kernel moves its entry of the old name to the new name. The entry keeps
    /// the validity of the old name. So if a new name may not be cached, entries from before the
    /// reply must become invalid. If all may be cached, a later order to forget one does the same.
    fn on_renamed(&self, names: &[(InodeId, &[u8])]) {
        if self.caches.keeps_names() && !names.iter().all(|(parent, name)| self.vfs.keeps_name(*parent, name)) {
            self.caches.forget_names();
        }
    }

    pub(super) async fn xattr(&self, header: &Header, request: XattrRequest) -> Result<Bytes> {
        let (inode, vfs) = (header.inode, &self.vfs);
        Ok(match request {
            XattrRequest::SetXattr { name, value, flags } => {
                empty(vfs.set_xattr(&caller(header), inode, &name, value, xattr_mode(flags)?).await?)
            }
            XattrRequest::GetXattr { name, size } => {
                let value = if inode.raw() == ROOT && *name == *PID_XATTR.as_bytes() {
                    std::process::id().to_string().into_bytes()
                } else {
                    vfs.get_xattr(inode, &name).await?
                };
                sized(value, size)?
            }
            XattrRequest::ListXattr { size } => {
                let names = vfs.list_xattr(inode).await?;
                let joined = names.into_iter().flat_map(|name| name.into_iter().chain([0])).collect();
                sized(joined, size)?
            }
            XattrRequest::RemoveXattr { name } => empty(vfs.remove_xattr(&caller(header), inode, &name).await?),
        })
    }
}

/// Returns a value if it fits in `size`. With size 0, returns its length (getxattr(2)).
fn sized(value: Vec<u8>, size: u32) -> Result<Bytes> {
    if size == 0 {
        return Ok(reply::size(value.len() as u32));
    }
    if value.len() > size as usize {
        return Err(err!(Range, "the value has {} bytes, the caller offers {size}", value.len()));
    }
    Ok(value.into())
}

fn rename_mode(flags: u32) -> Result<RenameMode> {
    match flags {
        0 => Ok(RenameMode::Replace),
        libc::RENAME_NOREPLACE => Ok(RenameMode::NoReplace),
        libc::RENAME_EXCHANGE => Ok(RenameMode::Exchange),
        // RENAME_WHITEOUT is for the upper layer of an overlay file system. A mount of Ebb cannot
        // be one.
        _ => Err(err!(Invalid, "rename flags {flags:#x} are not supported")),
    }
}

fn xattr_mode(flags: u32) -> Result<XattrMode> {
    match flags as i32 {
        0 => Ok(XattrMode::Any),
        libc::XATTR_CREATE => Ok(XattrMode::Create),
        libc::XATTR_REPLACE => Ok(XattrMode::Replace),
        _ => Err(err!(Invalid, "setxattr flags {flags:#x} are not supported")),
    }
}
