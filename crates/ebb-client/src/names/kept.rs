//! Queries and changes of names and attributes, and the answers that may be kept.

use std::sync::Arc;

use ebb_types::{Attr, Credentials, ErrorKind, FileKind, InodeId, Result, check_name_len, err};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{GetAttr, Lookup, Op, ReadDir};

use crate::lease::hold::Lease;
use crate::names::answer::Answer;
use crate::names::known::{Asking, Name, Page, Trust};
use crate::shared::Shared;
use crate::types::{DirEntry, DirPage};

impl Shared {
    /// Attributes of a name: from memory if it is kept, else from the master.
    pub async fn lookup(self: &Arc<Self>, credentials: &Credentials, parent: InodeId, name: &[u8]) -> Result<Attr> {
        // If the directory is known whole, it has no such name; the error has another cause.
        check_name_len(name)?;
        let missing = || err!(NotFound, "there is no {} in the directory {parent}", String::from_utf8_lossy(name));
        match self.kept_name(parent, name) {
            Name::Missing => return Err(missing()),
            Name::Leads(inode) => {
                if let Some(attr) = self.kept_attr(inode) {
                    return Ok(attr);
                }
            }
            Name::Unknown => {}
        }
        let asking = self.known.ask();
        let op = Op::Lookup(Lookup { parent: parent.raw(), name: name.to_vec() });
        let answer = self.ask(credentials, op).await?;
        let leads = answer.attr.map(|attr| attr.inode);
        if answer.is_leased(parent) && !is_dots(name) && (leads.is_some() || answer.rest.missing) {
            self.known.put_name(&asking, parent, name, leads);
        }
        match answer.attr {
            Some(attr) => self.settle_attr(credentials, &asking, attr, &answer.leased).await,
            None if answer.rest.missing => Err(missing()),
            None => Err(err!(Protocol, "an answer came without attributes")),
        }
    }

    /// Attributes: from memory under a lease, else from the master.
    pub async fn get_attr(self: &Arc<Self>, credentials: &Credentials, id: InodeId) -> Result<Attr> {
        if let Some(attr) = self.kept_attr(id) {
            return Ok(attr);
        }
        self.returns.check(id)?;
        self.ask_attr(credentials, Op::GetAttr(GetAttr { inode: id.raw() })).await
    }

    /// A query that is answered with attributes.
    pub async fn ask_attr(self: &Arc<Self>, credentials: &Credentials, op: Op) -> Result<Attr> {
        let asking = self.known.ask();
        let answer = self.ask(credentials, op).await?;
        self.settle_attr(credentials, &asking, answer.attr()?, &answer.leased).await
    }

    /// Entries of a directory. Attributes come along even unasked, for the queries that follow.
    pub async fn read_dir(self: &Arc<Self>, credentials: &Credentials, mut read: ReadDir) -> Result<DirPage> {
        let (directory, cookie, wanted) = (InodeId::new(read.inode), read.cookie, read.plus);
        let keep = self.options.keep_names;
        if keep && !read.plus {
            (read.plus, read.hint) = (true, true);
        }
        let asking = self.known.ask();
        let answer = self.ask(credentials, Op::ReadDir(read)).await?;
        let is_last = answer.rest.end;
        let mut entries = answer.rest.entries.into_iter().map(DirEntry::try_from).collect::<Result<Vec<_>>>()?;
        // Sorted, for one look for each entry.
        let mut leased = answer.leased;
        leased.sort_unstable();
        if leased.binary_search(&directory).is_ok() {
            let after = Some(cookie).filter(|cookie| *cookie != 0);
            self.known.put_listing(&asking, directory, &Page { after, entries: &entries, is_last });
        }
        for entry in &mut entries {
            if let Some(attr) = entry.attr.take() {
                let recorded = attr.size;
                let own = leased.binary_search(&attr.inode).map_or(&[][..], |at| &leased[at..=at]);
                entry.attr = match self.see_attr(&asking, &attr, own) {
                    None if wanted && self.find(attr.inode).is_some() => {
                        match self.ask_again(credentials, attr.inode).await {
                            // The name was there when the directory was listed. An open of the file finds that it is
                            // gone.
                            Err(error) if error.kind() == ErrorKind::Stale => Some(attr),
                            seen => Some(seen?),
                        }
                    }
                    // This client had no lease on a file that it has no trace of. A new session made all answers unsure.
                    seen => seen.or(Some(attr)).filter(|_| wanted),
                };
                // This client has written to it, and the map is behind.
                entry.map = entry.map.take().filter(|_| entry.attr.is_some_and(|seen| seen.size == recorded));
            }
        }
        Ok(DirPage { entries, is_last })
    }

    /// Attributes that need not be asked for.
    pub fn kept_attr(&self, id: InodeId) -> Option<Attr> {
        if let Some(inode) = self.find(id) {
            let core = inode.core.lock();
            if !core.attr_stale
                && self.is_believed(&core, Lease::Read)
                && let Some(attr) = &core.attr
            {
                return Some(core.overlay(*attr));
            }
            if core.hold.lease() == Lease::Write {
                return None;
            }
        }
        self.known.attr(id).filter(|_| self.session.is_trusted())
    }

    /// Sends a query or a change of names and attributes to the master. The answer may be kept.
    pub async fn ask(&self, credentials: &Credentials, op: Op) -> Result<Answer> {
        self.serving().await?;
        self.session.meta_kept(credentials, op, self.options.keep_names).await?.try_into()
    }

    /// What need not be asked of a name.
    pub fn kept_name(&self, parent: InodeId, name: &[u8]) -> Name {
        if self.session.is_trusted() { self.known.name(parent, name) } else { Name::Unknown }
    }

    /// Whether it is known that the inode has no extended attributes and no ACL.
    pub fn has_no_xattrs(&self, id: InodeId) -> bool {
        let is_plain = |kind| matches!(kind, FileKind::File | FileKind::Directory);
        self.kept_attr(id).is_some_and(|attr| !attr.has_xattrs && is_plain(attr.kind))
    }

    /// A change of names or attributes. Kept answers follow it.
    pub async fn change(&self, credentials: &Credentials, op: Op) -> Result<Answer> {
        self.change_with(credentials, op, |_, _| ()).await.map(|changed| changed.answer)
    }

    /// The same. `then` sees the answer before any other event can change the kept state.
    pub async fn change_with<T>(
        &self,
        credentials: &Credentials,
        op: Op,
        then: impl FnOnce(&Asking<'_>, &Answer) -> T,
    ) -> Result<Changed<T>> {
        let names = names_of(&op);
        let inodes = inodes_of(&op);
        let makes_directory = matches!(op, Op::MakeDir(_));
        let sets_size = matches!(&op, Op::SetAttr(set) if set.size.is_some());
        let unsure = Unsure { shared: self, names: &names, inodes: &inodes, done: false };
        let asking = self.known.ask();
        let answer = match self.ask(credentials, op).await {
            Ok(answer) => answer,
            Err(error) => {
                // A refusal for a reason that others see too has changed nothing.
                let refused = matches!(error.kind(), ErrorKind::Exists | ErrorKind::AccessDenied | ErrorKind::NotEmpty);
                let mut unsure = unsure;
                unsure.done = refused && names.iter().all(|name| name.now != Now::Unsure);
                drop(unsure);
                return Err(error);
            }
        };
        let mut unsure = unsure;
        unsure.done = true;
        let done = then(&asking, &answer);
        // Ordering: before the change itself counts as something that has happened to the new directory.
        if let Some(attr) = answer.attr.filter(|attr| makes_directory && answer.is_leased(attr.inode)) {
            self.known.put_empty(&asking, attr.inode);
        }
        let seen = if sets_size {
            // Attributes and size of the file change in one step, whoever made the request.
            inodes.iter().for_each(|inode| self.known.on_unsure_attr(*inode));
            answer.attr
        } else {
            self.note_change(&asking, &answer, &names, &inodes)
        };
        Ok(Changed { answer, seen, then: done })
    }

    /// Returns the answer's attributes as programs see them. `None`: there are none, or they may never have been
    /// right.
    fn note_change(&self, asking: &Asking<'_>, answer: &Answer, names: &[Renamed], inodes: &[InodeId]) -> Option<Attr> {
        for name in names {
            let leads = match name.now {
                Now::Made => answer.attr.map(|attr| attr.inode),
                Now::Gone => None,
                Now::Unsure => {
                    self.known.on_unsure_name(name.parent, &name.name);
                    continue;
                }
            };
            let parent = answer.parents.iter().find(|attr| attr.inode == name.parent && answer.is_leased(attr.inode));
            self.known.on_own_name(asking, name.parent, &name.name, leads, parent.copied());
        }
        let mut seen = answer.attr;
        let about = answer.attr.filter(|attr| !inodes.contains(&attr.inode));
        if let Some(attr) = &answer.attr {
            let id = attr.inode;
            if attr.links == 0 {
                // No name leads to it any more, and its number is never given again: its entry would be of no use.
                self.known.forget_removed(id);
            }
            let mut now = Some(*attr).filter(|_| answer.is_leased(attr.inode));
            if let Some(inode) = self.find(id) {
                let mut core = inode.core.lock();
                let trust = core.trust(asking, attr);
                if !core.note_answer(attr, now.is_some(), trust) {
                    // The grant is from before the change, or from after it.
                    core.attr_stale = true;
                }
                seen = core.show(*attr, trust);
                now = now.filter(|_| trust != Trust::Never && core.hold.lease() != Lease::Write && attr.links > 0);
                self.known.on_own_change(asking, id, now);
            } else {
                seen = seen.filter(|attr| asking.trust(attr) != Trust::Never);
                self.known.on_own_change(asking, id, now.filter(|_| attr.links > 0));
            }
        }
        for inode in inodes.iter().filter(|inode| answer.attr.is_none_or(|attr| attr.inode != **inode)) {
            self.known.on_unsure_attr(*inode);
        }
        let displaced = answer.rest.displaced().filter(|id| about.is_none_or(|attr| attr.inode != *id));
        if let Some(displaced) = displaced {
            self.on_unsure_inode(displaced);
        }
        seen
    }

    fn on_unsure_inode(&self, id: InodeId) {
        self.known.on_unsure_attr(id);
        if let Some(inode) = self.find(id) {
            inode.core.lock().attr_stale = true;
        }
    }

    /// Others wait until this client keeps nothing of these inodes any more.
    pub fn on_forget(self: &Arc<Self>, forgettings: Vec<pb::Forgetting>) {
        let shared = self.clone();
        self.runtime.spawn("forget what others change", async move {
            shared.forget_inodes(forgettings.iter().map(|one| InodeId::new(one.inode)).collect()).await;
            shared.report_forgotten(forgettings.iter().map(|one| one.number).collect()).await;
        });
    }

    /// The client announced that it is going to rest: from now on no other client waits for it.
    pub fn on_forget_all(self: &Arc<Self>, numbers: Vec<u64>) {
        let shared = self.clone();
        self.runtime.spawn("forget everything before sleeping", async move {
            shared.forget_everything().await;
            shared.report_forgotten(numbers).await;
        });
    }

    /// The master process that knew the kept names is gone, or the session is.
    pub async fn forget_everything(self: &Arc<Self>) {
        let mut inodes = self.known.clear();
        inodes.extend(self.inodes().iter().map(|inode| inode.id));
        self.forget_inodes(inodes).await;
    }

    async fn forget_inodes(self: &Arc<Self>, inodes: Vec<InodeId>) {
        self.known.forget(&inodes);
        for inode in inodes.iter().filter_map(|id| self.find(*id)) {
            inode.core.lock().attr_stale = true;
        }
        let listener = self.listener.lock().clone();
        if let Some(listener) = listener {
            self.runtime.compute(move || listener.forget(&inodes)).await;
        }
    }
}

/// A change that was made.
#[derive(Debug)]
pub(crate) struct Changed<T> {
    /// The answer.
    pub answer: Answer,
    /// The attributes in it as programs see them; `None`: there are none, or they may never have been right.
    pub seen: Option<Attr>,
    /// The effect that was applied at once.
    pub then: T,
}

/// A name that a change is about, and what becomes of it.
struct Renamed {
    parent: InodeId,
    name: Vec<u8>,
    now: Now,
}

/// State of a name after a change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Now {
    /// The name leads to the answer's inode.
    Made,
    /// Not there.
    Gone,
    /// The answer does not say.
    Unsure,
}

fn names_of(op: &Op) -> Vec<Renamed> {
    let one = |parent: u64, name: &[u8], now| Renamed { parent: InodeId::new(parent), name: name.to_vec(), now };
    match op {
        Op::Create(op) if op.unnamed => Vec::new(),
        Op::Create(op) => vec![one(op.parent, &op.name, Now::Made)],
        Op::MakeDir(op) => vec![one(op.parent, &op.name, Now::Made)],
        Op::MakeNode(op) => vec![one(op.parent, &op.name, Now::Made)],
        Op::Symlink(op) => vec![one(op.parent, &op.name, Now::Made)],
        Op::Link(op) => vec![one(op.parent, &op.name, Now::Made)],
        Op::Unlink(op) => vec![one(op.parent, &op.name, Now::Gone)],
        Op::RemoveDir(op) => vec![one(op.parent, &op.name, Now::Gone)],
        Op::Rename(op) => {
            // Two names of one inode both stay: the source's state is asked for.
            let source = one(op.source_parent, &op.source_name, Now::Unsure);
            let target = if op.exchange { Now::Unsure } else { Now::Made };
            vec![source, one(op.target_parent, &op.target_name, target)]
        }
        _ => Vec::new(),
    }
}

/// Inodes that a change names.
fn inodes_of(op: &Op) -> Vec<InodeId> {
    match op {
        Op::Link(op) => vec![InodeId::new(op.inode)],
        Op::SetAttr(op) => vec![InodeId::new(op.inode)],
        Op::SetXattr(op) => vec![InodeId::new(op.inode)],
        Op::RemoveXattr(op) => vec![InodeId::new(op.inode)],
        _ => Vec::new(),
    }
}

/// Until its end is known, a change may have been made or not.
///
/// Cancel-safety: dropped with the call. The names and inodes of the change are not believed any more.
struct Unsure<'a> {
    shared: &'a Shared,
    names: &'a [Renamed],
    inodes: &'a [InodeId],
    done: bool,
}

impl Drop for Unsure<'_> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        for name in self.names {
            let before = self.shared.known.name(name.parent, &name.name);
            self.shared.known.on_unsure_name(name.parent, &name.name);
            if let Name::Leads(inode) = before {
                self.shared.on_unsure_inode(inode);
            }
        }
        for inode in self.inodes {
            self.shared.on_unsure_inode(*inode);
        }
    }
}

fn is_dots(name: &[u8]) -> bool {
    name == b"." || name == b".."
}
