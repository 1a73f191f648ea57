//! One state of everything.

use crate::names::{Version, Writes};
use crate::replica::Replica;
use crate::standins::holder::Holder;
use crate::standins::log::{Append, Entry, Log};
use crate::standins::recovery::Master;

/// Members of the set.
pub const MEMBERS: usize = 2;
/// The place of the always-on node's log; those before it are the members' nodes'.
pub const ALWAYS_ON: usize = MEMBERS;

/// A node with a replica and a log.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Node {
    /// A node that sleeps cannot be reached.
    pub is_awake: bool,
    /// Its disk is gone.
    pub is_lost: bool,
    /// Its member.
    pub replica: Replica,
    /// Writes that other members lack.
    pub log: Log,
}

impl Node {
    /// Whether it answers.
    #[must_use]
    pub const fn answers(&self) -> bool {
        self.is_awake && !self.is_lost
    }
}

/// The true history, which no process of the system knows.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct History {
    /// How many writes there were.
    pub writes: u8,
    /// Acknowledged by fsync.
    pub firm: Writes,
    /// A recovery brought a member acknowledged writes that no member had.
    pub replayed: bool,
    /// It had it from another node's log than the always-on one's.
    pub mirrored: bool,
    /// A recovery was begun again after that.
    pub again: bool,
}

/// All processes, the network, the true history, and the used part of the bounds.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct State {
    /// Nodes with members.
    pub nodes: [Node; MEMBERS],
    /// The always-on node's log.
    pub always_on: Log,
    /// The master.
    pub master: Master,
    /// All clients that ever had the lease.
    pub holders: Vec<Holder>,
    /// Writes under way to members, for good.
    pub sent: Vec<Entry>,
    /// Calls under way to logs, for good.
    pub appends: Vec<Append>,
    /// The history.
    pub history: History,
    /// How often holders had something logged.
    pub calls: u8,
    /// How often a node fell asleep.
    pub sleeps: u8,
    /// Disks that were lost, and members that a recovery went on without.
    pub losses: u8,
    /// Crashes.
    pub crashes: u8,
}

impl State {
    /// A client has the lease of a metablock that was granted and never written.
    #[must_use]
    pub fn granted() -> Self {
        let node = Node { is_awake: true, is_lost: false, replica: Replica::default(), log: Log::default() };
        Self {
            nodes: [node.clone(), node],
            always_on: Log::default(),
            master: Master { epoch: 1, held: true, committed: Version::ZERO, set: [true; MEMBERS], recovery: None },
            holders: vec![Holder::new(1, Version::ZERO)],
            sent: Vec::new(),
            appends: Vec::new(),
            history: History::default(),
            calls: 0,
            sleeps: 0,
            losses: 0,
            crashes: 0,
        }
    }

    /// A log by its place.
    #[must_use]
    pub const fn log(&self, place: usize) -> &Log {
        if place == ALWAYS_ON { &self.always_on } else { &self.nodes[place].log }
    }

    /// The log of a place, to change it.
    pub const fn log_mut(&mut self, place: usize) -> &mut Log {
        if place == ALWAYS_ON { &mut self.always_on } else { &mut self.nodes[place].log }
    }

    /// Whether a log's node answers.
    #[must_use]
    pub const fn log_answers(&self, place: usize) -> bool {
        place == ALWAYS_ON || self.nodes[place].answers()
    }

    /// Whether the file has no holder, and is recovered.
    #[must_use]
    pub const fn is_at_rest(&self) -> bool {
        !self.master.held && self.master.recovery.is_none()
    }

    /// This state, or the one with the nodes' names exchanged: nothing depends on which is which.
    #[must_use]
    pub fn representative(self) -> Self {
        let mut other = self.clone();
        other.nodes.swap(0, 1);
        other.master.set.swap(0, 1);
        for holder in &mut other.holders {
            holder.known.swap(0, 1);
            for attempt in &mut holder.attempts {
                let answered = attempt.answered;
                attempt.answered = (answered & 0b100) | ((answered & 1) << 1) | ((answered >> 1) & 1);
            }
        }
        if let Some(recovery) = &mut other.master.recovery {
            recovery.read.swap(0, 1);
            recovery.reported.swap(0, 1);
            recovery.stamped.swap(0, 1);
        }
        self.min(other)
    }

    /// With all that makes two states one.
    #[must_use]
    pub fn reduced(mut self) -> Self {
        self.forget();
        self.representative()
    }

    /// Drops calls that no log will ever take: epochs and promises only rise. For promises that a lost disk forgets,
    /// the file's own epoch stands in at the always-on node.
    pub fn forget(&mut self) {
        let refuses = |log: &Log, epoch: u8| !log.takes(epoch);
        let (nodes, always_on, epoch) = (&self.nodes, &self.always_on, self.master.epoch);
        self.appends.retain(|append| {
            !(nodes.iter().all(|node| refuses(&node.log, append.epoch))
                && (refuses(always_on, append.epoch) || append.epoch < epoch))
        });
    }
}
