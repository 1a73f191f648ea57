//! Copies away from home: their places while a plan switches nodes off, and their way home.

use std::time::Duration;

use ebb_power::{Duty, NodePlan, OutOfReach, PolicyKind, PowerPlan};
use ebb_types::{NodeId, PlanVersion};
use ebb_wire::pb;
use pb::meta_op::Op;

use super::harness::{Cluster, DEADLINE, TestClient, unlink, with_cluster};

/// Publishes a plan that starts in a while, with these nodes off and all others on.
async fn plan(cluster: &Cluster, version: u64, off: &[u64], in_ms: u64) {
    plan_of(cluster, version, |node| if off.contains(&node) { Duty::Off } else { Duty::On }, in_ms).await;
}

/// Publishes a plan of these duties that starts in a while.
async fn plan_of(cluster: &Cluster, version: u64, duty: impl Fn(u64) -> Duty, in_ms: u64) {
    let now_ms = ebb_power::wall_ms(cluster.process.runtime().wall());
    let node = |node: u64| (NodeId::new(node), NodePlan { duty: duty(node), ready_ms: 0, wake_ms: 50, suspend_ms: 50 });
    let plan = PowerPlan {
        version: PlanVersion::new(version),
        policy: PolicyKind::Activation,
        start_ms: now_ms + in_ms,
        interval_ms: 10_000,
        guard_ms: 10,
        budget_mw: 1_000_000,
        nodes: (1..=cluster.fakes.len() as u64).map(node).collect(),
        stalled: Vec::new(),
        out_of_reach: OutOfReach::default(),
        why: "a test".into(),
    };
    cluster.channel().0.call(&pb::PublishPlan { plan: plan.encode() }, DEADLINE).await.unwrap();
}

async fn dataset(client: &TestClient, layout: &str, replicas: u32, primaries: u32) -> pb::Dataset {
    let dataset = pb::Dataset { path: "/d".into(), layout: layout.into(), replicas, primaries, ..Default::default() };
    let create = pb::meta_op::CreateDataset { dataset: Some(dataset), ..Default::default() };
    client.mutate(Op::CreateDataset(create)).await.unwrap().dataset.unwrap()
}

/// The question for a new member of a set, with `staying` left of it. No member's node is wanted.
fn replacement(
    client: &TestClient,
    attr: &pb::Attr,
    block: &pb::Metablock,
    staying: Vec<pb::Member>,
) -> pb::ChooseReplacement {
    pb::ChooseReplacement {
        session: client.session,
        inode: attr.inode,
        metablock: block.id,
        exclude_nodes: block.members.iter().map(|member| member.node).collect(),
        staying,
        ..Default::default()
    }
}

async fn describe(cluster: &Cluster, dataset: &pb::Dataset) -> pb::DescribeDatasetReply {
    cluster.channel().0.call(&pb::DescribeDataset { dataset: dataset.id }, DEADLINE).await.unwrap()
}

/// Acts as a power client that has woken all nodes by plan.
async fn watch_power(cluster: &Cluster) {
    let watch = pb::WatchPower { version: 0, wait_ms: 0, kept_ms: 3_600_000 };
    cluster.channel().0.call(&watch, DEADLINE).await.unwrap();
}

/// Goal: the power manager learns of a process that follows a plan unknown to this log, and of none if there is none.
#[test]
fn a_plan_that_the_log_does_not_know_is_reported() {
    with_cluster(34, 2, |cluster| async move {
        let watch = async |version| {
            let watch = pb::WatchPower { version, wait_ms: 0, kept_ms: 0 };
            cluster.channel().0.call(&watch, DEADLINE).await.unwrap();
            let ask = pb::DescribePower { nodes_only: true, ..Default::default() };
            cluster.channel().0.call(&ask, DEADLINE).await.unwrap()
        };
        plan(&cluster, 3, &[], 1_000).await;
        let reply = watch(3).await;
        assert_eq!((reply.followed, reply.hearing), (0, false));
        assert_eq!(watch(9).await.followed, 9);
        assert_eq!(watch(u64::MAX).await.followed, 9, "no history comes so far");
        plan(&cluster, 10, &[], 1_000).await;
        assert_eq!(watch(9).await.followed, 0, "it is followed by a newer one");
    });
}

/// Waits until every copy is at home, with a power client that is present all the time.
async fn until_home(cluster: &Cluster, dataset: &pb::Dataset) {
    for _ in 0..300 {
        watch_power(cluster).await;
        if describe(cluster, dataset).await.away.is_empty() {
            return;
        }
        cluster.world.sleep(Duration::from_millis(200)).await;
    }
    panic!("it does not come home: {:?}", describe(cluster, dataset).await.away);
}

fn assert_near(found: &pb::DescribeDatasetReply) {
    for (actual, target) in found.actual.iter().zip(&found.target) {
        assert!(actual.abs_diff(*target) <= 2, "{:?} against {:?}", found.actual, found.target);
    }
}

/// Goal: metablocks that are written under low power keep to the targets of full power. Method: half of a chain is off
/// while files are written; the master dies; all nodes are on again.
#[test]
fn blocks_written_while_homes_are_off_come_home_when_they_are_on() {
    with_cluster(81, 6, |mut cluster| async move {
        let client = cluster.client().await;
        let dataset = dataset(&client, "equal-work", 3, 2).await;
        let off = dataset.chain[3..].to_vec();
        plan(&cluster, 1, &off, 0).await;
        let mut files = Vec::new();
        for number in 0..40 {
            files.push(client.written_in(&cluster, dataset.root_inode, &format!("f{number}"), 1000).await);
        }
        for (_, block) in &files {
            assert!(block.members.iter().all(|member| !off.contains(&member.node)), "{:?}", block.members);
        }
        let found = describe(&cluster, &dataset).await;
        assert_near(&found);
        let away: u64 = found.away.iter().map(|away| away.metablocks).sum();
        assert!(away >= 40 && found.away.iter().all(|away| off.contains(&away.home)), "{:?}", found.away);
        assert_eq!(found.away.iter().map(|away| away.bytes).sum::<u64>(), away * 1000);
        assert_eq!(found.guests.iter().sum::<u64>(), away);
        let call = pb::DescribePower { nodes_only: true, ..Default::default() };
        let power = cluster.channel().0.call(&call, DEADLINE).await.unwrap();
        assert_eq!(power.away, found.away);

        cluster.crash_master().await;
        cluster.until("safe start", |status| status.safe_start).await;
        cluster.world.sleep(Duration::from_secs(20)).await;
        assert_eq!(describe(&cluster, &dataset).await.away, found.away, "homes are off");
        // A node that has not reported to this master is a home all the same.
        let client = cluster.client().await;
        files.push(client.written_in(&cluster, dataset.root_inode, "late", 1000).await);

        plan(&cluster, 2, &[], 0).await;
        until_home(&cluster, &dataset).await;
        let found = describe(&cluster, &dataset).await;
        assert_near(&found);
        assert_eq!((found.elsewhere, found.guests.iter().sum::<u64>()), (0, 0));
        cluster
            .until_seen("nothing is left of guests", || {
                cluster.fakes.iter().map(|fake| fake.held.lock().replicas.len()).sum::<usize>() == 41 * 3
            })
            .await;
        let checked = cluster.fsck().await;
        assert_eq!(checked, pb::FsckReply { metablocks: 41, ..Default::default() }, "{:?}", checked.findings);
    });
}

/// Goal: a master that starts under low power continues its work on the nodes that are on. Method: half of a chain is
/// off, without power. Files are written, and the master dies. A file is removed, and one of the nodes is on again.
#[test]
fn a_master_that_starts_while_nodes_are_off_does_not_wait_for_them() {
    with_cluster(85, 6, |mut cluster| async move {
        let client = cluster.client().await;
        let dataset = dataset(&client, "equal-work", 3, 2).await;
        let off = dataset.chain[3..].to_vec();
        plan(&cluster, 1, &off, 0).await;
        off.iter().for_each(|node| cluster.kill_fake(cluster.number(*node)));
        for number in 0..12 {
            client.written_in(&cluster, dataset.root_inode, &format!("f{number}"), 1000).await;
        }
        let found = describe(&cluster, &dataset).await;
        let homes: Vec<u64> = found.away.iter().map(|away| away.home).collect();
        assert_eq!(homes.len(), off.len(), "{homes:?}");

        cluster.crash_master().await;
        cluster.until("safe start", |status| status.safe_start).await;
        // Longer than a node may be missing that should be there.
        cluster.world.sleep(Duration::from_secs(40)).await;
        assert_eq!(describe(&cluster, &dataset).await.away, found.away);
        let status = cluster.status().await;
        assert_eq!((status.under_replicated, status.repaired), (0, 0));
        let client = cluster.client().await;
        let unlink = pb::meta_op::Unlink { parent: dataset.root_inode, name: "f0".into() };
        client.mutate(Op::Unlink(unlink)).await.unwrap();
        let held = || cluster.fakes.iter().map(|fake| fake.held.lock().replicas.len()).sum::<usize>();
        cluster.until_seen("the removed file's copies are gone", || held() == 11 * 3).await;

        plan(&cluster, 2, &off[1..], 0).await;
        cluster.start_fake(cluster.number(off[0])).await;
        for _ in 0..300 {
            if describe(&cluster, &dataset).await.away.iter().all(|away| away.home != off[0]) {
                break;
            }
            cluster.world.sleep(Duration::from_millis(200)).await;
        }
        let found = describe(&cluster, &dataset).await;
        assert!(found.away.iter().all(|away| off[1..].contains(&away.home)), "{:?}", found.away);
        assert_eq!(found.away.len(), off.len() - 1, "the others are still off");
        let status = cluster.status().await;
        assert!(status.safe_start && status.nodes.iter().filter(|node| off[1..].contains(&node.id)).all(unheard));
    });
}

fn unheard(node: &pb::Node) -> bool {
    node.state() == pb::NodeState::NodeUnknown
}

/// Goal: copies on nodes that are off are neither missed nor offered for removal. Method: checks of a file of which
/// first one copy sleeps, then all; the nodes have no power.
#[test]
fn a_check_does_not_miss_sleeping_replicas() {
    with_cluster(86, 5, |cluster| async move {
        let client = cluster.client().await;
        let (_, block) = client.written_file(&cluster, "f", 1000).await;
        let homes: Vec<u64> = block.members.iter().map(|member| member.node).collect();
        for (version, off, asleep) in [(1, &homes[..1], 0), (2, &homes[..], 1)] {
            plan(&cluster, version, off, 0).await;
            off.iter().for_each(|node| cluster.kill_fake(cluster.number(*node)));
            let checked = cluster.fsck().await;
            assert_eq!((checked.unseen, checked.asleep), (off.len() as u64, asleep), "{checked:?}");
            assert_eq!((checked.missing, checked.under_replicated), (0, 0), "{checked:?}");
            assert!(checked.lost.is_empty() && checked.findings.len() as u64 == asleep, "{checked:?}");
        }
    });
}

/// Goal: a guest replaces a member that is switched off. If the guest's host is switched off, another guest with the
/// same home replaces it, or it goes home before. Method: the requests of a holder, under one plan after the other.
#[test]
fn replacements_of_a_node_that_is_off_keep_the_home() {
    with_cluster(82, 5, |cluster| async move {
        let client = cluster.client().await;
        let dataset = dataset(&client, "equal-work", 2, 1).await;
        let reply = client.create_in(dataset.root_inode, "f").await.unwrap();
        let (attr, block) = (reply.attr.unwrap(), reply.metablocks[0].clone());
        let [primary, second] = block.members[..] else { panic!("{block:?}") };
        let choose = |staying: Vec<pb::Member>, exclude_nodes: Vec<u64>| pb::ChooseReplacement {
            exclude_nodes,
            ..replacement(&client, &attr, &block, staying)
        };
        plan(&cluster, 1, &[second.node], 0).await;
        let call = choose(vec![primary], vec![primary.node, second.node]);
        let guest = client.channel.call(&call, DEADLINE).await.unwrap().member.unwrap();
        assert_eq!(guest.home, second.node);
        let change = |generation: u64, members: Vec<pb::Member>| {
            Op::ChangeSet(pb::meta_op::ChangeSet {
                inode: attr.inode,
                epoch: attr.epoch,
                metablock: block.id,
                generation,
                members,
                version: None,
            })
        };
        // It is where it could go home from, and nowhere else.
        let other = pb::Member { home: primary.node, ..guest };
        client.mutate(change(block.generation, vec![primary, other])).await.unwrap_err();
        client.mutate(change(block.generation, vec![primary, guest])).await.unwrap();

        plan(&cluster, 2, &[second.node, guest.node], 0).await;
        let call = choose(vec![primary], vec![primary.node, guest.node]);
        let next = client.channel.call(&call, DEADLINE).await.unwrap().member.unwrap();
        assert_eq!((next.home, next.node != guest.node), (second.node, true));
        client.mutate(change(block.generation + 1, vec![primary, next])).await.unwrap();

        // With its home on, the replacement goes there, once the home's replica is found to be gone.
        plan(&cluster, 3, &[next.node], 0).await;
        cluster.world.sleep(Duration::from_secs(3)).await;
        let call = choose(vec![primary], vec![primary.node, next.node]);
        let back = client.channel.call(&call, DEADLINE).await.unwrap().member.unwrap();
        assert_eq!((back.node, back.home), (second.node, 0));
    });
}

/// Goal: a writer waits for no new member that sleeps, unless it has to. Method: of three members one is off; of the two
/// other nodes one sleeps for seconds, and the other serves, and then is off as well.
#[test]
fn a_new_member_serves_at_once_or_the_set_goes_on() {
    with_cluster(87, 5, |cluster| async move {
        let client = cluster.client().await;
        let dataset = dataset(&client, "random", 3, 0).await;
        let reply = client.create_in(dataset.root_inode, "f").await.unwrap();
        let (attr, block) = (reply.attr.unwrap(), reply.metablocks[0].clone());
        let [first, second, off] = block.members[..] else { panic!("{block:?}") };
        let is_member = |node: &u64| block.members.iter().any(|member| member.node == *node);
        let others: Vec<u64> = (1..=5).filter(|node| !is_member(node)).collect();
        let [sleeper, server] = others[..] else { panic!("{others:?}") };
        let choose = async |staying: Vec<pb::Member>, may_go_on: bool| {
            let call = pb::ChooseReplacement { may_go_on, ..replacement(&client, &attr, &block, staying) };
            let reply = client.channel.call(&call, DEADLINE).await.unwrap();
            (reply.member.map(|member| member.node), reply.go_on)
        };
        let duty = |node: u64, off: &[u64]| match node {
            node if off.contains(&node) => Duty::Off,
            node if node == sleeper => Duty::Blink { start_ms: 5_000, active_ms: 4_000 },
            _ => Duty::On,
        };
        plan_of(&cluster, 1, |node| duty(node, &[off.node]), 0).await;
        assert_eq!(choose(vec![first, second], true).await, (Some(server), false));
        plan_of(&cluster, 2, |node| duty(node, &[off.node, server]), 0).await;
        assert_eq!(choose(vec![first, second], true).await, (None, true), "two are enough for a write");
        assert_eq!(choose(vec![first, second], false).await, (Some(sleeper), false));
        assert_eq!(choose(vec![first], true).await, (Some(sleeper), false), "one is not");
    });
}

/// A second copy's place is filled within the run of second copies, not by another primary.
#[test]
fn a_failed_node_is_replaced_within_its_run() {
    with_cluster(85, 6, |cluster| async move {
        let client = cluster.client().await;
        let dataset = dataset(&client, "equal-work", 2, 2).await;
        for number in 0..6 {
            let reply = client.create_in(dataset.root_inode, &format!("f{number}")).await.unwrap();
            let (attr, block) = (reply.attr.unwrap(), reply.metablocks[0].clone());
            let [primary, _] = block.members[..] else { panic!("{block:?}") };
            let call = replacement(&client, &attr, &block, vec![primary]);
            let found = client.channel.call(&call, DEADLINE).await.unwrap().member.unwrap();
            assert!(dataset.chain[2..].contains(&found.node), "{found:?} of {:?}", dataset.chain);
        }
    });
}

#[test]
fn a_guest_whose_home_is_lost_becomes_a_member() {
    with_cluster(83, 5, |cluster| async move {
        let client = cluster.client().await;
        let dataset = dataset(&client, "equal-work", 2, 1).await;
        let off: Vec<u64> = dataset.chain[2..].to_vec();
        plan(&cluster, 1, &off, 0).await;
        for number in 0..12 {
            client.written_in(&cluster, dataset.root_inode, &format!("f{number}"), 1000).await;
        }
        let away = describe(&cluster, &dataset).await.away;
        let lost = away[0].home;
        cluster.kill_fake(cluster.number(lost));
        cluster.world.sleep(Duration::from_secs(40)).await;
        assert_eq!(describe(&cluster, &dataset).await.away, away, "who is off is not dead");
        plan(&cluster, 2, &[], 0).await;
        until_home(&cluster, &dataset).await;
        cluster.until("all copies", |status| status.under_replicated == 0).await;
        let found = describe(&cluster, &dataset).await;
        let at = found.chain.iter().position(|node| *node == lost).unwrap();
        assert_eq!((found.actual[at], found.actual.iter().sum::<u64>()), (0, 24));
    });
}

/// Goal: a set that lacks a copy gets it, even if all remaining nodes are its members or its guests' homes, and the
/// homes have replicas from before they were switched off. Method: guests replace two of three members while these are
/// off, and the third member dies when they are on again.
#[test]
fn guests_go_home_also_while_their_set_lacks_a_copy() {
    with_cluster(86, 5, |cluster| async move {
        let client = cluster.client().await;
        let dataset = dataset(&client, "equal-work", 3, 1).await;
        let (made, mut block) = client.written_in(&cluster, dataset.root_inode, "f", 1000).await;
        let attr = client.acquire(made.inode, pb::LeaseMode::LeaseWrite, true).await.unwrap().attr.unwrap();
        let first = block.members.clone();
        plan(&cluster, 1, &[first[1].node, first[2].node], 0).await;
        for off in &first[1..] {
            let staying: Vec<_> = block.members.iter().filter(|member| *member != off).copied().collect();
            let choose = replacement(&client, &attr, &block, staying.clone());
            let guest = client.channel.call(&choose, DEADLINE).await.unwrap().member.unwrap();
            assert_eq!(guest.home, off.node);
            let written = cluster.node(first[0].node).replica(block.id).unwrap();
            cluster.node(guest.node).put(block.id, written.version, 1000);
            let change = pb::meta_op::ChangeSet {
                inode: attr.inode,
                epoch: attr.epoch,
                metablock: block.id,
                generation: block.generation,
                members: staying.into_iter().chain([guest]).collect(),
                version: None,
            };
            block = client.mutate(Op::ChangeSet(change)).await.unwrap().metablocks.remove(0);
        }
        client.commit(&attr, vec![], 1000, true).await.unwrap();
        cluster.kill_fake(cluster.number(first[0].node));
        for _ in 0..40 {
            watch_power(&cluster).await;
            cluster.world.sleep(Duration::from_secs(1)).await;
        }
        let dead = cluster.status().await.nodes.into_iter().filter(|node| node.state() == pb::NodeState::NodeDead);
        assert_eq!(dead.map(|node| node.id).collect::<Vec<_>>(), [first[0].node]);
        plan(&cluster, 2, &[], 0).await;
        until_home(&cluster, &dataset).await;
        cluster.until("all copies", |status| status.under_replicated == 0).await;
        let members = cluster.client().await.map(attr.inode).await.remove(0).members;
        assert_eq!((members.len(), members.iter().filter(|member| member.is_guest()).count()), (3, 0), "{members:?}");
    });
}

/// Goal: a guest whose host is about to sleep goes home in time, but not to a home that is about to sleep too. Method:
/// announced plans.
#[test]
fn guests_go_home_before_their_hosts_are_switched_off() {
    with_cluster(84, 5, |cluster| async move {
        let client = cluster.client().await;
        let dataset = dataset(&client, "equal-work", 2, 1).await;
        let (hosts, homes) = (dataset.chain[1..2].to_vec(), dataset.chain[2..].to_vec());
        plan(&cluster, 1, &homes, 0).await;
        for number in 0..12 {
            client.written_in(&cluster, dataset.root_inode, &format!("f{number}"), 1000).await;
        }
        let before = describe(&cluster, &dataset).await;
        assert!(!before.away.is_empty());
        // Homes are on for a while. No guest goes to a home that is about to be off again.
        plan(&cluster, 2, &[], 0).await;
        plan(&cluster, 3, &homes, 15_000).await;
        cluster.world.sleep(Duration::from_secs(20)).await;
        assert_eq!(describe(&cluster, &dataset).await.away, before.away);
        // The hosts are to be off, and the homes on: they go within the time that they have.
        plan(&cluster, 4, &[], 0).await;
        plan(&cluster, 5, &hosts, 5_000).await;
        cluster.world.sleep(Duration::from_millis(4_500)).await;
        let after = describe(&cluster, &dataset).await;
        assert_eq!((after.away.len(), after.guests.iter().sum::<u64>()), (0, 0), "{:?}", after.away);
    });
}

#[test]
fn the_blocks_of_a_node_are_counted_and_a_file_named_on_request() {
    with_cluster(41, 3, |cluster| async move {
        let client = cluster.client().await;
        client.written_file(&cluster, "gone", 1000).await;
        let (_, block) = client.written_file(&cluster, "f", 1000).await;
        client.mutate(unlink("gone")).await.unwrap();
        let (channel, _) = cluster.channel();
        let holdings = channel.call(&pb::DescribePower::default(), DEADLINE).await.unwrap().holdings;
        let mut nodes: Vec<u64> = block.members.iter().map(|member| member.node).collect();
        nodes.sort_unstable();
        let lies_so = |held: &&pb::PowerHolding| held.nodes == nodes;
        let held = holdings.iter().find(lies_so).unwrap();
        assert!(held.copies == nodes.len() as u64 && held.example.is_empty(), "{held:?}");
        let ask = pb::DescribePower { named: vec![held.clone()], ..Default::default() };
        let holdings = channel.call(&ask, DEADLINE).await.unwrap().holdings;
        assert_eq!(holdings.iter().find(lies_so).unwrap().example, "/f", "a file that is gone is no example");
        let many = pb::DescribePower { named: vec![held.clone(); 17], ..Default::default() };
        assert_eq!(channel.call(&many, DEADLINE).await.unwrap_err().kind(), ebb_types::ErrorKind::Invalid);
    });
}
