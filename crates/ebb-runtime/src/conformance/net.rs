//! Byte streams.

use std::io::IoSlice;
use std::time::Duration;

use bytes::Bytes;
use ebb_types::ErrorKind;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{Setup, on_both_worlds, pattern};
use crate::{OpenMode, Stream, Task};

on_both_worlds!(
    bytes_come_back_as_they_went,
    vectored_writes_keep_the_order_of_their_buffers,
    one_direction_can_end_before_the_other,
    dropping_the_writing_end_ends_the_stream,
    a_close_over_unread_bytes_ends_the_peers_reading,
    a_peer_that_has_closed_makes_writes_fail,
    files_go_out_as_they_are,
    a_file_that_is_too_short_is_an_error,
    a_writer_waits_for_a_slow_reader,
    an_address_has_one_listener,
    an_address_without_a_listener_is_unreachable,
    malformed_addresses_are_invalid,
    many_connections_are_kept_apart,
    a_dropped_accept_loses_no_connection,
);

/// A connection: the server's end and the client's.
async fn connected(setup: &Setup) -> (Stream, Stream) {
    let listener = setup.server.listen(&setup.address).await.unwrap();
    let client = setup.client.connect(&listener.address()).await.unwrap();
    (listener.accept().await.unwrap(), client)
}

/// Sends received bytes back, until the stream ends.
fn echo(setup: &Setup, mut stream: Stream) -> Task<()> {
    setup.server.spawn("echo", async move {
        let mut buffer = vec![0; 50_000];
        loop {
            let count = stream.read.read(&mut buffer).await.unwrap();
            if count == 0 {
                return;
            }
            stream.write.write_all(&buffer[..count]).await.unwrap();
        }
    })
}

async fn bytes_come_back_as_they_went(setup: Setup) {
    let (server, mut client) = connected(&setup).await;
    assert!(!server.peer.is_empty() && !client.peer.is_empty());
    let task = echo(&setup, server);
    let data = pattern(3_000_001);
    let sending = data.clone();
    let sender = setup.client.spawn("send", async move {
        client.write.write_all(&sending).await.unwrap();
        client.write.shutdown().await.unwrap();
    });
    let mut back = Vec::new();
    client.read.read_to_end(&mut back).await.unwrap();
    assert!(back == data, "{} bytes came back of {}", back.len(), data.len());
    sender.join().await.unwrap();
    task.join().await.unwrap();
}

async fn vectored_writes_keep_the_order_of_their_buffers(setup: Setup) {
    let (mut server, mut client) = connected(&setup).await;
    assert!(client.write.is_write_vectored());
    let data = pattern(10_000);
    let mut sent = 0;
    while sent < data.len() {
        let bufs: Vec<IoSlice<'_>> = data[sent..].chunks(777).map(IoSlice::new).collect();
        sent += client.write.write_vectored(&bufs).await.unwrap();
    }
    let mut got = vec![0; data.len()];
    server.read.read_exact(&mut got).await.unwrap();
    assert!(got == data);
}

async fn one_direction_can_end_before_the_other(setup: Setup) {
    let (mut server, mut client) = connected(&setup).await;
    client.write.write_all(b"question").await.unwrap();
    client.write.shutdown().await.unwrap();
    assert!(client.write.write_all(b"more").await.is_err());
    let mut got = Vec::new();
    server.read.read_to_end(&mut got).await.unwrap();
    assert_eq!(got, b"question");
    server.write.write_all(b"answer").await.unwrap();
    drop(server);
    let mut got = Vec::new();
    client.read.read_to_end(&mut got).await.unwrap();
    assert_eq!(got, b"answer");
}

async fn dropping_the_writing_end_ends_the_stream(setup: Setup) {
    let (mut server, client) = connected(&setup).await;
    let Stream { read: mut client_read, write, .. } = client;
    drop(write);
    assert_eq!(server.read.read(&mut [0; 8]).await.unwrap(), 0);
    server.write.write_all(b"still here").await.unwrap();
    let mut got = [0; 10];
    client_read.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"still here");
}

async fn a_close_over_unread_bytes_ends_the_peers_reading(setup: Setup) {
    let (mut server, mut client) = connected(&setup).await;
    client.write.write_all(&pattern(1000)).await.unwrap();
    server.read.read_exact(&mut [0; 10]).await.unwrap();
    drop(server);
    // An end or a reset, as the timing has it; nothing else.
    let mut got = Vec::new();
    if let Err(error) = client.read.read_to_end(&mut got).await {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
    assert!(got.is_empty());
}

async fn a_peer_that_has_closed_makes_writes_fail(setup: Setup) {
    let (server, mut client) = connected(&setup).await;
    drop(server);
    let data = pattern(100_000);
    let writing = async {
        while client.write.write_all(&data).await.is_ok() {
            setup.client.sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    };
    setup.client.timeout(Duration::from_secs(20), "a write to fail", writing).await.unwrap();
}

async fn files_go_out_as_they_are(setup: Setup) {
    let (mut server, mut client) = connected(&setup).await;
    let data = pattern(5_000_000);
    let file = setup.server.disk().open(&setup.directory.join("f"), OpenMode::CreateNew).await.unwrap();
    file.write_at(0, vec![data.clone()]).await.unwrap();
    let sender = setup.server.spawn("send", async move {
        server.write.write_all(b"head").await.unwrap();
        server.write.send_file(&file, 0, 5_000_000).await.unwrap();
        server.write.send_file(&file, 1_234_567, 54_321).await.unwrap();
        server.write.send_file(&file, 77, 0).await.unwrap();
        server.write.write_all(b"tail").await.unwrap();
    });
    let mut got = Vec::new();
    client.read.read_to_end(&mut got).await.unwrap();
    let want = [b"head", &data[..], &data[1_234_567..1_234_567 + 54_321], b"tail"].concat();
    assert!(got == want, "{} bytes came of {}", got.len(), want.len());
    sender.join().await.unwrap();
}

async fn a_file_that_is_too_short_is_an_error(setup: Setup) {
    let (mut server, client) = connected(&setup).await;
    let file = setup.server.disk().open(&setup.directory.join("f"), OpenMode::CreateNew).await.unwrap();
    file.write_at(0, vec![pattern(1000)]).await.unwrap();
    let error = server.write.send_file(&file, 500, 501).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    let error = server.write.send_file(&file, u64::MAX, 2).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    drop(client);
}

async fn a_writer_waits_for_a_slow_reader(setup: Setup) {
    let (mut server, mut client) = connected(&setup).await;
    let data = pattern(40 << 20);
    let sending = data.clone();
    let (report, sent) = tokio::sync::watch::channel(0);
    let sender = setup.client.spawn("send", async move {
        for piece in sending.chunks(100_000) {
            client.write.write_all(piece).await.unwrap();
            report.send_modify(|sent| *sent += piece.len());
        }
    });
    // Done when the writer has not moved for a while: its bytes are in bounded buffers, far from all.
    let mut before = usize::MAX;
    while before != *sent.borrow() {
        before = *sent.borrow();
        setup.server.sleep(Duration::from_millis(200)).await;
    }
    assert!(before > 0 && before < 24 << 20, "{before} bytes went without a reader");
    let mut got = Vec::new();
    server.read.read_to_end(&mut got).await.unwrap();
    assert!(got == data);
    sender.join().await.unwrap();
}

async fn an_address_has_one_listener(setup: Setup) {
    let listener = setup.server.listen(&setup.address).await.unwrap();
    let address = listener.address();
    let error = setup.server.listen(&address).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.detail().contains(&address), "{error}");
    drop(listener);
    setup.server.listen(&address).await.unwrap();
}

async fn an_address_without_a_listener_is_unreachable(setup: Setup) {
    let address = setup.server.listen(&setup.address).await.unwrap().address();
    let error = setup.client.connect(&address).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.detail().contains(&address), "{error}");
}

async fn malformed_addresses_are_invalid(setup: Setup) {
    for address in ["", "nonsense", "127.0.0.1", "127.0.0.1:", "127.0.0.1:70000"] {
        let error = setup.client.connect(address).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "connect {address:?}: {error}");
        let error = setup.client.listen(address).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "listen {address:?}: {error}");
    }
    // TEST-NET-1 (RFC 5737) belongs to no host.
    let error = setup.server.listen("192.0.2.1:0").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

async fn many_connections_are_kept_apart(setup: Setup) {
    let listener = setup.server.listen(&setup.address).await.unwrap();
    let address = listener.address();
    let server = setup.server.clone();
    setup.server.spawn("accept", async move {
        loop {
            let mut stream = listener.accept().await.unwrap();
            server.spawn("double", async move {
                let number = stream.read.read_u64().await.unwrap();
                stream.write.write_u64(number * 2).await.unwrap();
            });
        }
    });
    let mut calls = Vec::new();
    for number in 0..200 {
        let (client, address) = (setup.client.clone(), address.clone());
        calls.push(setup.client.spawn("call", async move {
            let mut stream = client.connect(&address).await.unwrap();
            stream.write.write_u64(number).await.unwrap();
            stream.read.read_u64().await.unwrap()
        }));
    }
    for (number, call) in calls.into_iter().enumerate() {
        assert_eq!(call.join().await.unwrap(), number as u64 * 2);
    }
}

async fn a_dropped_accept_loses_no_connection(setup: Setup) {
    let listener = setup.server.listen(&setup.address).await.unwrap();
    for _ in 0..3 {
        let waiting = setup.server.timeout(Duration::from_millis(5), "no caller", listener.accept()).await;
        assert_eq!(waiting.unwrap_err().kind(), ErrorKind::Timeout);
    }
    let mut client = setup.client.connect(&listener.address()).await.unwrap();
    let mut server = listener.accept().await.unwrap();
    client.write.write_all(&Bytes::from_static(b"x")).await.unwrap();
    assert_eq!(server.read.read_u8().await.unwrap(), b'x');
}
