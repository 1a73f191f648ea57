//! Names and attributes that this client keeps, until the master asks it to forget them.
//!
//! Plain state behind one lock that is never held across an await. What keeps it right:
//!
//! - Only what an answer calls `leased` is put in.
//! - Every change of an inode, by others (told by a poll) or by this client, is an *event*. An answer may be kept only
//!   if nothing happened to its inode since the question was sent: the two may have passed each other on the way.
//! - Nothing is believed after the session's time (the callers check), and nothing outlives the session or the master
//!   process that knew of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ebb_types::{Attr, FileKind, InodeId};
use parking_lot::Mutex;

use crate::types::DirEntry;

/// Names, and inodes, kept at most; then all are dropped and asked for again as they are needed.
const KEPT_MAX: usize = 400_000;
/// Events remembered while questions are under way; with more, answers under way are not kept.
const EVENTS_MAX: usize = 100_000;

/// Most directories above a name that its path has.
const DEPTH_MAX: usize = 100;

/// Knowledge of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Name {
    /// Nothing: ask.
    Unknown,
    /// It is not there.
    Missing,
    /// It leads here.
    Leads(InodeId),
}

/// A page of a directory's listing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page<'a> {
    /// The cookie that it begins after; `None`: it begins at the start.
    pub after: Option<u64>,
    pub entries: &'a [DirEntry],
    /// The directory ends with it.
    pub is_last: bool,
}

/// Names and attributes.
#[derive(Debug, Default)]
pub(crate) struct Known(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    directories: BTreeMap<InodeId, Directory>,
    attrs: BTreeMap<InodeId, Attr>,
    /// Names in `directories`.
    names: usize,
    /// Number of the last event.
    last_event: u64,
    /// Answers to questions sent at or before this event are void, whatever they are about.
    void_upto: u64,
    events: VecDeque<Event>,
    /// Questions under way, by the event that they came after.
    asking: BTreeMap<u64, u32>,
}

#[derive(Debug, Default)]
struct Directory {
    names: BTreeMap<Box<[u8]>, Option<InodeId>>,
    /// Names that are not in `names` do not exist.
    complete: bool,
    /// A listing that began after this event has come as far as this cookie.
    listing: Option<(u64, Option<u64>)>,
}

/// Something happened to an inode.
#[derive(Debug)]
struct Event {
    number: u64,
    inode: InodeId,
    subject: Subject,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Subject {
    /// To any of its names and attributes.
    Any,
    /// Only to this name of a directory, and to the directory's attributes.
    Name(u64),
    /// A lease of this client began or ended, its size was set, or the outcome of a change is unknown.
    Unsure,
}

/// How far an answer with a file's attributes may be trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trust {
    /// Nothing happened to the inode since the question was sent: they may be kept.
    Kept,
    /// They were right at some moment since then.
    Once,
    /// They may never have been right: the master may have left the size to a write lease of this client, which has ended since.
    Never,
}

/// FNV-1a: two names that meet cost a question, no more.
fn hash(name: &[u8]) -> u64 {
    name.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// A question under way.
#[derive(Debug)]
pub(crate) struct Asking<'a> {
    known: &'a Known,
    after: u64,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut state = self.known.0.lock();
        if let Some(count) = state.asking.get_mut(&self.after) {
            *count -= 1;
            if *count == 0 {
                state.asking.remove(&self.after);
            }
        }
        state.drop_old_events();
    }
}

impl Asking<'_> {
    /// Whether nothing has happened to the inode since the question was sent.
    pub fn is_undisturbed(&self, inode: InodeId) -> bool {
        self.known.0.lock().is_undisturbed(self.after, inode)
    }

    /// How far an answer with attributes may be trusted.
    pub fn trust(&self, attr: &Attr) -> Trust {
        let state = self.known.0.lock();
        let inode = attr.inode;
        if state.is_undisturbed(self.after, inode) {
            return Trust::Kept;
        }
        // Sizes and times of other holders are the master's.
        let is_file = attr.kind == FileKind::File;
        if is_file && state.is_unsure(self.after, inode) { Trust::Never } else { Trust::Once }
    }
}

impl State {
    fn is_undisturbed(&self, after: u64, inode: InodeId) -> bool {
        self.void_upto <= after && self.since(after).all(|event| event.inode != inode)
    }

    fn is_unsure(&self, after: u64, inode: InodeId) -> bool {
        let is_about = |event: &Event| event.inode == inode && event.subject == Subject::Unsure;
        self.void_upto > after || self.since(after).any(is_about)
    }

    fn is_name_undisturbed(&self, after: u64, directory: InodeId, name: u64) -> bool {
        let is_other = |subject: Subject| matches!(subject, Subject::Name(other) if other != name);
        let touches = |event: &Event| event.inode == directory && !is_other(event.subject);
        self.void_upto <= after && !self.since(after).any(touches)
    }

    fn since(&self, after: u64) -> impl Iterator<Item = &Event> {
        self.events.iter().rev().take_while(move |event| event.number > after)
    }

    fn drop_old_events(&mut self) {
        let oldest = self.asking.keys().next().copied().unwrap_or(u64::MAX);
        while self.events.front().is_some_and(|event| event.number <= oldest) {
            self.events.pop_front();
        }
    }

    fn forget_name(&mut self, directory: InodeId, name: &[u8]) {
        if let Some(directory) = self.directories.get_mut(&directory) {
            directory.complete = false;
            self.names -= usize::from(directory.names.remove(name).is_some());
        }
    }

    fn note_event(&mut self, inode: InodeId, subject: Subject) {
        self.last_event += 1;
        self.events.push_back(Event { number: self.last_event, inode, subject });
        self.drop_old_events();
        if self.events.len() > EVENTS_MAX {
            self.events.clear();
            self.void_upto = self.last_event;
        }
    }

    /// Something happened to attributes for which a query, sent after event `after`, brought `now`. They are kept if
    /// nothing else happened.
    fn replace_attr(&mut self, after: u64, inode: InodeId, subject: Subject, now: Option<Attr>) {
        let now = now.filter(|_| self.is_undisturbed(after, inode));
        self.note_event(inode, subject);
        self.keep_attr(inode, now);
    }

    fn keep_attr(&mut self, inode: InodeId, now: Option<Attr>) {
        match now {
            Some(now) => {
                self.make_room();
                self.attrs.insert(inode, now);
            }
            None => drop(self.attrs.remove(&inode)),
        }
    }

    fn drop_directory(&mut self, inode: InodeId) {
        if let Some(directory) = self.directories.remove(&inode) {
            self.names -= directory.names.len();
        }
    }

    fn make_room(&mut self) {
        if self.names + self.directories.len() + self.attrs.len() > KEPT_MAX {
            self.directories.clear();
            self.attrs.clear();
            self.names = 0;
        }
    }

    fn put_name(&mut self, directory: InodeId, name: &[u8], leads: Option<InodeId>) {
        self.make_room();
        let directory = self.directories.entry(directory).or_default();
        if leads.is_none() && directory.complete {
            self.names -= usize::from(directory.names.remove(name).is_some());
        } else {
            self.names += usize::from(directory.names.insert(name.into(), leads).is_none());
        }
    }
}

impl Known {
    /// A question is about to be sent.
    pub fn ask(&self) -> Asking<'_> {
        let mut state = self.0.lock();
        let after = state.last_event;
        *state.asking.entry(after).or_default() += 1;
        Asking { known: self, after }
    }

    /// Tells questions under way from those that are sent from now on.
    pub fn mark(&self) -> u64 {
        let mut state = self.0.lock();
        state.last_event += 1;
        state.last_event
    }

    /// Whether every question that was under way then has been answered, with what its answer brought, or given up.
    pub fn are_earlier_over(&self, mark: u64) -> bool {
        self.0.lock().asking.keys().next().is_none_or(|after| *after >= mark)
    }

    /// Returns the knowledge of a name.
    pub fn name(&self, directory: InodeId, name: &[u8]) -> Name {
        let state = self.0.lock();
        let Some(directory) = state.directories.get(&directory) else { return Name::Unknown };
        match directory.names.get(name) {
            Some(Some(inode)) => Name::Leads(*inode),
            Some(None) => Name::Missing,
            None if directory.complete => Name::Missing,
            None => Name::Unknown,
        }
    }

    /// Of how many inodes attributes are kept.
    #[cfg(test)]
    pub fn attrs_kept(&self) -> usize {
        self.0.lock().attrs.len()
    }

    /// Attributes, if they are known.
    pub fn attr(&self, inode: InodeId) -> Option<Attr> {
        self.0.lock().attrs.get(&inode).copied()
    }

    /// An answer brought attributes that may be kept.
    pub fn put_attr(&self, asking: &Asking<'_>, attr: Attr) {
        let mut state = self.0.lock();
        let inode = attr.inode;
        if state.is_undisturbed(asking.after, inode) {
            state.keep_attr(inode, Some(attr));
        }
    }

    /// An answer brought the inode of a name, and its directory may be kept.
    pub fn put_name(&self, asking: &Asking<'_>, directory: InodeId, name: &[u8], leads: Option<InodeId>) {
        let mut state = self.0.lock();
        if state.is_name_undisturbed(asking.after, directory, hash(name)) {
            state.put_name(directory, name, leads);
        }
    }

    /// An answer brought a directory that is new, or otherwise known to be empty, and may be kept.
    pub fn put_empty(&self, asking: &Asking<'_>, directory: InodeId) {
        let mut state = self.0.lock();
        if state.is_undisturbed(asking.after, directory) {
            state.drop_directory(directory);
            state.directories.insert(directory, Directory { complete: true, ..Directory::default() });
        }
    }

    /// A page of the listing of a directory that may be kept.
    pub fn put_listing(&self, asking: &Asking<'_>, directory: InodeId, page: &Page<'_>) {
        let Page { after, entries, is_last } = *page;
        let mut state = self.0.lock();
        if !state.is_undisturbed(asking.after, directory) {
            return;
        }
        let before = state.directories.get(&directory).and_then(|directory| directory.listing);
        // Pages make a whole if nothing has happened since the first of them was asked for.
        let since = match before {
            _ if after.is_none() => Some(asking.after),
            Some((since, next)) if next == after && state.is_undisturbed(since, directory) => Some(since),
            _ => None,
        };
        for entry in entries {
            state.put_name(directory, &entry.name, Some(entry.inode));
        }
        let Some(directory) = state.directories.get_mut(&directory) else {
            if is_last && since.is_some() && entries.is_empty() {
                state.directories.insert(directory, Directory { complete: true, ..Directory::default() });
            }
            return;
        };
        let next = entries.last().map(|entry| entry.cookie).or(after);
        directory.listing = since.filter(|_| !is_last).map(|since| (since, next));
        directory.complete |= is_last && since.is_some();
    }

    /// This client changed attributes of the inode: answers under way may not know it. `now`: as the change left them,
    /// if they may be kept; `asking` is from before the change.
    pub fn on_own_change(&self, asking: &Asking<'_>, inode: InodeId, now: Option<Attr>) {
        self.0.lock().replace_attr(asking.after, inode, Subject::Any, now);
    }

    /// This client took the inode's last name.
    pub fn forget_removed(&self, inode: InodeId) {
        let mut state = self.0.lock();
        state.attrs.remove(&inode);
        state.drop_directory(inode);
    }

    /// This client made a name of the directory lead where it did not before. `now`: the directory's attributes as the
    /// change left them, if it may be kept; `asking` is from before the change.
    pub fn on_own_name(
        &self,
        asking: &Asking<'_>,
        directory: InodeId,
        name: &[u8],
        leads: Option<InodeId>,
        now: Option<Attr>,
    ) {
        let mut state = self.0.lock();
        let hash = hash(name);
        let is_sure = now.is_some() && state.is_name_undisturbed(asking.after, directory, hash);
        state.replace_attr(asking.after, directory, Subject::Name(hash), now);
        if let Some(directory) = state.directories.get_mut(&directory) {
            // The listing under way may have missed it.
            directory.listing = None;
        }
        if is_sure {
            state.put_name(directory, name, leads);
        } else {
            state.forget_name(directory, name);
        }
    }

    /// A change of this name failed, or its outcome is unknown.
    pub fn on_unsure_name(&self, directory: InodeId, name: &[u8]) {
        let mut state = self.0.lock();
        state.note_event(directory, Subject::Any);
        state.attrs.remove(&directory);
        state.forget_name(directory, name);
    }

    /// A lease that covers the attributes begins or ends, or what became of a change is not known.
    pub fn on_unsure_attr(&self, inode: InodeId) {
        let mut state = self.0.lock();
        state.note_event(inode, Subject::Unsure);
        state.attrs.remove(&inode);
    }

    /// The write lease became a read lease. `now`: the master's attributes, if they may be kept.
    pub fn on_lowered(&self, asking: &Asking<'_>, inode: InodeId, now: Option<Attr>) {
        self.0.lock().replace_attr(asking.after, inode, Subject::Unsure, now);
    }

    /// Others are about to change these.
    pub fn forget(&self, inodes: &[InodeId]) {
        let mut state = self.0.lock();
        for inode in inodes {
            state.attrs.remove(inode);
            state.drop_directory(*inode);
            state.note_event(*inode, Subject::Any);
        }
    }

    /// Paths of inodes as far as they are known, for people: from the root, or from the first directory whose own name
    /// is not known. Looks at everything that is kept.
    pub fn paths(&self, wanted: &BTreeSet<InodeId>) -> BTreeMap<InodeId, String> {
        let state = self.0.lock();
        let mut whence: BTreeMap<InodeId, (InodeId, &[u8])> = BTreeMap::new();
        for (parent, directory) in &state.directories {
            for (name, leads) in &directory.names {
                if let Some(inode) = leads
                    && (wanted.contains(inode) || state.directories.contains_key(inode))
                {
                    whence.insert(*inode, (*parent, name));
                }
            }
        }
        let path = |inode: &InodeId| {
            let (mut at, mut path) = (*inode, String::new());
            for _ in 0..DEPTH_MAX {
                let Some((parent, name)) = whence.get(&at) else { break };
                path = format!("/{}{path}", String::from_utf8_lossy(name));
                at = *parent;
            }
            let start = if at == InodeId::ROOT { "" } else { "..." };
            (!path.is_empty()).then(|| (*inode, format!("{start}{path}")))
        };
        wanted.iter().filter_map(path).collect()
    }

    /// Everything is void: the session or the master process that knew of it is gone. Returns what attributes were
    /// kept of.
    pub fn clear(&self) -> Vec<InodeId> {
        let mut state = self.0.lock();
        state.last_event += 1;
        state.void_upto = state.last_event;
        state.events.clear();
        state.directories.clear();
        state.names = 0;
        std::mem::take(&mut state.attrs).into_keys().collect()
    }
}

#[cfg(test)]
mod tests;
