//! Messages, and the network that loses, delays and repeats them.

use crate::names::{Epoch, Node, Nodes, Version};

/// One message. Requests to members and to the master change their receiver when they are delivered. A receiver that
/// waits for an answer looks it up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Message {
    /// `WriteReplica`, holder to member: the write with this number in the history.
    Write {
        /// Member.
        node: Node,
        /// Of this write.
        version: Version,
        /// The version that it follows.
        predecessor: Version,
        /// Which write.
        write: u8,
    },
    /// `SyncReplicas`, or the sync flag of `WriteReplica`, holder to member. The real message names a version; the
    /// member's reaction depends on the epoch only.
    Sync {
        /// Member.
        node: Node,
        /// The holder's.
        epoch: Epoch,
    },
    /// Reply of `WriteReplica` and `SyncReplicas`.
    Answer {
        /// Member.
        node: Node,
        /// Of the request.
        epoch: Epoch,
        /// The member's start that answers.
        boot: u8,
        /// In its memory.
        received: Version,
        /// On its disk.
        synced: Version,
    },
    /// `CommitFile`, holder to master.
    Commit {
        /// The holder's.
        epoch: Epoch,
        /// Synced by the whole set.
        version: Version,
        /// Gives the lease back.
        release: bool,
    },
    /// `ChangeSet`, holder to master.
    ChangeSet {
        /// The holder's.
        epoch: Epoch,
        /// Of the set that is replaced.
        generation: u8,
        /// The new set.
        set: Nodes,
    },
    /// Its reply, when the master recorded it.
    SetChanged {
        /// The holder's.
        epoch: Epoch,
        /// Of the new set.
        generation: u8,
    },
    /// `PromiseEpoch`, master to member.
    Promise {
        /// Member.
        node: Node,
        /// To promise.
        epoch: Epoch,
    },
    /// Its reply.
    Reported {
        /// Member.
        node: Node,
        /// Promised.
        epoch: Epoch,
        /// Of its replica.
        version: Version,
    },
    /// `PullReplica`, master or holder to a member that lacks something. The real message names a source; here the
    /// source is any node that serves `at`, so that no map is too old.
    Pull {
        /// The node that pulls.
        node: Node,
        /// Promised from then on.
        epoch: Epoch,
        /// The version that must be reached.
        at: Version,
    },
    /// Its reply.
    Pulled {
        /// The node that pulled.
        node: Node,
        /// Of the request.
        epoch: Epoch,
        /// Reached and synced.
        version: Version,
    },
    /// `StampReplica`, master to member.
    Stamp {
        /// Member.
        node: Node,
        /// The recovery's.
        epoch: Epoch,
        /// Only a replica at exactly this version is stamped.
        base: Version,
    },
    /// Its reply.
    Stamped {
        /// Member.
        node: Node,
        /// The recovery's.
        epoch: Epoch,
    },
    /// `DeleteReplicas`, master to a node outside the set. It means the replica that the node had when it was judged:
    /// the real message names its life, and each pull begins another one. Here a pull takes the message away.
    DeleteExcess {
        /// The node that has the replica.
        node: Node,
        /// The file's: lower ones are refused from then on.
        epoch: Epoch,
    },
}

/// Every message that was sent and could still matter.
///
/// Delivery does not take a message out: it may be delivered again at any later time (repeated, late), or never
/// (lost). A retry is therefore not an action of its own.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Network(Vec<Message>);

impl Network {
    /// Sends; sending twice is sending once.
    pub fn send(&mut self, message: Message) {
        if let Err(place) = self.0.binary_search(&message) {
            self.0.insert(place, message);
        }
    }

    /// Whether it was sent and is not forgotten.
    #[must_use]
    pub fn has(&self, message: Message) -> bool {
        self.0.binary_search(&message).is_ok()
    }

    /// All messages, in a fixed order.
    pub fn iter(&self) -> impl Iterator<Item = Message> {
        self.0.iter().copied()
    }

    /// Keeps only those that pass.
    pub fn retain(&mut self, mut test: impl FnMut(Message) -> bool) {
        self.0.retain(|message| test(*message));
    }

    /// Rewrites every message.
    pub fn map(&mut self, rewrite: impl FnMut(&mut Message)) {
        self.0.iter_mut().for_each(rewrite);
        self.0.sort_unstable();
        self.0.dedup();
    }
}
