//! Two masters at once, on copies of one directory: the copy is started on another host while the first one runs on.

use std::collections::BTreeMap;
use std::time::Duration;

use ebb_block::{BlockOptions, BlockServer};
use ebb_client::{Client, ClientOptions};
use ebb_master::Master;
use ebb_rpc::{Connector, Counters};
use ebb_runtime::SeededBug;
use ebb_runtime::virt::{Dice, Process, World, WorldOptions};
use ebb_types::{ErrorKind, HostName, RackName, Result, Role};
use ebb_wire::pb;

use super::lineage::{PATIENCE, PAUSE, read, write};
use crate::cluster::identity;
use crate::faults::kind::BLOCK_DIR;
use crate::faults::master_disk::MASTER_DIR;

/// Longer than a silent node counts as alive, and than a session.
const APART: Duration = Duration::from_secs(50);
/// In this time peers that meet have spoken: a registration is tried again after two seconds at most.
const MEETING: Duration = Duration::from_secs(12);
const NODES: usize = 6;

/// How block servers and clients come to one master each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Parted {
    /// They know both addresses, and the network lets them reach one.
    ByNetwork,
    /// They know one address each, and reach all.
    ByAddress,
}

/// The processes that come to the other master in the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Meeting {
    /// A block server of the second one comes to the first.
    NodeAtFirst,
    /// A block server of the first one comes to the second.
    NodeAtSecond,
    /// All block servers are started again, and know both.
    AllNodes,
}

/// One side: a master, and those that reach it.
struct Side {
    master: Process,
    nodes: Vec<Process>,
    client: &'static str,
}

struct Scene {
    world: World,
    sides: [Side; 2],
}

impl Scene {
    fn address(&self, side: usize) -> String {
        format!("{}:7000", self.sides[side].master.ip())
    }

    /// The masters that those of a side know, their own first.
    fn known(&self, side: usize, parted: Parted) -> Vec<String> {
        match parted {
            Parted::ByNetwork => vec![self.address(0), self.address(1)],
            Parted::ByAddress => vec![self.address(side)],
        }
    }

    async fn start_master(&self, side: usize) {
        let process = &self.sides[side].master;
        let runtime = if process.is_alive() { process.runtime() } else { process.restart() };
        let options = ebb_master::Options::new(MASTER_DIR.into(), self.address(side), identity("master", Role::Master));
        let starting = runtime.clone();
        runtime.spawn("main", async move {
            let master = Master::start(starting, options).await.expect("a copy of a good log is good");
            // It serves until its process ends.
            master.failed().await.expect("its log goes on");
        });
    }

    fn start_node(&self, node: &Process, masters: Vec<String>) {
        let runtime = node.restart();
        let mut options = BlockOptions::new(BLOCK_DIR.into(), identity(node.host(), Role::Block), masters);
        options.listen = format!("{}:7100", node.ip());
        // One without a rack is refused.
        options.rack = RackName::new("r1");
        runtime.clone().spawn("main", async move {
            let _server = BlockServer::start(runtime, options).await.expect("a good volume opens");
            // It serves until its process ends.
            std::future::pending::<()>().await;
        });
    }

    /// The work of a client of a side on a host of its own, and its result.
    async fn on_side<F: Future<Output = Result<T>> + Send + 'static, T: Send + 'static>(
        &self,
        side: usize,
        work: impl FnOnce(Client) -> F + Send + 'static,
    ) -> Result<T> {
        let process = self.world.process(self.sides[side].client);
        let (runtime, host) = (process.restart(), process.host().to_owned());
        let masters = vec![self.address(side)];
        let inner = runtime.clone();
        let task = runtime.spawn("program", async move {
            let work = async {
                let connector = Connector::new(inner.clone(), identity(&host, Role::Operator), Counters::default());
                let options = ClientOptions::new(masters, HostName::new(&host), "virtual");
                work(Client::connect(inner.clone(), connector, options).await?).await
            };
            inner.timeout(PATIENCE, "a program's work", work).await
        });
        let done = task.join().await?;
        process.kill();
        done
    }

    async fn status(&self, side: usize) -> pb::ClusterStatusReply {
        let runtime = self.world.process("operator").runtime();
        let connector = Connector::new(runtime, identity("operator", Role::Operator), Counters::default());
        connector.channel(&self.address(side)).call(&pb::ClusterStatus {}, PATIENCE).await.unwrap()
    }

    fn set_cut(&self, is_cut: bool) {
        let hosts = |side: &Side| {
            let nodes = side.nodes.iter().map(|node| node.host().to_owned());
            nodes.chain([side.master.host().to_owned(), side.client.to_owned()]).collect::<Vec<_>>()
        };
        for one in hosts(&self.sides[0]) {
            for other in hosts(&self.sides[1]) {
                for (from, to) in [(&one, &other), (&other, &one)] {
                    if is_cut { self.world.partition_one_way(from, to) } else { self.world.mend_one_way(from, to) }
                }
            }
        }
    }
}

/// The result of a run.
struct Outcome {
    status: [pb::ClusterStatusReply; 2],
    /// By side, the files whose writes were acknowledged there, and how their reads end there afterwards.
    kept: [BTreeMap<String, Result<u8>>; 2],
    /// Acknowledged writes before the two meet.
    acknowledged: usize,
}

/// One cluster, then two masters with a half of the block servers each, writes on both sides, and then they meet.
fn run(seed: u64, parted: Parted, meeting: Meeting, bug: Option<SeededBug>) -> Outcome {
    World::run(seed, WorldOptions { bug, ..WorldOptions::default() }, |world| async move {
        let mut dice = world.dice("two masters");
        let nodes: Vec<Process> = (1..=NODES).map(|number| world.process(&format!("h{number}"))).collect();
        let (left, right) = nodes.split_at(NODES / 2);
        let side =
            |master, nodes: &[Process], client| Side { master: world.process(master), nodes: nodes.to_vec(), client };
        let sides = [side("master", left, "one"), side("second", right, "two")];
        let scene = Scene { world: world.clone(), sides };

        scene.start_master(0).await;
        nodes.iter().for_each(|node| scene.start_node(node, vec![scene.address(0)]));
        world.sleep(PAUSE).await;
        scene.on_side(0, |client| async move { write(&client, "f", b'a').await }).await.expect("all is well");
        world.sleep(PAUSE).await;
        let copy = scene.sides[0].master.power_cut();
        part(&scene, parted, &mut dice).await;
        scene.sides[1].master.kill();
        scene.sides[1].master.restore_disk(&copy, |_| true);
        scene.start_master(1).await;
        world.sleep(APART).await;

        // Both serve: neither can know better yet.
        let mut letters = [BTreeMap::new(), BTreeMap::new()];
        for round in 0..3 {
            for (side, written) in letters.iter_mut().enumerate() {
                let (name, letter) = (format!("s{side}r{round}"), b'A' + dice.below(26) as u8);
                let at = name.clone();
                if scene.on_side(side, move |client| async move { write(&client, &at, letter).await }).await.is_ok() {
                    written.insert(name, letter);
                }
            }
        }
        let acknowledged = letters.iter().map(BTreeMap::len).sum();
        meet(&scene, meeting).await;

        let mut kept = [BTreeMap::new(), BTreeMap::new()];
        for (side, written) in letters.iter().enumerate() {
            for (name, letter) in written {
                let at = name.clone();
                let seen = scene.on_side(side, move |client| async move { read(&client, &at).await }).await;
                assert!(seen.as_ref().is_err() || seen == Ok(*letter), "seed {seed}: {name}: {seen:?}, not {letter}");
                kept[side].insert(name.clone(), seen);
            }
        }
        Outcome { status: [scene.status(0).await, scene.status(1).await], kept, acknowledged }
    })
}

/// The block servers of the second side get there.
async fn part(scene: &Scene, parted: Parted, dice: &mut Dice) {
    if parted == Parted::ByNetwork {
        scene.set_cut(true);
    }
    if dice.coin() {
        scene.sides[0].master.kill();
        scene.start_master(0).await;
    }
    for (side, one) in scene.sides.iter().enumerate() {
        one.nodes.iter().for_each(|node| scene.start_node(node, scene.known(side, parted)));
    }
}

async fn meet(scene: &Scene, meeting: Meeting) {
    scene.set_cut(false);
    let (first, second) = (scene.address(0), scene.address(1));
    match meeting {
        Meeting::NodeAtFirst => scene.start_node(&scene.sides[1].nodes[0], vec![first]),
        Meeting::NodeAtSecond => scene.start_node(&scene.sides[0].nodes[0], vec![second]),
        Meeting::AllNodes => {
            let all = scene.sides.iter().flat_map(|side| &side.nodes);
            all.for_each(|node| scene.start_node(node, vec![first.clone(), second.clone()]));
        }
    }
    scene.world.sleep(MEETING).await;
}

const CASES: [(Parted, Meeting); 6] = [
    (Parted::ByNetwork, Meeting::NodeAtFirst),
    (Parted::ByNetwork, Meeting::NodeAtSecond),
    (Parted::ByNetwork, Meeting::AllNodes),
    (Parted::ByAddress, Meeting::NodeAtFirst),
    (Parted::ByAddress, Meeting::NodeAtSecond),
    (Parted::ByAddress, Meeting::AllNodes),
];

/// The violations of an outcome.
fn check(outcome: &Outcome) -> Vec<String> {
    let mut wrong = Vec::new();
    if outcome.status.iter().all(|status| status.serving && !status.refused) {
        wrong.push("both masters serve after they have met".to_owned());
    }
    for (status, kept) in outcome.status.iter().zip(&outcome.kept) {
        for (name, seen) in kept {
            let is_refused_aloud =
                status.refused && seen.as_ref().is_err_and(|error| error.kind() == ErrorKind::WentBack);
            if seen.is_err() && !is_refused_aloud {
                wrong.push(format!(
                    "{name} was acknowledged, and is lost without a refusal: {seen:?}, {}",
                    status.standing
                ));
            }
        }
    }
    wrong
}

/// Goal: of two masters that go on from copies of one log at most one serves once a block server of one has spoken to the
/// other. Nothing that was acknowledged is lost, unless its master refuses to serve.
#[test]
fn of_two_masters_on_copies_of_a_log_one_serves_once_they_have_met() {
    for (seed, (parted, meeting)) in (0..).zip(CASES) {
        let outcome = run(seed, parted, meeting, None);
        assert_eq!(check(&outcome), Vec::<String>::new(), "seed {seed}, {parted:?}, {meeting:?}");
        assert_eq!(outcome.acknowledged, 6, "seed {seed}, {parted:?}: both sides wrote before they met");
        let refused: Vec<bool> = outcome.status.iter().map(|status| status.refused).collect();
        match meeting {
            Meeting::NodeAtFirst => assert_eq!(refused, [true, false], "seed {seed}, {parted:?}"),
            Meeting::NodeAtSecond => assert_eq!(refused, [false, true], "seed {seed}, {parted:?}"),
            Meeting::AllNodes => assert!(refused.contains(&true), "seed {seed}, {parted:?}"),
        }
        let named = outcome
            .status
            .iter()
            .filter(|status| status.refused)
            .all(|status| status.standing.contains("another master"));
        assert!(named, "seed {seed}: {:?}", outcome.status.map(|status| status.standing));
    }
}

#[test]
fn two_masters_that_both_go_on_are_found() {
    let outcome = run(0, Parted::ByNetwork, Meeting::NodeAtFirst, Some(SeededBug::OldMasterServes));
    assert!(!check(&outcome).is_empty(), "no check finds it");
}
