//! Direct writes in a channel: writes whose bytes lie with members, the keepers, and not here.

use std::sync::Arc;

use ebb_types::Version;

use super::Channel;
use crate::write::outgoing::Outgoing;

impl Channel {
    /// The unsettled writes to `start..end` of the metablock whose bytes are not here.
    pub fn elsewhere(&self, start: u64, end: u64) -> Vec<Arc<Outgoing>> {
        let overlaps = |write: &Outgoing| write.offset < end && start < write.offset + write.length;
        let is_one = |write: &&Arc<Outgoing>| write.elsewhere().is_some() && overlaps(write);
        self.pending.iter().filter(is_one).cloned().collect()
    }

    /// The direct writes whose bytes need not be kept any more, though some member lacks them: they are logged, and each
    /// keeper has received them. Each is returned once.
    pub fn take_released(&mut self) -> Vec<Arc<Outgoing>> {
        let is_safe = |write: &Outgoing| {
            let mut keepers = write.staged.iter().flat_map(|put| &put.keepers);
            write.version <= self.logged && keepers.all(|node| self.has_received(*node, write.version))
        };
        let kept = self.pending.iter().filter(|write| self.is_kept(write));
        let released: Vec<_> = kept.take_while(|write| is_safe(write)).cloned().collect();
        if let Some(last) = released.last() {
            self.released = last.version;
        }
        released.into_iter().filter(|write| write.staged.is_some()).collect()
    }

    /// Whether the keepers of a direct write still have to keep its bytes.
    pub fn is_kept(&self, write: &Outgoing) -> bool {
        write.version > self.released
    }

    /// Whether a node that is a member has a write, in memory or on disk.
    fn has_received(&self, node: u64, version: Version) -> bool {
        let mut of_node = self.peers.iter().filter(|peer| peer.member.node == node);
        of_node.all(|peer| peer.received.max(peer.synced) >= version)
    }
}

#[cfg(test)]
mod tests {
    use ebb_types::{Epoch, err};
    use ebb_wire::pb;

    use super::*;
    use crate::write::channel::Copies;
    use crate::write::outgoing::{Content, Put};

    /// Members on nodes 1, 2 and 3; the bytes of each write were put on 1 and 2.
    fn channel() -> Channel {
        let members = (1..=3).map(|node| pb::Member { node, volume: node, ..pb::Member::default() }).collect();
        let record = pb::Metablock { id: 7, members, ..pb::Metablock::default() };
        Channel::new(&record, Version::ZERO, Epoch::new(3), 1, Copies { wanted: 3, min: 2 })
    }

    fn push(channel: &mut Channel, request: u64) -> Version {
        let put = Put { ticket: pb::Ticket { session: 1, request }, keepers: vec![1, 2] };
        channel.push(Content::put(request * 100, 100, put))
    }

    fn released(channel: &mut Channel) -> Vec<Version> {
        channel.take_released().iter().map(|write| write.version).collect()
    }

    #[test]
    fn bytes_are_kept_until_the_write_is_logged_and_with_every_keeper() {
        let mut channel = channel();
        let (first, second) = (push(&mut channel, 0), push(&mut channel, 1));
        channel.logged = first;
        channel.peers[0].received = second;
        assert_eq!(released(&mut channel), [], "a keeper may still need them");
        channel.peers[1].received = second;
        assert_eq!(released(&mut channel), [first], "the other one is not logged");
        channel.logged = second;
        assert_eq!(released(&mut channel), [second]);
        assert_eq!(released(&mut channel), [], "once");
        assert_eq!(channel.elsewhere(0, 150).len(), 2, "the bytes are not here all the same");
    }

    #[test]
    fn a_keeper_that_is_no_member_any_more_needs_no_bytes() {
        let mut channel = channel();
        let first = push(&mut channel, 0);
        channel.logged = first;
        channel.peers[0].received = first;
        channel.peers[1].member.node = 4;
        assert_eq!(released(&mut channel), [first]);
    }

    #[test]
    fn a_member_that_a_plan_switches_off_has_what_has_settled_and_a_broken_one_has_not() {
        let mut channel = channel();
        channel.fail(0, err!(Unavailable, "n1 is switched off"));
        assert_eq!((channel.holders(|node| node == 1), channel.holders(|_| false)), (3, 2));
        channel.fail(0, err!(Corrupt, "n1 has lost it"));
        assert_eq!(channel.holders(|node| node == 1), 2);
    }
}
