//! The peers that are let in.

use std::time::Duration;

use ebb_identity::{Revocation, Revocations};
use ebb_runtime::Runtime;
use ebb_types::{Credentials, ErrorKind, WallTime};
use ebb_wire::{FrameHeader, FrameKind, HEADER_LEN, Message, pb};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::{PROTOCOL, handshake};

const HOUR: Duration = Duration::from_secs(3600);

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
        let stream = listener.accept().await.unwrap();
        handshake::receive(&world, stream, &server, &Counters::default(), |_| Ok(())).await.map(|(peer, ..)| peer)
    });
    let stream = runtime.connect(&address).await.unwrap();
    let greeted = handshake::greet(runtime, stream, &client, &Counters::default()).await.map(|(peer, _)| peer);
    (greeted, receiving.join().await.unwrap())
}

async fn both_sides_learn_the_identity_of_the_other(runtime: Runtime) {
    let (server, client) = meet(&runtime, identity("h2", Role::Mount), identity("h1", Role::Block)).await;
    let (server, client) = (server.unwrap(), client.unwrap());
    assert_eq!((server.host.as_str(), server.role), ("h1", Role::Block));
    assert_eq!((client.host.as_str(), client.role, client.user()), ("h2", Role::Mount, None));
    let user = Credentials { uid: 1000, gid: 100, groups: vec![4] };
    let subject = Subject { cluster: CLUSTER, role: Role::Program, host: None, user: Some(user.clone()) };
    let program = certified_by(authority(), &subject, Wire::Encrypted);
    let (_, client) = meet(&runtime, program, identity("h1", Role::Block)).await;
    let client = client.unwrap();
    assert_eq!((client.host.as_str(), client.user()), ("anywhere", Some(&user)), "a program may run on any host");
}

both!(both_sides_learn_the_identity_of_the_other);

/// A process that declares something else than its certificate says.
fn posing(certified: Identity, host: &str, role: Role) -> Identity {
    Identity { host: HostName::new(host), role, ..certified }
}

/// A certificate of the tests' authority that begins at the given time, in nanoseconds from now.
fn certified_at(offset: i64, subject: &Subject) -> Identity {
    let real = Runtime::real();
    let key = authority().issue(subject, WallTime(real.wall().0 + offset), HOUR).unwrap();
    Identity::certified(Holder::new(real, key, Wire::Encrypted).unwrap(), HostName::new("h2")).unwrap()
}

async fn strangers_and_impostors_are_refused_with_a_reason(runtime: Runtime) {
    let mount = Subject::process(CLUSTER, Role::Mount, HostName::new("h2"));
    let hour = i64::try_from(HOUR.as_nanos()).unwrap();
    // The same name, another authority: whoever can make certificates can make this one.
    let forger = Authority::create(CLUSTER, Runtime::real().wall()).unwrap();
    let forged = certified_by(&forger, &mount, Wire::Encrypted);
    let other = ClusterId::new(8);
    let foreign = Authority::create(other, Runtime::real().wall()).unwrap();
    let foreign = certified_by(&foreign, &Subject { cluster: other, ..mount.clone() }, Wire::Encrypted);
    let cases = [
        ("forged", forged.clone(), "authority"),
        ("foreign", foreign, "authority"),
        ("another host", posing(identity("h2", Role::Mount), "h3", Role::Mount), "is certified as mount on h2"),
        ("another role", posing(identity("h2", Role::Mount), "h2", Role::Master), "is certified as mount on h2"),
        ("expired", certified_at(-3 * hour, &mount), "clock"),
        ("not begun", certified_at(3 * hour, &mount), "clock"),
        ("in the clear", certified_by(authority(), &mount, Wire::Plain), "wire"),
    ];
    for (case, client, words) in cases {
        let (greeted, received) = meet(&runtime, client, identity("h1", Role::Block)).await;
        let (greeted, received) = (greeted.unwrap_err(), received.unwrap_err());
        assert_eq!(received.kind(), ErrorKind::Unauthorized, "{case}: {received}");
        assert_eq!(greeted.kind(), ErrorKind::Unauthorized, "{case}: {greeted}");
        assert!(greeted.detail().contains(words) || received.detail().contains(words), "{case}: {greeted}; {received}");
    }
    // And a server that is none is not believed.
    let (greeted, _) = meet(&runtime, identity("h2", Role::Mount), forged).await;
    assert!(greeted.unwrap_err().detail().contains("another cluster"));
}

both!(strangers_and_impostors_are_refused_with_a_reason);

async fn callers_hear_why(runtime: Runtime) {
    let site = serve(&runtime, ServerOptions::default()).await;
    let impostor = posing(identity("h2", Role::Mount), "h3", Role::Mount);
    let channel = Connector::new(runtime.clone(), impostor, Counters::default()).channel(&site.address);
    let error = small_call(&channel, LONG).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorized);
    assert!(error.detail().contains("certified"), "{error}");
    small_call(&connector(&runtime, "h2").channel(&site.address), LONG).await.unwrap();
}

both!(callers_hear_why);

/// Every call, by every role: only those of the table reach the service. The caller's own check is passed by.
async fn calls_are_for_the_roles_that_the_table_names(runtime: Runtime) {
    let site = serve(&runtime, ServerOptions::default()).await;
    for role in Role::ALL {
        let caller = identity("h2", role);
        let stream = runtime.connect(&site.address).await.unwrap();
        let (_, mut stream) = handshake::greet(&runtime, stream, &caller, &Counters::default()).await.unwrap();
        // The service panics at one of them, and answers another when it has waited.
        for method in Method::ALL.iter().filter(|method| **method != Method::ShortCircuitTicket) {
            let (kind, reply) = exchange(&mut stream, *method).await;
            let refusal = (kind == FrameKind::Failure).then(|| pb::Failure::decode(&reply[..]).unwrap());
            let is_refused = refusal.is_some_and(|refusal| refusal.kind == ErrorKind::Unauthorized.raw());
            assert_eq!(is_refused, !method.callers().has(role), "{method:?} by a {role}");
        }
    }
}

both!(calls_are_for_the_roles_that_the_table_names);

/// Sends an empty request and reads its answer.
async fn exchange(stream: &mut ebb_runtime::Stream, method: Method) -> (FrameKind, Vec<u8>) {
    let header = FrameHeader {
        kind: FrameKind::Request,
        method: method as u16,
        request: 1,
        message_len: 0,
        payload_len: 0,
        deadline_ms: 1000,
    };
    stream.write.write_all(&header.encode()).await.unwrap();
    stream.write.flush().await.unwrap();
    let mut header = [0; HEADER_LEN];
    stream.read.read_exact(&mut header).await.unwrap();
    let header = FrameHeader::decode(&header).unwrap();
    let mut reply = vec![0; (header.message_len + header.payload_len) as usize];
    stream.read.read_exact(&mut reply).await.unwrap();
    (header.kind, reply)
}

/// A caller that was led to a process of another role tells it nothing.
async fn a_call_is_not_made_to_another_role(runtime: Runtime) {
    let site = serve(&runtime, ServerOptions::default()).await;
    let channel = connector(&runtime, "h2").channel(&site.address);
    let error = channel.call(&pb::OpenSession::default(), LONG).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorized);
    assert!(error.detail().contains("is a block, and OpenSession is for a master"), "{error}");
    assert_eq!(site.echo.answered.load(Ordering::SeqCst), 0);
}

both!(a_call_is_not_made_to_another_role);

fn holder(identity: &Identity) -> &Holder {
    let Proof::Certificate(holder) = &identity.proof else { panic!("certified") };
    holder
}

/// What was revoked loses its standing connections, too; what is certified anew is believed again.
async fn a_revocation_ends_connections(runtime: Runtime) {
    let (client, server) = (identity("h2", Role::Mount), identity("h1", Role::Block));
    let server_holder = holder(&server).clone();
    let echo = Echo::new(&runtime);
    let site = serve_with(&runtime, ServerOptions::default(), server, echo.clone(), echo).await;
    let channel = Connector::new(runtime.clone(), client.clone(), Counters::default()).channel(&site.address);
    small_call(&channel, LONG).await.unwrap();
    let before = WallTime(Runtime::real().wall().0 + 1_000_000_000);
    let revocation = Revocation { host: Some(client.host.clone()), before, ..Default::default() };
    server_holder.learn(Revocations { version: 2, list: vec![revocation] });
    for channel in
        [&channel, &Connector::new(runtime.clone(), client.clone(), Counters::default()).channel(&site.address)]
    {
        let error = small_call(channel, LONG).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
        assert!(error.detail().contains("revoked"), "{error}");
    }
    // An older list brings nothing back.
    server_holder.learn(Revocations { version: 1, list: Vec::new() });
    small_call(&channel, LONG).await.unwrap_err();
    small_call(&connector(&runtime, "h3").channel(&site.address), LONG).await.unwrap();
    let later = WallTime(before.0 + 1_000_000_000);
    let subject = holder(&client).subject().clone();
    holder(&client).renew(authority().issue(&subject, later, HOUR).unwrap()).unwrap();
    eventually_ok(&runtime, &channel).await;
}

both!(a_revocation_ends_connections);

/// A lane rests after a refusal.
async fn eventually_ok(runtime: &Runtime, channel: &Channel) {
    let mut tries = 0;
    while let Err(error) = small_call(channel, LONG).await {
        tries += 1;
        assert!(tries < 200, "{error}");
        runtime.sleep(Duration::from_millis(20)).await;
    }
}

/// Where the operator chose plain bytes, identities are proved all the same.
async fn plain_bytes_are_proved_first(runtime: Runtime) {
    let plain = |host: &str, role| {
        certified_by(authority(), &Subject::process(CLUSTER, role, HostName::new(host)), Wire::Plain)
    };
    let echo = Echo::new(&runtime);
    let site = serve_with(&runtime, ServerOptions::default(), plain("h1", Role::Block), echo.clone(), echo).await;
    let call = |identity| {
        let channel = Connector::new(runtime.clone(), identity, Counters::default()).channel(&site.address);
        async move {
            let block = pattern(0, 300_000);
            channel.call_with(&pb::ReadReplica::default(), vec![block], LONG).await.map(|reply| reply.payload)
        }
    };
    assert_eq!(call(plain("h2", Role::Mount)).await.unwrap(), pattern(0, 300_000));
    let error = call(posing(plain("h2", Role::Mount), "h3", Role::Mount)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
}

both!(plain_bytes_are_proved_first);

fn hello(message: &impl Message) -> Vec<u8> {
    let message = message.encode_to_vec();
    let message_len = message.len() as u32;
    let header =
        FrameHeader { kind: FrameKind::Hello, method: 0, request: 0, message_len, payload_len: 0, deadline_ms: 0 };
    [&header.encode()[..], &message].concat()
}

/// The server's answer to these bytes after TLS. Returns when the server closes the connection.
async fn answer_to(runtime: &Runtime, address: &str, bytes: &[u8]) -> Vec<u8> {
    let stream = runtime.connect(address).await.unwrap();
    let (own, joined) = (identity("h2", Role::Mount), crate::tls::Joined::new(stream.read, stream.write));
    let mut secured = crate::tls::connect(joined, address, holder(&own)).await.unwrap();
    secured.stream.write_all(bytes).await.unwrap();
    secured.stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    let _ = secured.stream.read_to_end(&mut answer).await;
    answer
}

async fn another_protocol_is_refused_with_a_reason(runtime: Runtime) {
    let site = serve(&runtime, ServerOptions::default()).await;
    let newer = pb::ClientHello {
        protocol: PROTOCOL + 2,
        oldest_protocol: PROTOCOL + 1,
        cluster: 7,
        host: "h2".into(),
        role: "mount".into(),
    };
    let answer = answer_to(&runtime, &site.address, &hello(&newer)).await;
    let failure = pb::Failure::decode(&answer[HEADER_LEN..]).unwrap();
    assert_eq!(failure.kind, ErrorKind::Unauthorized.raw());
    assert!(failure.detail.contains("at most one apart"), "{}", failure.detail);
    // One that is one release ahead is answered in the protocol that both speak.
    let next = pb::ClientHello { protocol: PROTOCOL + 1, oldest_protocol: PROTOCOL, ..newer };
    let answer = answer_to(&runtime, &site.address, &hello(&next)).await;
    assert_eq!(pb::ServerHello::decode(&answer[HEADER_LEN..]).unwrap().protocol, PROTOCOL);
    // And a server of another release is refused by a client.
    let listener = runtime.listen("127.0.0.1:0").await.unwrap();
    let address = listener.address();
    runtime.spawn("newer server", async move {
        let stream = listener.accept().await.unwrap();
        let own = identity("h1", Role::Block);
        let joined = crate::tls::Joined::new(stream.read, stream.write);
        let mut secured = crate::tls::accept(joined, &stream.peer, holder(&own)).await.unwrap();
        let newer = pb::ServerHello { protocol: PROTOCOL + 1, cluster: 7, host: "h1".into(), role: "block".into() };
        secured.stream.write_all(&hello(&newer)).await.unwrap();
        secured.stream.flush().await.unwrap();
        let _ = secured.stream.read_u8().await;
    });
    let error = small_call(&connector(&runtime, "h2").channel(&address), LONG).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorized);
    assert!(error.detail().contains("at most one apart"), "{error}");
}

both!(another_protocol_is_refused_with_a_reason);

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
