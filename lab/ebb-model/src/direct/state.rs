//! The state of the proxy, the members and the clients.

use std::collections::{BTreeMap, BTreeSet};

/// Members; each has both metablocks.
pub const MEMBERS: usize = 2;
/// Metablocks; each write covers both.
pub const METABLOCKS: usize = 2;
/// The write by way of the proxy; lower ones are direct.
pub const VIA: u8 = 2;
/// The content of a member where it was given no bytes.
pub const NOTHING: u8 = 7;

/// A ticket: the proxy's process, and its number there.
pub type Ticket = (u8, u8);

/// Whether a write is in a set of writes.
pub fn is_in(write: u8, set: u8) -> bool {
    set & (1 << write) != 0
}

/// A message to members or proxy that is or was on its way: it may come any number of times.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Message {
    /// A client's bytes, to be kept until they are asked for.
    Put {
        /// To whom.
        member: usize,
        /// For which.
        ticket: Ticket,
        /// Which.
        write: u8,
    },
    /// A place in a metablock is to be filled.
    Apply {
        /// By whom.
        member: usize,
        /// Of the proxy.
        epoch: u8,
        /// Where.
        metablock: usize,
        /// Counted from the file's first write.
        place: usize,
        /// With the put bytes of this ticket.
        ticket: Option<Ticket>,
        /// With this.
        bytes: Option<u8>,
    },
    /// The content of a place is to be logged, because a member sleeps.
    Log {
        /// The member whose node logs it.
        keeper: usize,
        /// Of the proxy.
        epoch: u8,
        /// Where.
        metablock: usize,
        /// Counted from the file's first write.
        place: usize,
        /// With the bytes that the keeper was given for this ticket.
        ticket: Option<Ticket>,
        /// With this.
        bytes: Option<u8>,
    },
    /// The bytes are with all members.
    Report {
        /// For which.
        ticket: Ticket,
        /// Which.
        write: u8,
    },
}

/// One of the two.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Member {
    /// Put and not taken back; in memory.
    pub staged: BTreeMap<Ticket, u8>,
    /// Writes in each metablock, in order.
    pub content: [Vec<u8>; METABLOCKS],
    /// How many of them are on the disk.
    pub synced: [usize; METABLOCKS],
    /// Lower ones are refused.
    pub promised: u8,
    /// In memory: direct writes that it has applied and knows by their tickets, by metablock. Only where recoveries ask for it.
    pub noted: [u8; METABLOCKS],
}

/// Where a client is with its write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Phase {
    /// It has not begun.
    #[default]
    Idle,
    /// It puts bytes; which members have said that they have them.
    Puts(Ticket, [bool; MEMBERS]),
    /// It has reported.
    Reported(Ticket),
}

/// A write that has its place in the proxy's queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Entry {
    /// Which.
    pub write: u8,
    /// None: by way of the proxy.
    pub ticket: Option<Ticket>,
    /// The first metablock has it already.
    pub is_half: bool,
}

/// All of it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct State {
    /// The members.
    pub members: [Member; MEMBERS],
    /// The clients with direct writes.
    pub clients: [Phase; 2],
    /// On its way.
    pub net: BTreeSet<Message>,
    /// Of the proxy; one higher after each recovery.
    pub epoch: u8,
    /// The proxy is dead.
    pub is_dead: bool,
    /// In the proxy's memory: tickets given out.
    pub tickets: u8,
    /// In the proxy's memory: the order of the writes.
    pub queue: Vec<Entry>,
    /// In the proxy's memory, and as the members had it when it began: the writes at each place.
    pub placed: [Vec<u8>; METABLOCKS],
    /// In the proxy's memory: which ticket a direct write had, by write.
    pub ticket_of: [Option<Ticket>; 2],
    /// In the proxy's memory: how many places each member has said that it filled.
    pub received: [[usize; METABLOCKS]; MEMBERS],
    /// In the proxy's memory: places, of both metablocks, that every member has synced.
    pub settled: usize,
    /// The write by way of the proxy was sent, to the proxy of this epoch.
    pub via: Option<u8>,
    /// Writes that were answered.
    pub answered: u8,
    /// A later proxy than the first answered.
    pub was_answered_after: bool,
    /// Writes of which fsync said that they are synced.
    pub fsynced: u8,
    /// Writes that a client has read.
    pub shown: u8,
    /// Writes that were given up before they had a place.
    pub aborted: u8,
    /// The member that sleeps: nothing reaches it.
    pub asleep: Option<usize>,
    /// How often one fell asleep.
    pub sleeps: u8,
    /// On disk: the logged writes, by metablock and place.
    pub log: [BTreeMap<usize, u8>; METABLOCKS],
    /// The log refuses lower epochs.
    pub log_promised: u8,
    /// In the proxy's memory: up to which place each metablock is logged.
    pub logged: [usize; METABLOCKS],
    /// Crashes of members so far.
    pub crashes: u8,
    /// Something broke: an answered write was not there after a recovery.
    pub was_lost: bool,
    /// A read showed one half of a write.
    pub was_torn: bool,
    /// A write went before one that had been there first.
    pub was_overtaken: bool,
    /// Bytes were fetched back for a member that had lost them.
    pub was_fetched: bool,
    /// A recovery found a write in the log alone.
    pub was_replayed: bool,
    /// A recovery completed a write.
    pub was_completed: bool,
    /// Something broke: a recovery that could have completed a write did not.
    pub was_not_completed: bool,
}

impl State {
    /// Whether every member agrees with the placed writes, as far as they have come, and no write is there twice.
    pub fn is_one_content(&self) -> bool {
        let agrees = |member: &Member, metablock: usize| {
            let (has, given) = (&member.content[metablock], &self.placed[metablock]);
            // Between the proxy's death and the recovery there may be more than is known of.
            has.len() <= given.len() && has[..] == given[..has.len()]
        };
        let is_once = |list: &Vec<u8>| (0..=VIA).all(|write| list.iter().filter(|one| **one == write).count() <= 1);
        self.placed.iter().all(is_once)
            && self.members.iter().all(|member| (0..METABLOCKS).all(|metablock| agrees(member, metablock)))
    }

    /// Whether none of these writes is anywhere.
    pub fn has_nothing_of(&self, set: u8) -> bool {
        self.members.iter().flat_map(|member| member.content.iter().flatten()).all(|write| !is_in(*write, set))
    }

    /// Whether one metablock has a write and the other has not.
    pub fn is_half(&self, write: u8) -> bool {
        self.placed[0].contains(&write) != self.placed[1].contains(&write)
    }

    /// Whether a recovery has left half of a write that a client had been promised.
    pub fn has_promised_half(&self) -> bool {
        let is_promised = |write: u8| is_in(write, self.answered | self.fsynced | self.shown);
        (0..=VIA).any(|write| self.was_left_half(write) && is_promised(write))
    }

    /// Whether half of a write is there, and the other half will not come.
    pub fn was_left_half(&self, write: u8) -> bool {
        let is_under_way = self.queue.iter().any(|entry| entry.write == write && entry.is_half);
        !self.is_dead && self.is_half(write) && !is_under_way
    }

    /// Whether all of these writes are on every member's disk, or in the log.
    pub fn is_safe(&self, set: u8) -> bool {
        let has = |member: &Member, metablock: usize, write: u8| {
            member.content[metablock][..member.synced[metablock]].contains(&write)
        };
        let is_logged = |metablock: usize, write: u8| self.log[metablock].values().any(|logged| *logged == write);
        (0..=VIA).filter(|write| is_in(*write, set)).all(|write| {
            (0..METABLOCKS).all(|metablock| {
                is_logged(metablock, write) || self.members.iter().all(|member| has(member, metablock, write))
            })
        })
    }

    /// How many places of a metablock every member has synced.
    pub fn settled(&self, metablock: usize) -> usize {
        self.members.iter().map(|member| member.synced[metablock]).min().unwrap_or(0)
    }
}
