//! Attributes of one file: the master's, with this client's newer size and times.

use ebb_types::{Attr, Epoch};

use crate::inode::Core;
use crate::lease::hold::Lease;
use crate::names::known::{Asking, Trust};

impl Core {
    /// Takes the attributes of an answer, unless they are older than the known ones. `kept`: they are valid as long
    /// as the lease.
    pub fn note_attr(&mut self, attr: &Attr, kept: bool) {
        if self.attr.as_ref().is_some_and(|known| known.ctime > attr.ctime) {
            return;
        }
        if self.hold.lease() == Lease::Read {
            self.size = attr.size;
            self.mtime = attr.mtime;
        }
        self.attr = Some(*attr);
        self.attr_stale &= !kept;
    }

    /// How far an answer with attributes of this file may be trusted. After this client has lost a write lease, the
    /// master leaves the size to it until a recovery begins, which raises the epoch.
    pub fn trust(&self, asking: &Asking<'_>, attr: &Attr) -> Trust {
        if self.is_unrecovered(attr.epoch) { Trust::Never } else { asking.trust(attr) }
    }

    /// Whether an answer with this epoch is from before the loss of the write lease.
    pub fn is_unrecovered(&self, epoch: Epoch) -> bool {
        self.hold.lost().is_some_and(|lost| epoch <= lost)
    }

    /// Takes the attributes of an answer to a question, and says whether it did. A lease that was granted between question and
    /// answer brought attributes of its own, and what another client committed before: the answer may be from before that, with
    /// another size and the same times.
    pub fn note_answer(&mut self, attr: &Attr, kept: bool, trust: Trust) -> bool {
        let taken = match trust {
            Trust::Kept => true,
            Trust::Once => self.hold.lease() == Lease::None,
            // Some answer must bring blocks and owners. The next lease, without which nothing is valid, brings new
            // attributes.
            Trust::Never => self.attr.is_none(),
        };
        if taken {
            self.note_attr(attr, kept && trust == Trust::Kept);
        }
        taken
    }

    /// The attributes of an answer as programs see them. `None`: they may never have been right, and this client has
    /// no write lease with better ones.
    pub fn show(&self, attr: Attr, trust: Trust) -> Option<Attr> {
        (trust != Trust::Never || self.hold.lease() == Lease::Write).then(|| self.overlay(attr))
    }

    /// Attributes with this client's own size and times, if it holds the file for writing.
    pub fn overlay(&self, mut attr: Attr) -> Attr {
        if self.hold.lease() != Lease::Write {
            return attr;
        }
        attr.size = self.size;
        attr.mtime = self.mtime;
        if self.unrecorded.mtime {
            attr.ctime = attr.ctime.max(self.mtime);
        }
        if self.unrecorded.privileges {
            attr.mode = crate::plan::without_privileges(attr.mode);
        }
        attr.allocated_bytes = attr.allocated_bytes.max(self.own_bytes());
        attr
    }

    fn own_bytes(&self) -> u64 {
        let recorded: u64 = self
            .map
            .iter()
            .filter(|(index, _)| !self.channels.contains_key(index))
            .map(|(_, block)| block.length)
            .sum();
        recorded + self.channels.values().map(|channel| channel.length).sum::<u64>() + self.dirty.bytes()
    }
}
