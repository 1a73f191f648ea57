//! A sleeping client delays no other: it gives back its leases before its node sleeps.

use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Access, Client, EntryDetail, Handle, NewFile};
use ebb_power::{Duty, PolicyKind, wall_ms};
use ebb_runtime::virt::{World, WorldOptions};
use ebb_types::{Credentials, InodeId, NodeId, PlanVersion};

use crate::power::{PowerCluster, newest_plan};

const INTERVAL_MS: u64 = 40_000;
const ACTIVE_MS: u64 = 10_000;
const BLOCK: usize = 64 << 10;

async fn make(client: &Client, name: &str, letter: u8) -> Handle {
    let (root, access) = (Credentials::root(), Access::ReadWrite);
    let made = client.create(&root, NewFile::exclusive(InodeId::ROOT, name.as_bytes(), access)).await;
    let handle = made.unwrap().handle;
    write(client, handle, letter).await;
    handle
}

async fn write(client: &Client, handle: Handle, letter: u8) {
    client.write(handle, 0, Bytes::from(vec![letter; BLOCK])).await.unwrap();
}

async fn open(client: &Client, name: &str, access: Access) -> Handle {
    let found = client.resolve(&Credentials::root(), format!("/{name}").as_bytes()).await.unwrap();
    client.open(&Credentials::root(), found.inode, access).await.unwrap().0
}

async fn first(client: &Client, handle: Handle) -> u8 {
    client.read(handle, 0, BLOCK as u32).await.unwrap()[0]
}

async fn list(client: &Client) -> usize {
    client.read_dir(&Credentials::root(), InodeId::ROOT, None, 100, EntryDetail::Names).await.unwrap().entries.len()
}

/// One node of five sleeps for half a minute. A program there has listed a directory, reads a file and writes another,
/// all of them open. Goal: another client makes a name, overwrites the first and reads the second file while it sleeps.
#[test]
fn a_sleeping_client_holds_no_other_up() {
    World::run(51, WorldOptions::default(), |world| async move {
        let cluster = PowerCluster::start(&world, 5, PolicyKind::AlwaysOn, Duration::from_secs(2)).await.unwrap();
        let other = cluster.connect("other").await.unwrap();
        for name in ["read", "written"] {
            let handle = make(&other, name, b'a').await;
            other.fsync(handle).await.unwrap();
            other.close(handle).await;
        }
        let (sleeper, process) = cluster.connect_on(0, "sleeper").await.unwrap();

        let now_ms = || wall_ms(world.process("operator").runtime().wall());
        let reply = cluster.describe().await.unwrap();
        let mut plan = newest_plan(&reply).unwrap().unwrap();
        let node = NodeId::new(reply.nodes.iter().find(|node| node.host == process.host()).unwrap().id);
        plan.version = PlanVersion::new(plan.version.raw() + 1);
        plan.start_ms = now_ms() + 500;
        plan.interval_ms = INTERVAL_MS;
        // It is awake when the plan begins.
        let blink = Duty::Blink { start_ms: (plan.start_ms - 2_000) % INTERVAL_MS, active_ms: 2_000 + ACTIVE_MS };
        let duty = plan.nodes.get_mut(&node).unwrap();
        (duty.duty, duty.ready_ms) = (blink, 0);
        // It would go back to its own plan.
        cluster.kill_manager();
        cluster.publish(&plan).await.unwrap();
        world.sleep(Duration::from_secs(1)).await;

        let reads = open(&sleeper, "read", Access::Read).await;
        let writes = open(&sleeper, "written", Access::ReadWrite).await;
        assert_eq!((first(&sleeper, reads).await, list(&sleeper).await), (b'a', 2));
        write(&sleeper, writes, b'b').await;
        world.sleep(Duration::from_millis(ACTIVE_MS)).await;
        assert!(!plan.is_awake(node, now_ms()));

        let began = world.now();
        make(&other, "made", b'c').await;
        let named = world.now() - began;
        let overwrites = open(&other, "read", Access::ReadWrite).await;
        write(&other, overwrites, b'd').await;
        let leased = world.now() - began;
        let seen = open(&other, "written", Access::Read).await;
        assert_eq!(first(&other, seen).await, b'b', "the last write of the sleeper");
        let took = world.now() - began;
        assert!(took < Duration::from_secs(1), "a name {named:?}, a lease {leased:?}, all {took:?}");

        let wake = plan.next_wake_ms(node, now_ms()).unwrap() - now_ms();
        world.sleep(Duration::from_millis(wake + 500)).await;
        assert_eq!((first(&sleeper, reads).await, list(&sleeper).await), (b'd', 3), "it knows nothing that is old");
        write(&sleeper, writes, b'e').await;
        sleeper.fsync(writes).await.unwrap();
        assert_eq!(first(&other, seen).await, b'e');
        assert_eq!((sleeper.metrics().rests, sleeper.metrics().sessions_expired), (1, 0));
    });
}
