//! Descriptors for clients of the host.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ebb_runtime::{File, LocalStream, Parcel, Runtime, Thing, Words};
use ebb_types::{ErrorKind, Result, Role};
use ebb_wire::pb::short_circuit_reply::Kind as Reply;
use ebb_wire::pb::short_circuit_request::Kind as Request;
use ebb_wire::{Message, pb};

use super::master::FakeMaster;
use super::rig::{Client, LONG, bytes, hop, in_world, options, registered, sums, version, virt_server};
use crate::BlockServer;

async fn send(stream: &mut LocalStream, kind: Request) {
    let bytes = pb::ShortCircuitRequest { kind: Some(kind) }.encode_to_vec().into();
    stream.write.send(Parcel { bytes, things: Vec::new() }).await.unwrap();
}

async fn receive(stream: &mut LocalStream) -> Option<(Reply, Option<Thing>)> {
    let mut parcel = stream.read.receive().await.unwrap()?;
    Some((pb::ShortCircuitReply::decode(parcel.bytes).unwrap().kind.unwrap(), parcel.things.pop()))
}

async fn ticket(client: &Client, hop: &pb::Hop) -> Result<pb::ShortCircuitTicketReply> {
    client.call(hop, &pb::ShortCircuitTicket {}).await
}

/// A connection that was let in, and its slots.
async fn enter(runtime: &Runtime, client: &Client, hop: &pb::Hop) -> (LocalStream, Words) {
    let given = ticket(client, hop).await.unwrap();
    let mut stream = runtime.connect_local(Path::new(&given.path)).await.unwrap();
    send(&mut stream, Request::Hello(pb::ShortCircuitHello { ticket: given.ticket })).await;
    let Some((Reply::Welcome(_), Some(Thing::Words(words)))) = receive(&mut stream).await else {
        panic!("not let in");
    };
    (stream, words)
}

async fn open(
    stream: &mut LocalStream,
    hop: &pb::Hop,
    request: u64,
    seq: u64,
) -> (pb::ShortCircuitOpened, Option<File>) {
    let volume = hop.member.unwrap().volume;
    send(stream, Request::Open(pb::ShortCircuitOpen { request, metablock: 1, volume, min_version: version(1, seq) }))
        .await;
    match receive(stream).await {
        Some((Reply::Opened(opened), Some(Thing::File(file)))) => (opened, Some(file)),
        Some((Reply::Opened(opened), None)) => (opened, None),
        other => panic!("{other:?}"),
    }
}

/// On one host: what a client of it sees from opening to the end of the server.
async fn a_descriptor_from_its_beginning_to_its_end(runtime: Runtime, client: Client, server: BlockServer) {
    let hop = hop(&server);
    let hops = std::slice::from_ref(&hop);
    let data = bytes(300_000, 1);
    client.write(hops, 1, 1, 0, &data, true, LONG).await;
    let (mut stream, words) = enter(&runtime, &client, &hop).await;
    let (opened, file) = open(&mut stream, &hop, 7, 1).await;
    let file = file.unwrap();
    assert_eq!((opened.request, opened.length, opened.version), (7, 300_000, version(1, 1)));
    assert_eq!(opened.checksums, sums(0, &data));
    assert_eq!(file.read_at(0, 400_000).await.unwrap(), data);
    assert!(file.write_at(0, vec![bytes(1, 0)]).await.is_err());
    let slot = opened.slot as usize * 3;
    assert_eq!([words.load(slot), words.load(slot + 1), words.load(slot + 2)], [opened.grant, 1, 1]);

    // The write is not acknowledged before the slot is cleared.
    client.write(hops, 1, 2, 5, &bytes(10, 2), false, LONG).await;
    assert_eq!(words.load(slot), 0);
    let Some((Reply::Revoked(revoked), None)) = receive(&mut stream).await else { panic!("not told") };
    assert_eq!((revoked.slot, revoked.grant), (opened.slot, opened.grant));
    send(&mut stream, Request::Close(pb::ShortCircuitClose { slot: opened.slot, grant: opened.grant })).await;

    let (again, file) = open(&mut stream, &hop, 8, 2).await;
    assert!(again.grant > opened.grant && again.version == version(1, 2));
    assert_eq!(file.unwrap().read_at(5, 10).await.unwrap(), bytes(10, 2));
    let (refused, none) = open(&mut stream, &hop, 9, 3).await;
    assert_eq!(refused.failure.unwrap().kind, ErrorKind::StaleVersion.raw());
    assert!(none.is_none());
    server.stop().await.unwrap();
    assert_eq!(words.load(again.slot as usize * 3), 0, "a server that stops clears its slots");
}

#[test]
fn a_descriptor_in_the_virtual_world() {
    in_world(1, |world, _, master| async move {
        let server = virt_server(&world, "h1", &master).await;
        let runtime = world.process_on("h1", "client").runtime();
        let client = Client::new(&runtime);
        a_descriptor_from_its_beginning_to_its_end(runtime, client, server).await;
    });
}

#[test]
fn a_descriptor_in_the_real_world() {
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let directory = tempfile::tempdir().unwrap();
    tokio.block_on(async {
        let runtime = Runtime::real();
        let master = FakeMaster::default().start(&runtime, "127.0.0.1:0").await;
        let mut options = options("h1", directory.path().join("h1"), &[master]);
        options.identity = ebb_rpc::testing::certified("h1", Role::Block);
        let server = BlockServer::start(runtime.clone(), options).await.unwrap();
        registered(&runtime, &server).await;
        let client = Client::new(&runtime);
        a_descriptor_from_its_beginning_to_its_end(runtime, client, server).await;
    });
}

#[test]
fn a_connection_without_a_ticket_of_its_own_is_refused() {
    in_world(2, |world, _, master| async move {
        let server = virt_server(&world, "h1", &master).await;
        let hop = hop(&server);
        let runtime = world.process_on("h1", "client").runtime();
        let client = Client::new(&runtime);
        let given = ticket(&client, &hop).await.unwrap();
        let path = PathBuf::from(&given.path);
        let knock = |hello: Request| {
            let (runtime, path) = (runtime.clone(), path.clone());
            async move {
                let mut stream = runtime.connect_local(&path).await.unwrap();
                send(&mut stream, hello).await;
                receive(&mut stream).await.is_some()
            }
        };
        let hello = |ticket: &[u8]| Request::Hello(pb::ShortCircuitHello { ticket: ticket.to_vec() });
        assert!(!knock(Request::Open(pb::ShortCircuitOpen::default())).await);
        assert!(!knock(hello(&[7; 16])).await);
        assert!(!knock(hello(b"short")).await);
        assert!(knock(hello(&given.ticket)).await);
        assert!(!knock(hello(&given.ticket)).await, "a ticket is good once");
        let old = ticket(&client, &hop).await.unwrap();
        runtime.sleep(Duration::from_secs(11)).await;
        assert!(!knock(hello(&old.ticket)).await, "and not for ever");
        // From another host the name leads nowhere.
        let elsewhere = world.process("h2").runtime();
        assert_eq!(elsewhere.connect_local(&path).await.unwrap_err().kind(), ErrorKind::Unreachable);
    });
}

#[test]
fn one_client_has_so_many_descriptors_and_no_more() {
    in_world(3, |world, _, master| async move {
        let server = virt_server(&world, "h1", &master).await;
        let hop = hop(&server);
        let runtime = world.process_on("h1", "client").runtime();
        let client = Client::new(&runtime);
        client.write(std::slice::from_ref(&hop), 1, 1, 0, &bytes(9, 1), true, LONG).await;
        let (mut stream, words) = enter(&runtime, &client, &hop).await;
        let most = words.len() as u64 / 3;
        for request in 0..most {
            assert!(open(&mut stream, &hop, request, 1).await.1.is_some());
        }
        let (refused, _) = open(&mut stream, &hop, most, 1).await;
        assert_eq!(refused.failure.unwrap().kind, ErrorKind::Overloaded.raw());
        send(&mut stream, Request::Close(pb::ShortCircuitClose { slot: 3, grant: 4 })).await;
        let (opened, _) = open(&mut stream, &hop, most + 1, 1).await;
        assert_eq!(opened.slot, 3);
        // Another client has its own.
        let (mut other, _) = enter(&runtime, &client, &hop).await;
        assert!(open(&mut other, &hop, 0, 1).await.1.is_some());
    });
}

/// A client that closes, or is frozen, may go on; one that was killed may not.
#[test]
fn the_master_learns_of_an_ended_client_and_of_no_other() {
    in_world(4, |world, state, master| async move {
        let server = virt_server(&world, "h1", &master).await;
        let hop = hop(&server);
        let processes = ["closes", "is frozen", "is killed", "says nothing"].map(|name| world.process_on("h1", name));
        let mut streams = Vec::new();
        for (session, process) in (1..).zip(&processes) {
            let runtime = process.runtime();
            let (mut stream, _) = enter(&runtime, &Client::new(&runtime), &hop).await;
            if session < 4 {
                send(&mut stream, Request::Session(pb::ShortCircuitSession { session })).await;
            }
            streams.push(stream);
        }
        world.sleep(Duration::from_millis(100)).await;
        drop(streams.remove(0));
        processes[1].freeze();
        world.sleep(Duration::from_secs(3)).await;
        assert!(state.0.lock().ended.is_empty());
        state.0.lock().deposed = true;
        processes[2].kill();
        processes[3].kill();
        drop(streams);
        world.sleep(Duration::from_secs(1)).await;
        state.0.lock().deposed = false;
        world.sleep(Duration::from_secs(1)).await;
        assert_eq!(state.0.lock().ended, [3], "told until a master has heard it");
    });
}
