//! The peers that are let in.

use std::time::Duration;

use ebb_runtime::Runtime;
use ebb_types::{ClusterId, ErrorKind};
use ebb_wire::{FrameHeader, FrameKind, HEADER_LEN, Message, pb};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::handshake;

/// Handshake between `client` and `server`, as both sides see its end.
async fn meet(
    runtime: &Runtime,
    client: Identity,
    server: Identity,
) -> (Result<crate::PeerInfo>, Result<crate::PeerInfo>) {
    let listener = runtime.listen("127.0.0.1:0").await.unwrap();
    let address = listener.address();
    let world = runtime.clone();
    let receiving = runtime.spawn("server", async move {
        let mut stream = listener.accept().await.unwrap();
        handshake::receive(&world, &mut stream, &server, &Counters::default(), |_| Ok(())).await.map(|(peer, ())| peer)
    });
    let mut stream = runtime.connect(&address).await.unwrap();
    let greeted = handshake::greet(runtime, &mut stream, &client, &Counters::default()).await;
    (greeted, receiving.join().await.unwrap())
}

async fn both_sides_learn_the_identity_of_the_other(runtime: Runtime) {
    let (server, client) = meet(&runtime, identity("h2", "mount"), identity("h1", "block")).await;
    let (server, client) = (server.unwrap(), client.unwrap());
    assert_eq!((server.host.as_str(), server.role.as_str()), ("h1", "block"));
    assert_eq!((client.host.as_str(), client.role.as_str()), ("h2", "mount"));
}

async fn refusals_are_clear_on_both_sides(runtime: Runtime) {
    let own = identity("h1", "block");
    let thief = Identity { secret: Secret::new([1; 32]), ..identity("h2", "mount") };
    let foreign = Identity { cluster: ClusterId::new(8), ..identity("h2", "mount") };
    for (client, words) in [(thief, ["different secrets", "secret file"]), (foreign, ["c8", "c7"])] {
        let (greeted, received) = meet(&runtime, client, own.clone()).await;
        for error in [greeted.unwrap_err(), received.unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
            assert!(words.iter().all(|word| error.detail().contains(word)), "{error}");
        }
    }
}

both!(both_sides_learn_the_identity_of_the_other);
both!(refusals_are_clear_on_both_sides);

async fn callers_hear_why(runtime: Runtime) {
    let site = serve(&runtime, ServerOptions::default()).await;
    let thief = Identity { secret: Secret::new([1; 32]), ..identity("h2", "mount") };
    let channel = Connector::new(runtime.clone(), thief, Counters::default()).channel(&site.address);
    let error = small_call(&channel, LONG).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorized);
    assert!(error.detail().contains("secret"), "{error}");
    small_call(&connector(&runtime, "h2").channel(&site.address), LONG).await.unwrap();
}

both!(callers_hear_why);

fn hello(message: &impl Message) -> Vec<u8> {
    let message = message.encode_to_vec();
    let message_len = message.len() as u32;
    let header =
        FrameHeader { kind: FrameKind::Hello, method: 0, request: 0, message_len, payload_len: 0, deadline_ms: 0 };
    [&header.encode()[..], &message].concat()
}

/// The server's answer to these bytes. Returns when the server closes the connection.
async fn answer_to(runtime: &Runtime, address: &str, bytes: &[u8]) -> Vec<u8> {
    let mut stream = runtime.connect(address).await.unwrap();
    stream.write.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read.read_to_end(&mut answer).await;
    answer
}

async fn another_protocol_is_refused_with_a_reason(runtime: Runtime) {
    let site = serve(&runtime, ServerOptions::default()).await;
    let newer =
        pb::ClientHello { protocol: 2, cluster: 7, host: "h2".into(), role: "mount".into(), nonce: vec![0; 32] };
    let answer = answer_to(&runtime, &site.address, &hello(&newer)).await;
    let failure = pb::Failure::decode(&answer[HEADER_LEN..]).unwrap();
    assert_eq!(failure.kind, ErrorKind::Unauthorized.raw());
    assert!(failure.detail.contains("same release"), "{}", failure.detail);
    // And a server of another release is refused by a client.
    let listener = runtime.listen("127.0.0.1:0").await.unwrap();
    let address = listener.address();
    runtime.spawn("newer server", async move {
        let mut stream = listener.accept().await.unwrap();
        let newer = pb::ServerHello { protocol: 2, cluster: 7, host: "h1".into(), ..Default::default() };
        stream.write.write_all(&hello(&newer)).await.unwrap();
        let _ = stream.read.read_u8().await;
    });
    let error = small_call(&connector(&runtime, "h2").channel(&address), LONG).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorized);
    assert!(error.detail().contains("same release"), "{error}");
}

both!(another_protocol_is_refused_with_a_reason);

/// A replayed exchange proves nothing: the server's nonce is new each time.
async fn replay_is_refused(runtime: Runtime) {
    let site = serve(&runtime, ServerOptions::default()).await;
    let nonce = vec![5; 32];
    let own = identity("h2", "mount");
    let first = pb::ClientHello { protocol: 1, cluster: 7, host: "h2".into(), role: "mount".into(), nonce };
    let mut recorded = None;
    for round in 0..2 {
        let mut stream = runtime.connect(&site.address).await.unwrap();
        stream.write.write_all(&hello(&first)).await.unwrap();
        let server: pb::ServerHello = read_hello(&mut stream.read).await;
        let proof = recorded.get_or_insert_with(|| {
            crate::proof::Transcript {
                protocol: 1,
                cluster: 7,
                client_host: "h2",
                client_role: "mount",
                client_nonce: &first.nonce,
                server_host: &server.host,
                server_role: &server.role,
                server_nonce: &server.nonce,
            }
            .prove(&own.secret, crate::proof::Side::Client)
        });
        stream.write.write_all(&hello(&pb::ClientProof { proof: proof.clone() })).await.unwrap();
        let mut header = [0; HEADER_LEN];
        stream.read.read_exact(&mut header).await.unwrap();
        let expected = if round == 0 { FrameKind::Hello } else { FrameKind::Failure };
        assert_eq!(FrameHeader::decode(&header).unwrap().kind, expected, "round {round}");
    }
}

async fn read_hello<M: Message + Default>(read: &mut ebb_runtime::ReadHalf) -> M {
    let mut header = [0; HEADER_LEN];
    read.read_exact(&mut header).await.unwrap();
    let mut body = vec![0; FrameHeader::decode(&header).unwrap().message_len as usize];
    read.read_exact(&mut body).await.unwrap();
    M::decode(&body[..]).unwrap()
}

both!(replay_is_refused);

/// Strangers that say nothing take no place of a peer's, and lose their connection in time.
async fn silent_strangers_lock_no_client_out(runtime: Runtime) {
    let options = ServerOptions {
        handshake_timeout: Duration::from_millis(300),
        handshakes_max: 4,
        connections_max: 2,
        ..Default::default()
    };
    let site = serve(&runtime, options).await;
    let mut strangers = Vec::new();
    for _ in 0..12 {
        strangers.push(runtime.connect(&site.address).await.unwrap());
    }
    small_call(&connector(&runtime, "h2").channel(&site.address), LONG).await.unwrap();
    for stranger in &mut strangers {
        let mut rest = Vec::new();
        let _ = stranger.read.read_to_end(&mut rest).await;
        assert_eq!(rest, b"", "a silent peer gets no answer");
    }
}

both!(silent_strangers_lock_no_client_out);

async fn connections_are_bounded(runtime: Runtime) {
    let site = serve(&runtime, ServerOptions { connections_max: 2, ..Default::default() }).await;
    let (first, second) = (connector(&runtime, "h2"), connector(&runtime, "h3"));
    small_call(&first.channel(&site.address), LONG).await.unwrap();
    small_call(&second.channel(&site.address), LONG).await.unwrap();
    let third = connector(&runtime, "h4").channel(&site.address);
    let refused = small_call(&third, LONG).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Overloaded, "{refused}");
    drop(first);
    let mut tries = 0;
    while small_call(&third, LONG).await.is_err() {
        tries += 1;
        assert!(tries < 200, "a place that was given back is not used");
        runtime.sleep(Duration::from_millis(20)).await;
    }
}

both!(connections_are_bounded);
