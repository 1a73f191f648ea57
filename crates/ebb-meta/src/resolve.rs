//! Walking a path: `path_resolution(7)`.

use std::collections::VecDeque;

use ebb_types::{Credentials, InodeId, Result, bail, check_name_len};

use crate::dir;
use crate::inode::Body;
use crate::machine::Machine;
use crate::permission::{self, EXECUTE};

/// Longest path in bytes.
const PATH_LEN_MAX: usize = 4095;
/// Most symbolic links that one walk follows.
const LINKS_MAX: u32 = 40;

/// Where a path leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Resolved {
    pub(crate) inode: InodeId,
    /// The directory of the last name.
    pub(crate) parent: InodeId,
}

/// What a walk does with a symbolic link at the end of the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LastLink {
    /// It goes on to the target, as `stat(2)`.
    Follow,
    /// It ends at the link, as `lstat(2)`. A slash after the link makes it follow all the same.
    Stop,
}

/// A walk in progress: its place, and the names that are left.
struct Walk {
    at: Resolved,
    todo: VecDeque<Vec<u8>>,
    links: u32,
    /// The path ended with a slash. The last name must lead to a directory, and a link there is followed.
    wants_directory: bool,
}

impl Machine {
    /// Walks an absolute path with the caller's search permission. Symbolic links on the way are followed. `last`
    /// decides about one at the end.
    pub(crate) fn resolve(&self, credentials: &Credentials, path: &[u8], last: LastLink) -> Result<Resolved> {
        if path.len() > PATH_LEN_MAX {
            bail!(NameTooLong, "a path of {} bytes is longer than {PATH_LEN_MAX}", path.len());
        }
        if !path.starts_with(b"/") {
            bail!(Invalid, "{} is not an absolute path", dir::show(path));
        }
        let root = Resolved { inode: InodeId::ROOT, parent: InodeId::ROOT };
        let mut walk = Walk {
            at: root,
            todo: names(path).collect(),
            links: 0,
            wants_directory: path.ends_with(b"/") || path.ends_with(b"/."),
        };
        while let Some(name) = walk.todo.pop_front() {
            self.step(credentials, &mut walk, &name, last).map_err(|error| error.context(dir::show(path)))?;
        }
        if walk.wants_directory {
            self.directory_at(walk.at.inode)?;
        }
        Ok(walk.at)
    }

    fn step(&self, credentials: &Credentials, walk: &mut Walk, name: &[u8], last: LastLink) -> Result<()> {
        let here = walk.at.inode;
        permission::check(here, &*self.directory_at(here)?, credentials, EXECUTE)?;
        match name {
            b"." => return Ok(()),
            b".." => {
                let above = self.parent_at(here)?;
                walk.at = Resolved { inode: above, parent: self.parent_at(above)? };
                return Ok(());
            }
            _ => {}
        }
        check_name_len(name)?;
        let Some(inode) = self.entry_at(here, name) else {
            bail!(NotFound, "there is no {} in the directory {here}", dir::show(name));
        };
        let is_last = walk.todo.is_empty();
        match &self.inode_at(inode)?.body {
            Body::Symlink(target) if !is_last || last == LastLink::Follow || walk.wants_directory => {
                walk.links += 1;
                if walk.links > LINKS_MAX {
                    bail!(TooManyLinks, "more than {LINKS_MAX} symbolic links on the way");
                }
                if target.starts_with(b"/") {
                    walk.at = Resolved { inode: InodeId::ROOT, parent: InodeId::ROOT };
                }
                if is_last && target.ends_with(b"/") {
                    walk.wants_directory = true;
                }
                for name in names(target).collect::<Vec<_>>().into_iter().rev() {
                    walk.todo.push_front(name);
                }
            }
            _ => walk.at = Resolved { inode, parent: here },
        }
        Ok(())
    }
}

fn names(path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).map(<[u8]>::to_vec)
}
