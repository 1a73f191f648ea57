//! Before the first request both sides learn whom they met.
//!
//! ```text
//! client                                         server
//!   | TLS 1.3: each proves its certificate               |   in the real world
//!   |<-------------------------------------------------->|
//!   | ClientHello {protocols, cluster, host, role}       |
//!   |--------------------------------------------------->|
//!   |  ServerHello {protocol, cluster, host, role}       |   or Failure: another release, another cluster; full
//!   |<---------------------------------------------------|
//! ```
//! Nothing follows the client's hello before it is answered. So where an operator chose plain bytes, both sides leave TLS
//! behind at the same byte. Frames are read one by one into a buffer of [`HANDSHAKE_LEN_MAX`] bytes, never past their end.
//! A side that refuses gives its reason, so both sides can inform their operator. The caller bounds the time.

use ebb_runtime::{Runtime, Stream};
use ebb_types::{Error, ErrorKind, HostName, Result, Role, bail, err};
use ebb_wire::frame::HANDSHAKE_LEN_MAX;
use ebb_wire::{FrameHeader, FrameKind, HEADER_LEN, Message, pb};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::counters::Link;
use crate::identity::{Proof, Proven};
use crate::tls::{self, Joined};
use crate::{Counters, Identity, PeerInfo};

/// The newest version of the protocol that this build speaks.
pub const PROTOCOL: u32 = 2;
/// The oldest one. Version 1 proved a secret, and certified nothing.
pub const OLDEST_PROTOCOL: u32 = 2;

/// Longest declared host, in bytes.
const NAME_LEN_MAX: usize = 255;

/// Proves this process to the server at the other end of `stream` and the server to this process.
pub(crate) async fn greet(
    runtime: &Runtime,
    stream: Stream,
    identity: &Identity,
    counters: &Counters,
) -> Result<(PeerInfo, Stream)> {
    let Stream { read, write, peer: address } = stream;
    let mut joined = Joined::new(read, write);
    let meeting = Meeting { runtime, identity, address: &address };
    let (info, (read, write)) = match &identity.proof {
        Proof::Certificate(holder) => {
            let mut secured = tls::connect(joined, &address, holder).await?;
            let mut wire = Wire::new(&mut secured.stream, &address);
            let met = meeting.greet(&mut wire, Some(&secured.peer)).await;
            (wire.count_bytes(counters, identity, met)?, secured.part()?)
        }
        Proof::Word => {
            let mut wire = Wire::new(&mut joined, &address);
            let met = meeting.greet(&mut wire, None).await;
            (wire.count_bytes(counters, identity, met)?, joined.part()?)
        }
    };
    Ok((info, Stream { read, write, peer: address }))
}

/// Makes the client at the other end of `stream` prove itself, and proves this process to it. `admit` has the last
/// word on a client that did.
pub(crate) async fn receive<T: Send>(
    runtime: &Runtime,
    stream: Stream,
    identity: &Identity,
    counters: &Counters,
    admit: impl FnOnce(&PeerInfo) -> Result<T> + Send,
) -> Result<(PeerInfo, T, Stream)> {
    let Stream { read, write, peer: address } = stream;
    let mut joined = Joined::new(read, write);
    let mut admitted = None;
    let admit = |peer: &PeerInfo| admit(peer).map(|token| admitted = Some(token));
    let meeting = Meeting { runtime, identity, address: &address };
    let (info, (read, write)) = match &identity.proof {
        Proof::Certificate(holder) => {
            let mut secured = tls::accept(joined, &address, holder).await?;
            let mut wire = Wire::new(&mut secured.stream, &address);
            let met = meeting.receive(&mut wire, Some(&secured.peer), admit).await;
            (wire.count_bytes(counters, identity, met)?, secured.part()?)
        }
        Proof::Word => {
            let mut wire = Wire::new(&mut joined, &address);
            let met = meeting.receive(&mut wire, None, admit).await;
            (wire.count_bytes(counters, identity, met)?, joined.part()?)
        }
    };
    let token = admitted.expect("a client is welcomed after it was admitted");
    Ok((info, token, Stream { read, write, peer: address }))
}

/// What a process knows when it meets a peer.
struct Meeting<'a> {
    runtime: &'a Runtime,
    identity: &'a Identity,
    address: &'a str,
}

/// What a peer says of itself.
struct Claim {
    cluster: u64,
    host: String,
    role: String,
}

impl Meeting<'_> {
    async fn greet<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        wire: &mut Wire<'_, S>,
        proven: Option<&Proven>,
    ) -> Result<PeerInfo> {
        let identity = self.identity;
        wire.send(&pb::ClientHello {
            protocol: PROTOCOL,
            cluster: identity.cluster.raw(),
            host: identity.host.as_str().to_owned(),
            role: identity.role.name().to_owned(),
            oldest_protocol: OLDEST_PROTOCOL,
        })
        .await?;
        let pb::ServerHello { protocol, cluster, host, role } = wire.receive().await?;
        common_protocol(self.address, protocol, protocol)?;
        self.believe(Claim { cluster, host, role }, proven)
    }

    async fn receive<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        wire: &mut Wire<'_, S>,
        proven: Option<&Proven>,
        admit: impl FnOnce(&PeerInfo) -> Result<()> + Send,
    ) -> Result<PeerInfo> {
        let identity = self.identity;
        let pb::ClientHello { protocol: newest, oldest_protocol, cluster, host, role } = wire.receive().await?;
        let oldest = if oldest_protocol == 0 { newest } else { oldest_protocol };
        let protocol = match common_protocol(self.address, oldest, newest) {
            Ok(protocol) => protocol,
            Err(refusal) => {
                // The client reads it: "this process" is the client there.
                wire.refuse(&other_release("the server", OLDEST_PROTOCOL, PROTOCOL, oldest, newest)).await;
                return Err(refusal);
            }
        };
        if cluster != identity.cluster.raw() {
            wire.refuse(&err!(
                Unauthorized,
                "the server belongs to cluster {}, this process to c{cluster}: check the address and the cluster's settings",
                identity.cluster
            ))
            .await;
        }
        let admitted = self.believe(Claim { cluster, host, role }, proven).and_then(|peer| admit(&peer).map(|()| peer));
        let peer = match admitted {
            Ok(peer) => peer,
            Err(refusal) => {
                wire.refuse(&refusal).await;
                return Err(refusal.context(self.address));
            }
        };
        wire.send(&pb::ServerHello {
            protocol,
            cluster: identity.cluster.raw(),
            host: identity.host.as_str().to_owned(),
            role: identity.role.name().to_owned(),
        })
        .await?;
        Ok(peer)
    }

    /// The peer, if what it says is what its certificate says, and that is still believed.
    fn believe(&self, claim: Claim, proven: Option<&Proven>) -> Result<PeerInfo> {
        let (identity, address) = (self.identity, self.address);
        let Claim { cluster, host, role } = claim;
        if cluster != identity.cluster.raw() {
            bail!(
                Unauthorized,
                "{address} belongs to cluster c{cluster}, this process to {}: check the address and the cluster's settings",
                identity.cluster
            );
        }
        if host.is_empty() || host.len() > NAME_LEN_MAX {
            bail!(Protocol, "{address} sent a malformed hello (host {host:?})");
        }
        let role: Role = role.parse().map_err(|error| err!(Unauthorized, "{address}: {error}"))?;
        let host = HostName::new(host);
        if let Some(proven) = proven {
            proven.check(self.runtime)?;
            let subject = &proven.subject;
            if role != subject.role || subject.host.as_ref().is_some_and(|certified| *certified != host) {
                bail!(Unauthorized, "{address} says that it is the {role} on {host}, and is certified as {subject}");
            }
        }
        Ok(PeerInfo { host, role, address: address.to_owned(), proven: proven.cloned() })
    }
}

/// The newest protocol that both sides speak.
fn common_protocol(peer: &str, oldest: u32, newest: u32) -> Result<u32> {
    let common = PROTOCOL.min(newest);
    if common < OLDEST_PROTOCOL.max(oldest) {
        return Err(other_release(peer, oldest, newest, OLDEST_PROTOCOL, PROTOCOL));
    }
    Ok(common)
}

fn other_release(peer: &str, oldest: u32, newest: u32, own_oldest: u32, own_newest: u32) -> Error {
    let span =
        |oldest: u32, newest: u32| if oldest == newest { format!("{newest}") } else { format!("{oldest} to {newest}") };
    err!(
        Unauthorized,
        "{peer} speaks protocol {}, this process {}: run releases of ebb that are at most one apart",
        span(oldest, newest),
        span(own_oldest, own_newest)
    )
}

/// Handshake frames over a stream, counted.
struct Wire<'a, S> {
    stream: &'a mut S,
    peer: &'a str,
    sent: u64,
    received: u64,
}

impl<'a, S: AsyncRead + AsyncWrite + Unpin> Wire<'a, S> {
    fn new(stream: &'a mut S, peer: &'a str) -> Self {
        Self { stream, peer, sent: 0, received: 0 }
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
        let _ = self.stream.shutdown().await;
    }

    async fn send_frame(&mut self, kind: FrameKind, message: &[u8]) -> Result<()> {
        if message.len() > HANDSHAKE_LEN_MAX {
            bail!(Invalid, "host of this process is too long for a handshake: choose a shorter one");
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
        let written = async { self.stream.write_all(&frame).await.and(self.stream.flush().await) }.await;
        written.map_err(|error| ebb_identity::explain(&error, self.peer))?;
        self.sent += frame.len() as u64;
        Ok(())
    }

    async fn receive<M: Message + Default>(&mut self) -> Result<M> {
        let mut header = [0; HEADER_LEN];
        self.fill(&mut header).await?;
        let header = FrameHeader::decode(&header).map_err(|error| error.context(self.peer))?;
        let len = header.message_len as usize;
        if len > HANDSHAKE_LEN_MAX || header.payload_len != 0 {
            bail!(Protocol, "{} sent {len} bytes in a handshake, the cap is {HANDSHAKE_LEN_MAX}", self.peer);
        }
        let mut body = [0; HANDSHAKE_LEN_MAX];
        self.fill(&mut body[..len]).await?;
        let undecodable = |error| err!(Protocol, "{} sent a handshake that does not decode: {error}", self.peer);
        match header.kind {
            FrameKind::Hello => M::decode(&body[..len]).map_err(undecodable),
            FrameKind::Failure => {
                let failure = pb::Failure::decode(&body[..len]).map_err(undecodable)?;
                Err(Error::from(failure).context(format_args!("{} refused the connection", self.peer)))
            }
            FrameKind::Request | FrameKind::Reply | FrameKind::HeldUp => {
                bail!(Protocol, "{} skipped the handshake", self.peer)
            }
        }
    }

    async fn fill(&mut self, out: &mut [u8]) -> Result<()> {
        let mut filled = 0;
        while filled < out.len() {
            let read = self.stream.read(&mut out[filled..]).await;
            let count = read.map_err(|error| ebb_identity::explain(&error, self.peer))?;
            if count == 0 {
                let reason = format!("{} closed the connection during the handshake", self.peer);
                return Err(Error::new(ErrorKind::Disconnected, reason));
            }
            filled += count;
            self.received += count as u64;
        }
        Ok(())
    }
}
