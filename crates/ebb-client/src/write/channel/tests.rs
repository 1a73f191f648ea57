//! The channel against members that lose, delay, restart and refuse, as a property.

use std::collections::BTreeMap;
use std::time::Duration;

use ebb_types::{ErrorKind, Result, err};
use proptest::prelude::*;

use super::sets::DISPLACE_PAUSE;
use super::*;
use crate::write::members::Heard;

const EPOCH: Epoch = Epoch::new(3);

/// A member as the protocol has it: it applies in order, and loses unsynced writes at a restart.
#[derive(Clone, Debug)]
struct Fake {
    boot: u64,
    received: Version,
    synced: Version,
    alive: bool,
    /// It refuses writes for want of space, and has them all the same: they may reach its disk later.
    full: bool,
}

impl Fake {
    fn receive(&mut self, write: &Outgoing, sync: bool) -> Heard {
        if !self.alive {
            return Err(err!(Unreachable, "down"));
        }
        let mut failure = None;
        if self.received < write.version {
            if self.received == write.predecessor {
                self.received = write.version;
            } else {
                failure = Some(pb::Failure::from(&err!(Gap, "not in order")));
            }
        }
        if self.full && failure.is_none() {
            failure = Some(pb::Failure::from(&err!(NoSpace, "no room for the journal")));
        }
        if sync && failure.is_none() {
            self.synced = self.received;
        }
        Ok(Some(pb::MemberResult { failure, ..self.answer() }))
    }

    fn answer(&self) -> pb::MemberResult {
        pb::MemberResult {
            boot: self.boot,
            received: Some(self.received.into()),
            synced: Some(self.synced.into()),
            ..Default::default()
        }
    }

    fn sync(&mut self, metablock: u64) -> Result<pb::SyncReplicasReply> {
        if !self.alive {
            return Err(err!(Unreachable, "down"));
        }
        self.synced = self.received;
        let replica = pb::SyncedReplica { metablock, synced: Some(self.synced.into()), failure: None };
        Ok(pb::SyncReplicasReply { boot: self.boot, replicas: vec![replica] })
    }

    fn restart(&mut self) {
        self.boot += 1;
        self.received = self.synced;
        self.alive = true;
        self.full = false;
    }
}

/// A step that is being carried out, or its answers on their way back.
enum Flight {
    Send(Arc<Outgoing>, bool),
    Sent(Version, Vec<Heard>),
    CatchUp(usize, Vec<Arc<Outgoing>>),
    Sync(Vec<usize>),
}

struct Bench {
    channel: Channel,
    rhythm: Rhythm,
    members: BTreeMap<u64, Fake>,
    flights: Vec<Flight>,
    next_node: u64,
    /// Whether there are nodes to replace a member that fails.
    has_spares: bool,
    /// There was a time without.
    was_short: bool,
    now: Moment,
    /// What was sent, by version.
    sent: BTreeMap<Version, Arc<Outgoing>>,
    /// The master has a volume for a member that is only slow.
    offers: bool,
}

fn member(node: u64) -> pb::Member {
    pb::Member { node, volume: node, incarnation: 1, home: 0 }
}

impl Bench {
    /// Of three copies that are wanted, an earlier holder has left so many.
    fn new(recorded: u64) -> Self {
        let record = pb::Metablock { id: 9, members: (1..=recorded).map(member).collect(), ..Default::default() };
        let fake = Fake { boot: 1, received: Version::ZERO, synced: Version::ZERO, alive: true, full: false };
        Self {
            channel: Channel::new(&record, Version::ZERO, EPOCH, 1, Copies { wanted: 3, min: 2 }),
            rhythm: Rhythm::Together,
            members: (1..=recorded).map(|node| (node, fake.clone())).collect(),
            flights: Vec::new(),
            next_node: 4,
            has_spares: true,
            was_short: false,
            now: Moment::default(),
            sent: BTreeMap::new(),
            offers: true,
        }
    }

    fn start(&mut self) {
        loop {
            match self.channel.next(self.rhythm) {
                Step::None => return,
                Step::Send { write, sync } => self.flights.push(Flight::Send(write, sync)),
                Step::CatchUp { peer, writes, .. } => self.flights.push(Flight::CatchUp(peer, writes)),
                Step::Sync { peers, .. } => self.flights.push(Flight::Sync(peers)),
                Step::Repair => {
                    self.repair();
                    self.retire_synced();
                }
            }
        }
    }

    fn node_of(&self, peer: usize) -> u64 {
        self.channel.peers[peer].member.node
    }

    /// A version once sent never carries other bytes, also if it was refused: it may land later.
    fn remember(&mut self, write: &Arc<Outgoing>) {
        let before = self.sent.insert(write.version, write.clone());
        assert!(before.is_none(), "{} is given out a second time", write.version);
    }

    /// What `repair.rs` does, at once.
    fn repair(&mut self) {
        for peer in 0..self.channel.peers.len() {
            if self.channel.peers[peer].failed.is_none() {
                let result = self.members.get_mut(&self.node_of(peer)).unwrap().sync(9);
                self.channel.note_synced(peer, &result).unwrap();
            }
        }
        if self.channel.only_displaced().is_none() {
            self.channel.keep_displaced();
        } else if !self.offers {
            assert!(self.channel.keep_displaced());
            self.channel.on_revived();
            return;
        }
        let well = self.channel.peers.iter().filter(|peer| peer.failed.is_none());
        let source = well.max_by_key(|peer| peer.synced).cloned();
        let at = source.as_ref().map_or(Version::ZERO, |peer| peer.synced);
        if source.is_none() && self.channel.settled != Version::ZERO {
            for peer in 0..self.channel.peers.len() {
                let node = self.node_of(peer);
                self.members.get_mut(&node).unwrap().restart();
                self.channel.revive(peer);
            }
            self.channel.on_revived();
            return;
        }
        let generation = self.channel.generation + 1;
        let mut set: Vec<_> =
            self.channel.peers.iter().filter(|peer| peer.failed.is_none()).map(|peer| peer.member).collect();
        if !self.has_spares && set.len() >= 2 {
            let went_on = WentOn { at: self.now, map: 1 };
            match set.len() == self.channel.peers.len() {
                true => self.channel.on_went_on(went_on),
                false => self.channel.on_repaired(&set, generation, at, Repaired::Fewer(went_on)),
            }
            return;
        }
        set.clear();
        for peer in &self.channel.peers {
            if peer.failed.is_none() {
                set.push(peer.member);
                continue;
            }
            let fresh = Fake { boot: 1, received: at, synced: at, alive: true, full: false };
            self.members.insert(self.next_node, fresh);
            set.push(member(self.next_node));
            self.next_node += 1;
        }
        while set.len() < 3 {
            self.members.insert(self.next_node, Fake { boot: 1, received: at, synced: at, alive: true, full: false });
            set.push(member(self.next_node));
            self.next_node += 1;
        }
        self.channel.on_repaired(&set, generation, at, Repaired::Whole);
    }

    /// One flight goes on: to its members, or back from them.
    fn go_on(&mut self, which: usize) {
        if self.flights.is_empty() {
            return;
        }
        let flight = self.flights.swap_remove(which % self.flights.len());
        match flight {
            Flight::Send(write, sync) => {
                self.remember(&write);
                let nodes: Vec<u64> = self.channel.peers.iter().map(|peer| peer.member.node).collect();
                let receive = |node: &u64| self.members.get_mut(node).unwrap().receive(&write, sync);
                let results = nodes.iter().map(receive).collect();
                self.flights.push(Flight::Sent(write.version, results));
            }
            Flight::Sent(version, results) => self.channel.on_sent(version, &results).unwrap(),
            Flight::CatchUp(peer, writes) => {
                let node = self.node_of(peer);
                let fake = self.members.get_mut(&node).unwrap();
                let mut last = (Version::ZERO, Ok(None));
                for (at, write) in writes.iter().enumerate() {
                    let first = self.sent.entry(write.version).or_insert_with(|| write.clone());
                    assert!(Arc::ptr_eq(first, write), "{} is sent with other bytes", write.version);
                    if at > 0 {
                        self.channel.on_taken(peer, last.0, &last.1).unwrap();
                    }
                    last = (write.version, fake.receive(write, at + 1 == writes.len()));
                    if last.1.as_ref().map_or(true, |answer| answer.as_ref().is_some_and(pb::MemberResult::has_failed))
                    {
                        break;
                    }
                }
                self.channel.on_caught_up(peer, last.0, &last.1).unwrap();
            }
            Flight::Sync(peers) => {
                for peer in peers {
                    let node = self.node_of(peer);
                    let result = self.members.get_mut(&node).unwrap().sync(9);
                    self.channel.on_synced(peer, &result).unwrap();
                }
            }
        }
        self.retire_synced();
        self.start();
    }

    /// The promise: a settled write is on the disk of every member of the set. The set has as many members as a write
    /// needs, and as wanted unless there were no nodes.
    fn retire_synced(&mut self) {
        self.channel.take_synced();
        let (settled, count) = (self.channel.settled, self.channel.peers.len());
        let least = if self.was_short { 2 } else { 3 };
        assert!(settled == Version::ZERO || count >= least, "{settled} settled on {count} members");
        for peer in &self.channel.peers {
            let fake = &self.members[&peer.member.node];
            assert!(fake.synced >= self.channel.settled, "{} settled, {fake:?}", self.channel.settled);
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Write,
    WantSync,
    GoOn(usize),
    Kill(u64),
    Fill(u64),
    Restart(u64),
    /// A member's node is gray, and there is another one, or not.
    Displace(usize, bool),
    /// There are nodes for replacements from now on, or none.
    Spares(bool),
    /// Time passes.
    Sleep(u64),
    /// A plan comes under which members sleep, or none does any more.
    Plan(Rhythm),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => Just(Op::Write),
        1 => Just(Op::WantSync),
        8 => any::<usize>().prop_map(Op::GoOn),
        1 => (1u64..6).prop_map(Op::Kill),
        1 => (1u64..6).prop_map(Op::Fill),
        2 => (1u64..6).prop_map(Op::Restart),
        1 => (0usize..3, any::<bool>()).prop_map(|(peer, offers)| Op::Displace(peer, offers)),
        1 => any::<bool>().prop_map(Op::Spares),
        1 => (1u64..20).prop_map(Op::Sleep),
        1 => Just(Op::Plan(Rhythm::InTurns)),
        1 => Just(Op::Plan(Rhythm::Together)),
    ]
}

proptest! {
    #[test]
    fn nothing_settles_before_it_is_synced_and_everything_settles_in_the_end(
        recorded in 1u64..4,
        ops in prop::collection::vec(op(), 1..120)
    ) {
        let mut bench = Bench::new(recorded);
        for op in ops {
            match op {
                Op::Write => {
                    let data = vec![bytes::Bytes::from_static(b"abc")];
                    bench.channel.push(Content::data(0, data));
                    bench.start();
                }
                Op::WantSync => {
                    bench.channel.want_sync();
                    bench.start();
                }
                Op::GoOn(which) => bench.go_on(which),
                Op::Kill(node) => if let Some(fake) = bench.members.get_mut(&node) { fake.alive = false },
                Op::Fill(node) => if let Some(fake) = bench.members.get_mut(&node) { fake.full = true },
                Op::Restart(node) => if let Some(fake) = bench.members.get_mut(&node) { fake.restart() },
                Op::Displace(peer, offers) => {
                    bench.offers = offers;
                    if bench.channel.peers.len() == 3 && !bench.channel.is_ailing() {
                        bench.channel.displace(peer, err!(Overloaded, "gray"), Moment::default());
                        bench.start();
                    }
                }
                Op::Plan(rhythm) => bench.rhythm = rhythm,
                Op::Spares(has_spares) => {
                    bench.has_spares = has_spares;
                    bench.was_short |= !has_spares;
                }
                Op::Sleep(seconds) => {
                    bench.now = bench.now.after(Duration::from_secs(seconds));
                    bench.channel.on_time(bench.now, 1);
                }
            }
        }
        bench.channel.want_sync();
        bench.start();
        for round in 0..2000 {
            if bench.flights.is_empty() { break; }
            bench.go_on(round);
        }
        prop_assert!(!bench.channel.is_unsettled(), "stuck: {:?}", bench.channel);
        prop_assert!(bench.channel.is_quiet());
    }
}

/// A set that goes on with fewer members writes at once, and looks for a further one when it may have come.
#[test]
fn a_set_that_went_on_seeks_every_now_and_then() {
    let mut bench = Bench::new(2);
    (bench.has_spares, bench.was_short) = (false, true);
    bench.write(1);
    assert!(!bench.channel.is_ailing() && bench.channel.peers.len() == 2 && bench.channel.shrunk);
    (0..10).for_each(|_| bench.go_on(0));
    bench.has_spares = true;
    let mut seeks_after = |seconds, map| {
        bench.channel.on_time(bench.now.after(Duration::from_secs(seconds)), map);
        bench.write(1);
        (0..10).for_each(|_| bench.go_on(0));
        bench.channel.peers.len() == 3
    };
    assert!(!seeks_after(9, 1), "nothing has changed");
    assert!(!seeks_after(0, 2), "not with each map");
    assert!(seeks_after(1, 2), "a node may have come");
}

#[test]
fn a_set_with_fewer_members_than_a_write_needs_writes_nothing() {
    let mut bench = Bench::new(1);
    bench.channel.push(Content::data(0, vec![bytes::Bytes::from_static(b"x")]));
    assert!(matches!(bench.channel.next(Rhythm::Together), Step::Repair) && bench.channel.is_ailing());
    let only = [member(1)];
    bench.channel.on_repaired(&only, 2, Version::ZERO, Repaired::GaveUp);
    assert!(matches!(bench.channel.next(Rhythm::Together), Step::Send { .. }), "its failure was reported");
    bench.channel.push(Content::data(0, vec![bytes::Bytes::from_static(b"y")]));
    let step = bench.channel.next(Rhythm::Together);
    assert!(matches!(step, Step::None), "first what is under way lands: {step:?}");
}

#[test]
fn a_lower_epoch_loses_the_lease() {
    let mut bench = Bench::new(3);
    bench.channel.push(Content::data(0, vec![bytes::Bytes::from_static(b"x")]));
    let Step::Send { write, .. } = bench.channel.next(Rhythm::Together) else { panic!("nothing to send") };
    let refusal = pb::MemberResult {
        boot: 1,
        failure: Some(pb::Failure::from(&err!(StaleEpoch, "promised e9"))),
        ..Default::default()
    };
    let results = [Ok(Some(refusal)), Ok(None), Ok(None)];
    assert_eq!(bench.channel.on_sent(write.version, &results).unwrap_err().kind(), ErrorKind::StaleEpoch);
}

impl Bench {
    /// Writes `count` times, without a sync.
    fn write(&mut self, count: usize) {
        for _ in 0..count {
            self.channel.push(Content::data(0, vec![bytes::Bytes::from_static(b"abc")]));
            self.start();
        }
    }

    /// What is on its way to one member gets there, and so on, until it has nothing to take any more.
    fn serve(&mut self, peer: usize) {
        while let Some(which) = self.flights.iter().position(|flight| match flight {
            Flight::CatchUp(to, _) => *to == peer,
            Flight::Sync(peers) => peers.contains(&peer),
            Flight::Send(..) | Flight::Sent(..) => true,
        }) {
            self.go_on(which);
        }
    }
}

#[test]
fn members_that_take_turns_have_everything_after_one_wake_each() {
    let mut bench = Bench::new(3);
    bench.rhythm = Rhythm::InTurns;
    // Far more than a window.
    bench.write(5 * WINDOW);
    let last = bench.channel.last;
    for peer in 0..3 {
        assert!(bench.channel.is_unsettled());
        // It wakes, and sleeps again before the next one does.
        bench.serve(peer);
        let node = &bench.channel.peers[peer];
        assert_eq!((node.received, node.synced), (last, last), "n{}", node.member.node);
    }
    bench.channel.want_sync();
    bench.start();
    assert!(bench.channel.is_quiet() && bench.flights.is_empty(), "no waiter wakes a second time");
}

#[test]
fn received_bytes_are_synced_while_another_member_is_waited_for() {
    let mut bench = Bench::new(3);
    bench.members.get_mut(&1).unwrap().alive = false;
    bench.write(1);
    (0..2).for_each(|_| bench.go_on(0));
    // One did not take it, and is asked again when it wakes, for a plan has come under which it sleeps.
    bench.rhythm = Rhythm::InTurns;
    bench.channel.want_sync();
    bench.start();
    assert!(bench.flights.iter().any(|flight| matches!(flight, Flight::Sync(peers) if *peers == [1, 2])));
}

/// The answer of one member that sleeps is given up on when another is to be replaced, and counts for nothing.
#[test]
fn a_repair_waits_for_no_member_that_sleeps() {
    let mut bench = Bench::new(3);
    bench.rhythm = Rhythm::InTurns;
    bench.write(1);
    bench.flights.retain(|flight| matches!(flight, Flight::CatchUp(to, _) if *to != 2));
    let gone = err!(Unreachable, "dead");
    bench.channel.on_caught_up(2, Version::ZERO, &Err(gone.clone())).unwrap();
    bench.channel.fail(2, gone);
    bench.serve(0);
    assert!(bench.channel.needs_repair() && matches!(bench.channel.next(bench.rhythm), Step::None));
    bench.flights.clear();
    bench.channel.on_given_up(1);
    assert_eq!((bench.channel.peers[1].tries, &bench.channel.peers[1].failed), (0, &None));
    bench.start();
    assert!(!bench.channel.needs_repair() && bench.node_of(2) == 4);
    // It is asked again, and so is the new one.
    (1..3).for_each(|peer| bench.serve(peer));
    bench.channel.want_sync();
    bench.start();
    assert!(bench.channel.is_quiet() && bench.flights.is_empty());
}

#[test]
fn a_member_that_is_only_slow_keeps_its_place_where_there_is_no_other() {
    let mut bench = Bench::new(3);
    bench.write(1);
    bench.offers = false;
    let now = Moment::default();
    assert!(bench.channel.may_displace(now));
    bench.channel.displace(1, err!(Overloaded, "gray"), now);
    assert_eq!(bench.channel.only_displaced(), Some(2));
    bench.channel.want_sync();
    (0..100).for_each(|turn| bench.go_on(turn));
    assert!(!bench.channel.is_unsettled() && bench.node_of(1) == 2, "no write fails for it");
    let soon = now.after(DISPLACE_PAUSE);
    assert!(!bench.channel.may_displace(now) && bench.channel.may_displace(soon));
    bench.write(1);
    bench.offers = true;
    bench.channel.displace(1, err!(Overloaded, "gray"), soon);
    assert!(!bench.channel.may_displace(soon.after(DISPLACE_PAUSE)), "longer after an attempt in vain");
    bench.channel.want_sync();
    (0..100).for_each(|turn| bench.go_on(turn));
    assert_eq!((bench.channel.peers.len(), bench.node_of(1)), (3, 4));
}

#[test]
fn of_two_members_the_one_that_failed_is_replaced_first() {
    let mut bench = Bench::new(3);
    bench.channel.displace(0, err!(Overloaded, "gray"), Moment::default());
    bench.channel.fail(2, err!(Unreachable, "dead"));
    assert_eq!(bench.channel.only_displaced(), None);
    bench.start();
    assert_eq!((0..3).map(|peer| bench.node_of(peer)).collect::<Vec<_>>(), [1, 2, 4]);
}

#[test]
fn a_member_whose_disk_has_gone_back_in_time_is_replaced_at_once() {
    let mut bench = Bench::new(3);
    bench.write(1);
    bench.channel.want_sync();
    (0..20).for_each(|turn| bench.go_on(turn));
    let saved = bench.members[&2].clone();
    bench.write(2);
    bench.channel.want_sync();
    (0..20).for_each(|turn| bench.go_on(turn));
    assert!(!bench.channel.is_unsettled() && bench.members[&2].synced > saved.synced);
    // A process on a copy of its directory goes on in its place.
    bench.members.insert(2, Fake { boot: saved.boot + 1, ..saved });
    bench.write(1);
    let Some(Flight::Send(write, sync)) = bench.flights.pop() else { panic!("nothing is sent") };
    let results = [1, 2, 3].map(|node| bench.members.get_mut(&node).unwrap().receive(&write, sync));
    bench.channel.on_sent(write.version, &results).unwrap();
    let failed = bench.channel.peers.iter().map(|peer| peer.failed.as_ref().map(Error::kind)).collect::<Vec<_>>();
    assert_eq!(failed, [None, Some(ErrorKind::StaleVersion), None], "its first answer says what it has lost");
}
