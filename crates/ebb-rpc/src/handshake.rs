//! Mutual proof before the first request.
//!
//! ```text
//! client                                         server
//!   | ClientHello {protocol, cluster, host, role, nonce} |
//!   |--------------------------------------------------->|
//!   |  ServerHello {.., nonce, proof as server}          |   or Failure: other protocol, other cluster
//!   |<---------------------------------------------------|
//!   |  ClientProof {proof as client}                     |   or Failure: the server has another secret
//!   |--------------------------------------------------->|
//!   |  Welcome                                           |   or Failure: the client has another secret; full
//!   |<---------------------------------------------------|
//! ```
//! Frames are read one by one into a buffer of [`HANDSHAKE_LEN_MAX`] bytes, never past their end. A side that refuses
//! gives its reason, so both sides can inform their operator. The caller bounds the time.

use ebb_runtime::{Runtime, Stream};
use ebb_types::{Error, ErrorKind, HostName, Result, bail, err};
use ebb_wire::frame::HANDSHAKE_LEN_MAX;
use ebb_wire::{FrameHeader, FrameKind, HEADER_LEN, Message, pb};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::counters::Link;
use crate::proof::{NONCE_LEN, Side, Transcript};
use crate::{Counters, Identity, PeerInfo};

/// Version of the protocol that this build speaks.
pub const PROTOCOL: u32 = 1;

/// Longest declared host or role, in bytes.
const NAME_LEN_MAX: usize = 255;

/// Proves this process to the server at the other end of `stream` and the server to this process.
pub(crate) async fn greet(
    runtime: &Runtime,
    stream: &mut Stream,
    identity: &Identity,
    counters: &Counters,
) -> Result<PeerInfo> {
    let mut wire = Wire::new(stream);
    let outcome = greet_on(&mut wire, runtime, identity).await;
    wire.count_bytes(counters, identity, outcome)
}

/// Makes the client at the other end of `stream` prove itself, and proves this process to it. `admit` has the last
/// word on a client that did.
pub(crate) async fn receive<T: Send>(
    runtime: &Runtime,
    stream: &mut Stream,
    identity: &Identity,
    counters: &Counters,
    admit: impl FnOnce(&PeerInfo) -> Result<T> + Send,
) -> Result<(PeerInfo, T)> {
    let mut wire = Wire::new(stream);
    let mut admitted = None;
    let outcome =
        receive_on(&mut wire, runtime, identity, |peer| admit(peer).map(|token| admitted = Some(token))).await;
    let peer = wire.count_bytes(counters, identity, outcome)?;
    Ok((peer, admitted.expect("a client is welcomed after it was admitted")))
}

async fn greet_on(wire: &mut Wire<'_>, runtime: &Runtime, identity: &Identity) -> Result<PeerInfo> {
    let nonce = nonce(runtime);
    wire.send(&pb::ClientHello {
        protocol: PROTOCOL,
        cluster: identity.cluster.raw(),
        host: identity.host.as_str().to_owned(),
        role: identity.role.clone(),
        nonce: nonce.clone(),
    })
    .await?;
    let hello: pb::ServerHello = wire.receive().await?;
    check_claim(wire.peer(), identity, hello.protocol, hello.cluster, &hello.host, &hello.role, &hello.nonce)?;
    let transcript = Transcript {
        protocol: PROTOCOL,
        cluster: identity.cluster.raw(),
        client_host: identity.host.as_str(),
        client_role: &identity.role,
        client_nonce: &nonce,
        server_host: &hello.host,
        server_role: &hello.role,
        server_nonce: &hello.nonce,
    };
    if !transcript.holds(&identity.secret, Side::Server, &hello.proof) {
        let refusal = wrong_secret(identity);
        wire.refuse(&refusal).await;
        return Err(refusal.context(wire.peer()));
    }
    wire.send(&pb::ClientProof { proof: transcript.prove(&identity.secret, Side::Client) }).await?;
    let _: pb::Welcome = wire.receive().await?;
    Ok(PeerInfo { host: HostName::new(hello.host), role: hello.role, address: wire.peer().to_owned() })
}

async fn receive_on(
    wire: &mut Wire<'_>,
    runtime: &Runtime,
    identity: &Identity,
    admit: impl FnOnce(&PeerInfo) -> Result<()> + Send,
) -> Result<PeerInfo> {
    let hello: pb::ClientHello = wire.receive().await?;
    if let Err(refusal) =
        check_claim(wire.peer(), identity, hello.protocol, hello.cluster, &hello.host, &hello.role, &hello.nonce)
    {
        wire.refuse(&refusal_for_client(&refusal, identity, &hello)).await;
        return Err(refusal);
    }
    let nonce = nonce(runtime);
    let transcript = Transcript {
        protocol: PROTOCOL,
        cluster: identity.cluster.raw(),
        client_host: &hello.host,
        client_role: &hello.role,
        client_nonce: &hello.nonce,
        server_host: identity.host.as_str(),
        server_role: &identity.role,
        server_nonce: &nonce,
    };
    wire.send(&pb::ServerHello {
        protocol: PROTOCOL,
        cluster: identity.cluster.raw(),
        host: identity.host.as_str().to_owned(),
        role: identity.role.clone(),
        nonce: nonce.clone(),
        proof: transcript.prove(&identity.secret, Side::Server),
    })
    .await?;
    let answer: pb::ClientProof = wire.receive().await?;
    if !transcript.holds(&identity.secret, Side::Client, &answer.proof) {
        let refusal = wrong_secret(identity);
        wire.refuse(&refusal).await;
        return Err(refusal.context(wire.peer()));
    }
    let peer = PeerInfo { host: HostName::new(hello.host), role: hello.role, address: wire.peer().to_owned() };
    if let Err(refusal) = admit(&peer) {
        wire.refuse(&refusal).await;
        return Err(refusal.context(wire.peer()));
    }
    wire.send(&pb::Welcome {}).await?;
    Ok(peer)
}

fn nonce(runtime: &Runtime) -> Vec<u8> {
    let mut nonce = vec![0; NONCE_LEN];
    runtime.fill_random(&mut nonce);
    nonce
}

fn check_claim(
    peer: &str,
    identity: &Identity,
    protocol: u32,
    cluster: u64,
    host: &str,
    role: &str,
    nonce: &[u8],
) -> Result<()> {
    if protocol != PROTOCOL {
        bail!(
            Unauthorized,
            "{peer} speaks protocol {protocol}, this process {PROTOCOL}: run the same release of ebb on both"
        );
    }
    if cluster != identity.cluster.raw() {
        bail!(
            Unauthorized,
            "{peer} belongs to cluster c{cluster}, this process to {}: check the address and the cluster directory",
            identity.cluster
        );
    }
    if nonce.len() != NONCE_LEN || host.is_empty() || host.len() > NAME_LEN_MAX || role.len() > NAME_LEN_MAX {
        bail!(Protocol, "{peer} sent a malformed hello (nonce of {} bytes, host {host:?})", nonce.len());
    }
    Ok(())
}

/// The refusal as the client reads it: "this process" is the server there.
fn refusal_for_client(refusal: &Error, identity: &Identity, hello: &pb::ClientHello) -> Error {
    if hello.protocol != PROTOCOL {
        return err!(
            Unauthorized,
            "the server speaks protocol {PROTOCOL}, this process {}: run the same release of ebb on both",
            hello.protocol
        );
    }
    if hello.cluster != identity.cluster.raw() {
        return err!(
            Unauthorized,
            "the server belongs to cluster {}, this process to c{}: check the address and the cluster directory",
            identity.cluster,
            hello.cluster
        );
    }
    Error::new(refusal.kind(), "the server cannot read this process's hello: run the same release of ebb on both")
}

fn wrong_secret(identity: &Identity) -> Error {
    err!(
        Unauthorized,
        "the two sides hold different secrets of cluster {}: give both the same secret file",
        identity.cluster
    )
}

/// Handshake frames over a stream, counted.
struct Wire<'a> {
    stream: &'a mut Stream,
    sent: u64,
    received: u64,
}

impl<'a> Wire<'a> {
    fn new(stream: &'a mut Stream) -> Self {
        Self { stream, sent: 0, received: 0 }
    }

    fn peer(&self) -> &str {
        &self.stream.peer
    }

    /// Counts the bytes of the handshake, now that the peer is known.
    fn count_bytes(&self, counters: &Counters, identity: &Identity, outcome: Result<PeerInfo>) -> Result<PeerInfo> {
        let link = match &outcome {
            Ok(peer) => Link::new(counters, &identity.host, &peer.host),
            Err(_) => Link::to_stranger(counters),
        };
        link.sent(self.sent);
        link.received(self.received);
        outcome
    }

    async fn send(&mut self, message: &impl Message) -> Result<()> {
        self.send_frame(FrameKind::Hello, &message.encode_to_vec()).await
    }

    /// Sends the reason to the other side. It may be lost: the other side then sees the connection end.
    async fn refuse(&mut self, refusal: &Error) {
        let mut detail = refusal.detail().to_owned();
        detail.truncate(detail.floor_char_boundary(HANDSHAKE_LEN_MAX / 2));
        let failure = pb::Failure { kind: refusal.kind().raw(), detail };
        let _ = self.send_frame(FrameKind::Failure, &failure.encode_to_vec()).await;
        let _ = self.stream.write.shutdown().await;
    }

    async fn send_frame(&mut self, kind: FrameKind, message: &[u8]) -> Result<()> {
        if message.len() > HANDSHAKE_LEN_MAX {
            bail!(Invalid, "host and role of this process are too long for a handshake: choose shorter ones");
        }
        let header = FrameHeader {
            kind,
            method: 0,
            request: 0,
            message_len: u32::try_from(message.len()).expect("within the cap"),
            payload_len: 0,
            deadline_ms: 0,
        };
        let frame = [&header.encode()[..], message].concat();
        let peer = &self.stream.peer;
        let written = async { self.stream.write.write_all(&frame).await.and(self.stream.write.flush().await) }.await;
        written.map_err(|error| Error::from_io(&error, format_args!("handshake with {peer}")))?;
        self.sent += frame.len() as u64;
        Ok(())
    }

    async fn receive<M: Message + Default>(&mut self) -> Result<M> {
        let mut header = [0; HEADER_LEN];
        self.fill(&mut header).await?;
        let header = FrameHeader::decode(&header).map_err(|error| error.context(self.peer()))?;
        let len = header.message_len as usize;
        if len > HANDSHAKE_LEN_MAX || header.payload_len != 0 {
            bail!(Protocol, "{} sent {len} bytes in a handshake, the cap is {HANDSHAKE_LEN_MAX}", self.peer());
        }
        let mut body = [0; HANDSHAKE_LEN_MAX];
        self.fill(&mut body[..len]).await?;
        let undecodable = |error| err!(Protocol, "{} sent a handshake that does not decode: {error}", self.stream.peer);
        match header.kind {
            FrameKind::Hello => M::decode(&body[..len]).map_err(undecodable),
            FrameKind::Failure => {
                let failure = pb::Failure::decode(&body[..len]).map_err(undecodable)?;
                Err(Error::from(failure).context(format_args!("{} refused the connection", self.peer())))
            }
            FrameKind::Request | FrameKind::Reply | FrameKind::HeldUp => {
                bail!(Protocol, "{} skipped the handshake", self.peer())
            }
        }
    }

    async fn fill(&mut self, out: &mut [u8]) -> Result<()> {
        let mut filled = 0;
        while filled < out.len() {
            let read = self.stream.read.read(&mut out[filled..]).await;
            let count = read.map_err(|error| Error::from_io(&error, format_args!("handshake with {}", self.peer())))?;
            if count == 0 {
                let reason = format!("{} closed the connection during the handshake", self.peer());
                return Err(Error::new(ErrorKind::Disconnected, reason));
            }
            filled += count;
            self.received += count as u64;
        }
        Ok(())
    }
}
