//! Connections within a host, and the things that are passed over them.

use bytes::Bytes;
use ebb_types::ErrorKind;

use super::{Setup, on_both_worlds, pattern};
use crate::local::PARCEL_BYTES_MAX;
use crate::{LocalListener, LocalStream, OpenMode, Parcel, Thing};

on_both_worlds!(
    parcels_come_as_they_went,
    a_passed_file_outlives_its_name_and_cannot_be_written,
    passed_memory_is_the_same_memory,
    things_stay_with_their_parcels,
    the_other_ends_going_is_seen,
    a_peer_that_has_closed_has_not_ended,
    an_address_without_a_listener_is_unreachable,
    a_name_is_taken_over_from_the_dead,
    too_large_a_parcel_is_refused,
);

async fn connected(setup: &Setup) -> (LocalListener, LocalStream, LocalStream) {
    // Longer than a socket's address.
    let directory = setup.directory.join("a-name-that-is-too-long".repeat(8));
    setup.server.disk().create_dir_all(&directory).await.unwrap();
    let path = directory.join("socket");
    let listener = setup.server.listen_local(&path).await.unwrap();
    let client = setup.neighbour.connect_local(&path).await.unwrap();
    let server = listener.accept().await.unwrap();
    (listener, server, client)
}

fn message(bytes: impl Into<Bytes>) -> Parcel {
    Parcel { bytes: bytes.into(), things: Vec::new() }
}

async fn parcels_come_as_they_went(setup: Setup) {
    let (_listener, mut server, mut client) = connected(&setup).await;
    let sent = [Bytes::new(), pattern(3), pattern(PARCEL_BYTES_MAX), pattern(70_000)];
    let parcels = sent.clone();
    let sending = setup.neighbour.spawn("send", async move {
        for bytes in parcels {
            client.write.send(message(bytes)).await.unwrap();
        }
    });
    for bytes in sent {
        assert_eq!(server.read.receive().await.unwrap().unwrap().bytes, bytes);
    }
    assert!(server.read.receive().await.unwrap().is_none());
    sending.join().await.unwrap();
}

async fn a_passed_file_outlives_its_name_and_cannot_be_written(setup: Setup) {
    let (_listener, mut server, mut client) = connected(&setup).await;
    let (disk, path) = (setup.server.disk(), setup.directory.join("file"));
    let file = disk.open(&path, OpenMode::CreateNew).await.unwrap();
    file.write_at(0, vec![pattern(100_000)]).await.unwrap();
    server.write.send(Parcel { bytes: Bytes::new(), things: vec![Thing::File(file.clone())] }).await.unwrap();
    let mut things = client.read.receive().await.unwrap().unwrap().things;
    let Some(Thing::File(passed)) = things.pop() else { panic!("a file was sent") };
    disk.remove_file(&path).await.unwrap();
    assert_eq!(passed.read_at(7, 90_000).await.unwrap(), pattern(100_000).slice(7..90_007));
    assert!(passed.write_at(0, vec![pattern(1)]).await.is_err());
    assert!(passed.set_len(0).await.is_err());
    file.write_at(0, vec![Bytes::from_static(b"new")]).await.unwrap();
    assert_eq!(passed.read_at(0, 3).await.unwrap(), &b"new"[..]);
}

async fn passed_memory_is_the_same_memory(setup: Setup) {
    let (_listener, mut server, mut client) = connected(&setup).await;
    let words = setup.server.make_words(1000).unwrap();
    words.store(999, 5);
    server.write.send(Parcel { bytes: Bytes::new(), things: vec![Thing::Words(words.clone())] }).await.unwrap();
    let mut things = client.read.receive().await.unwrap().unwrap().things;
    let Some(Thing::Words(seen)) = things.pop() else { panic!("memory was sent") };
    assert_eq!((seen.len(), seen.load(0), seen.load(999)), (1000, 0, 5));
    words.store(0, u64::MAX);
    assert_eq!(seen.load(0), u64::MAX);
}

async fn things_stay_with_their_parcels(setup: Setup) {
    let (_listener, mut server, mut client) = connected(&setup).await;
    for number in 0..20u64 {
        let words = setup.server.make_words(1).unwrap();
        words.store(0, number);
        let things = if number % 3 == 0 { Vec::new() } else { vec![Thing::Words(words); (number % 3) as usize] };
        server.write.send(Parcel { bytes: pattern(number as usize * 100), things }).await.unwrap();
    }
    for number in 0..20u64 {
        let parcel = client.read.receive().await.unwrap().unwrap();
        assert_eq!((parcel.bytes.len() as u64, parcel.things.len() as u64), (number * 100, number % 3));
        for thing in parcel.things {
            let Thing::Words(words) = thing else { panic!("memory was sent") };
            assert_eq!(words.load(0), number);
        }
    }
}

async fn the_other_ends_going_is_seen(setup: Setup) {
    let (_listener, mut server, client) = connected(&setup).await;
    drop(client);
    assert!(server.read.receive().await.unwrap().is_none());
    assert_eq!(server.write.send(message(pattern(1))).await.unwrap_err().kind(), ErrorKind::Disconnected);
}

async fn a_peer_that_has_closed_has_not_ended(setup: Setup) {
    let (_listener, mut server, client) = connected(&setup).await;
    drop(client);
    assert!(server.read.receive().await.unwrap().is_none());
    let ended = setup.server.timeout(std::time::Duration::from_millis(50), "the end of a process", async {
        server.peer.ended().await;
        Ok(())
    });
    assert_eq!(ended.await.unwrap_err().kind(), ErrorKind::Timeout);
}

async fn an_address_without_a_listener_is_unreachable(setup: Setup) {
    let path = setup.directory.join("socket");
    assert_eq!(setup.neighbour.connect_local(&path).await.unwrap_err().kind(), ErrorKind::Unreachable);
    drop(setup.server.listen_local(&path).await.unwrap());
    assert_eq!(setup.neighbour.connect_local(&path).await.unwrap_err().kind(), ErrorKind::Unreachable);
}

async fn a_name_is_taken_over_from_the_dead(setup: Setup) {
    let path = setup.directory.join("socket");
    drop(setup.server.listen_local(&path).await.unwrap());
    let listener = setup.server.listen_local(&path).await.unwrap();
    let mut client = setup.neighbour.connect_local(&path).await.unwrap();
    client.write.send(message(pattern(9))).await.unwrap();
    let mut server = listener.accept().await.unwrap();
    assert_eq!(server.read.receive().await.unwrap().unwrap().bytes, pattern(9));
}

async fn too_large_a_parcel_is_refused(setup: Setup) {
    let (_listener, _server, mut client) = connected(&setup).await;
    let error = client.write.send(message(pattern(PARCEL_BYTES_MAX + 1))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}
