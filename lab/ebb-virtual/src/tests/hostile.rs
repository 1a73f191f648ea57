//! A peer that holds the cluster's secret, and makes calls that no Ebb process makes.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Access, NewFile};
use ebb_fuzz::dice::Dice;
use ebb_fuzz::mutate;
use ebb_power::PolicyKind;
use ebb_rpc::{Connector, Counters};
use ebb_runtime::virt::{World, WorldOptions};
use ebb_types::{Credentials, InodeId, Role};
use ebb_wire::{Call, Message, Method, pb};

use crate::cluster::identity;
use crate::power::PowerCluster;

/// Calls of each kind to each address.
const TRIES: usize = 60;
/// A harmful call harms at once, or leaves something behind for the next.
const PATIENCE: Duration = Duration::from_millis(50);

/// Numbers and messages that mean something somewhere: small ids, versions, lists of them.
fn rich() -> Vec<u8> {
    let version = Some(pb::Version { epoch: 1, seq: 1 });
    let write = pb::WriteReplica {
        metablock: 1,
        volume: 1,
        incarnation: 1,
        version,
        offset: 100,
        length: 3,
        checksums: vec![7],
        ..Default::default()
    };
    let sync = pb::SyncReplica { metablock: 1, volume: 1, incarnation: 1, version };
    let lists = pb::SyncReplicas { replicas: vec![sync; 2], pipeline: Vec::new() };
    [write.encode_to_vec(), lists.encode_to_vec()].concat()
}

/// Processes of every role whose keys were stolen.
struct Enemy {
    connectors: BTreeMap<Role, Connector>,
    addresses: Vec<(Role, String)>,
    dice: Dice,
    /// How many of each call.
    sent: BTreeMap<Method, usize>,
}

impl Enemy {
    /// Sends changed calls like this one.
    async fn send<C: Call>(&mut self, like: C) {
        let (sample, rich) = (like.encode_to_vec(), rich());
        let callers: Vec<Role> = C::METHOD.callers().iter().collect();
        let serve = |(role, _): &&(Role, String)| C::METHOD.servers().has(*role);
        let addresses: Vec<String> = self.addresses.iter().filter(serve).map(|(_, address)| address.clone()).collect();
        if addresses.is_empty() {
            // No process of this cluster answers it.
            return;
        }
        for try_number in 0..TRIES {
            let mut bytes = sample.clone();
            for _ in 0..=self.dice.below(4) {
                bytes = mutate::message(&bytes, &rich, &mut self.dice);
            }
            let Ok(call) = C::decode(&bytes[..]) else { continue };
            let address = &addresses[try_number % addresses.len()];
            let connector = &self.connectors[&callers[try_number % callers.len()]];
            let payload = if self.dice.one_in(3) { vec![Bytes::from(vec![1; self.dice.below(9)])] } else { Vec::new() };
            // Refused, answered, or late: all the same to an enemy.
            let _ = connector.channel(address).call_with(&call, payload, PATIENCE).await;
            *self.sent.entry(C::METHOD).or_default() += 1;
        }
    }
}

/// How many seeds are tried; more with this variable.
const SEEDS: &str = "EBB_HOSTILE_SEEDS";

/// Goal: no call makes a service panic, with any content; a panic of any task ends the world, and this test. Method:
/// calls of every kind, real ones changed field by field, to every service of a cluster that has a file.
#[test]
fn services_survive_well_formed_calls_that_mean_harm() {
    let seeds = std::env::var(SEEDS).map_or(4, |text| text.parse().expect("a number of seeds"));
    for seed in 0..seeds {
        World::run(seed, WorldOptions::default(), |world| async move {
            let cluster = PowerCluster::start(&world, 3, PolicyKind::AlwaysOn, Duration::from_secs(2)).await.unwrap();
            let client = cluster.connect("friend").await.unwrap();
            let root = Credentials::root();
            let made = client.create(&root, NewFile::exclusive(InodeId::ROOT, b"f", Access::ReadWrite)).await.unwrap();
            client.write(made.handle, 0, Bytes::from(vec![5; 100_000])).await.unwrap();
            client.fsync(made.handle).await.unwrap();
            let status = cluster.cluster_status().await.unwrap();
            let blocks = status.nodes.iter().map(|node| (Role::Block, node.address.clone()));
            let others = [
                (Role::Master, cluster.master_address()),
                (Role::Proxy, cluster.proxy_address()),
                (Role::PowerManager, cluster.manager_address()),
            ];
            let runtime = world.process("enemy").runtime();
            // On the hosts of those whose sessions and nodes there are.
            let stolen = |role| {
                let host = if role == Role::Block { &*status.nodes[0].host } else { "friend" };
                Connector::new(runtime.clone(), identity(host, role), Counters::default())
            };
            let mut enemy = Enemy {
                connectors: Role::ALL.into_iter().map(|role| (role, stolen(role))).collect(),
                addresses: blocks.chain(others).collect(),
                dice: Dice::of_case("enemy", seed, 0),
                sent: BTreeMap::new(),
            };
            call_everything(&mut enemy).await;
            let serves = |method: &Method| enemy.addresses.iter().any(|(role, _)| method.servers().has(*role));
            for method in Method::ALL.iter().filter(|method| serves(method)) {
                let sent = enemy.sent.get(method).copied().unwrap_or(0);
                assert!(sent > TRIES / 8, "{sent} calls of {method:?} decode: that shows little");
            }
            world.sleep(Duration::from_secs(5)).await;
            // The calls may have done a good deal of harm to the data; the processes must still run.
            cluster.cluster_status().await.unwrap();
            cluster.status().await.unwrap();
        });
    }
}

async fn call_everything(enemy: &mut Enemy) {
    let version = Some(pb::Version { epoch: 1, seq: 1 });
    let name = pb::ReplicaName { metablock: 1, volume: 1, incarnation: 1 };
    enemy
        .send(pb::WriteReplica { metablock: 1, volume: 1, incarnation: 1, version, length: 3, ..Default::default() })
        .await;
    enemy.send(pb::ReadReplica { metablock: 1, volume: 1, length: 100, ..Default::default() }).await;
    enemy.send(pb::SeekReplica { metablock: 1, volume: 1, ..Default::default() }).await;
    enemy.send(pb::SyncReplicas::decode(&rich()[..]).unwrap_or_default()).await;
    enemy.send(pb::PromiseEpoch { epoch: 1, replicas: vec![name] }).await;
    enemy.send(pb::PullReplica { metablock: 1, volume: 1, epoch: 1, at: version, ..Default::default() }).await;
    enemy.send(pb::StampReplica { metablock: 1, volume: 1, epoch: 1, base: version, ..Default::default() }).await;
    enemy.send(pb::DescribeReplicas { replicas: vec![name] }).await;
    enemy.send(pb::DeleteReplicas::default()).await;
    enemy.send(pb::LogWrites { inode: 2, epoch: 1, ..Default::default() }).await;
    enemy.send(pb::ReadLog { inode: 2, epoch: 1, ..Default::default() }).await;
    enemy.send(pb::LogWrites { inode: 2, epoch: 1, pass_on: true, ..Default::default() }).await;
    let ticket = Some(pb::Ticket { session: 1, request: 1 });
    let named = pb::WriteReplica { metablock: 1, length: 1 << 40, staged: ticket, ..Default::default() };
    enemy.send(pb::LogWrites { inode: 2, epoch: 1, writes: vec![named], ..Default::default() }).await;
    enemy.send(pb::RebuildReplica { raid_set: 1, ..Default::default() }).await;
    enemy.send(pb::EncodeSet { raid_set: 1, ..Default::default() }).await;
    enemy.send(pb::VerifySet { raid_set: 1, ..Default::default() }).await;
    enemy.send(pb::RaidStatus::default()).await;
    enemy.send(pb::DescribeRaidSets { inode: 1, ..Default::default() }).await;
    enemy.send(pb::RaidWork { inode: 1, ..Default::default() }).await;
    enemy.send(pb::FeedReplica { inode: 2, metablock: 1, volume: 1, ..Default::default() }).await;
    enemy.send(pb::Scrub::default()).await;
    enemy.send(pb::Rest::default()).await;
    enemy.send(pb::MetaRequest { session: 1, request: 5, ..Default::default() }).await;
    enemy.send(pb::OpenSession::default()).await;
    enemy.send(pb::Poll::default()).await;
    enemy.send(pb::Reclaim::default()).await;
    enemy.send(pb::Acquire::default()).await;
    enemy.send(pb::Forget::default()).await;
    enemy.send(pb::Release::default()).await;
    enemy.send(pb::ChooseReplacement::default()).await;
    enemy.send(pb::ReportReplica::default()).await;
    enemy.send(pb::RegisterProxy::default()).await;
    enemy.send(pb::VouchSessions::default()).await;
    enemy.send(pb::Locate::default()).await;
    enemy.send(pb::DescribeDataset::default()).await;
    enemy.send(pb::ExplainCopies { what: Some(pb::explain_copies::What::Inode(2)) }).await;
    enemy.send(pb::RegisterNode::default()).await;
    enemy.send(pb::ReplicaReport::default()).await;
    enemy.send(pb::Heartbeat::default()).await;
    enemy.send(pb::SessionEnded::default()).await;
    enemy.send(pb::PublishPlan::default()).await;
    enemy.send(pb::WatchPower::default()).await;
    enemy.send(pb::JudgeLogs::default()).await;
    enemy.send(pb::ReadLogged { inode: 2, metablock: 1, page_bytes: u64::MAX, ..Default::default() }).await;
    enemy.send(pb::JoinShared::default()).await;
    enemy.send(pb::SharedOp::default()).await;
    enemy.send(pb::RelayCall::default()).await;
    let source = Some(pb::Member { node: 1, volume: 1, incarnation: 1, ..Default::default() });
    enemy.send(pb::FetchReplica { metablock: 1, source, at: version, length: 9, patience_ms: 9, taken: false }).await;
    enemy.send(pb::SetPower::default()).await;
    enemy.send(pb::FollowSource::default()).await;
    enemy.send(pb::SetPolicy::default()).await;
    enemy.send(pb::DrainNode::default()).await;
    enemy.send(pb::RemoveNode::default()).await;
    enemy.send(pb::CloseSession::default()).await;
    enemy.send(pb::PutStaged::default()).await;
    enemy.send(pb::ReadStaged::default()).await;
    enemy.send(pb::DropStaged::default()).await;
    enemy.send(pb::ShortCircuitTicket::default()).await;
    enemy.send(pb::RaftMessage::default()).await;
    enemy.send(pb::InviteHost { roles: vec!["block".to_owned()], lifetime_s: 60, ..Default::default() }).await;
    enemy.send(pb::JoinCluster { host: "h1".to_owned(), ..Default::default() }).await;
    enemy.send(pb::RenewIdentity::default()).await;
    let revocation = Some(pb::Revocation { role: "mount".to_owned(), ..Default::default() });
    enemy.send(pb::RevokeIdentities { revocation }).await;
    enemy.send(pb::DescribeTrust::default()).await;
    enemy.send(pb::Announce { address: "h1:1".to_owned(), trust: 1 }).await;
    enemy.send(pb::RaiseVersion { version: 2, force: true }).await;
    enemy.send(pb::CallBack { address: "h1:1".to_owned() }).await;
    enemy.send(pb::ClusterStatus::default()).await;
    enemy.send(pb::DescribePower::default()).await;
    enemy.send(pb::PowerStatus::default()).await;
    enemy.send(pb::NodesPower::default()).await;
    enemy.send(pb::CountWords::default()).await;
    enemy.send(pb::Counters::default()).await;
    enemy.send(pb::Fsck::default()).await;
}
