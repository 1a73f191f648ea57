//! What comes from sockets and from the kernel.

use bytes::Bytes;
use ebb_fuse::abi;
use ebb_wire::frame::{HANDSHAKE_LEN_MAX, crc32c};
use ebb_wire::{FrameHeader, FrameKind, HEADER_LEN, Message, Method, pb};

use crate::target::{Cap, Shape, Target, nothing};

/// Before every message.
pub(super) const FRAME: Target = Target {
    name: "wire/frame",
    source: "any peer",
    cap: Cap { base: 4 << 10, times: 0 },
    shape: Shape::Bytes,
    cases: 10_000,
    decode: |bytes| bytes.first_chunk().is_some_and(|header| FrameHeader::decode(header).is_ok()),
    samples: || {
        let header =
            |kind, method| FrameHeader { kind, method, request: 99, message_len: 5, payload_len: 6, deadline_ms: 700 };
        [FrameKind::Request, FrameKind::Reply, FrameKind::Failure, FrameKind::Hello, FrameKind::HeldUp]
            .map(|kind| header(kind, 7).encode().to_vec())
            .to_vec()
    },
    repair: |bytes| {
        if let Some(header) = bytes.get_mut(..HEADER_LEN) {
            let sum = crc32c(&header[..28]);
            header[28..32].copy_from_slice(&sum.to_le_bytes());
        }
    },
};

/// From a peer that has proved nothing yet.
pub(super) const HELLO: Target = Target {
    name: "wire/hello",
    source: "a stranger",
    cap: Cap { base: 16 << 10, times: 0 },
    shape: Shape::Message(0),
    cases: 10_000,
    decode: |bytes| {
        let bytes = &bytes[..bytes.len().min(HANDSHAKE_LEN_MAX)];
        let hello = pb::ClientHello::decode(bytes).is_ok() | pb::ServerHello::decode(bytes).is_ok();
        hello | pb::Failure::decode(bytes).map(ebb_types::Error::from).is_ok()
    },
    samples: || {
        let (host, role) = ("h1".to_owned(), "mount".to_owned());
        let server = pb::ServerHello { protocol: 2, cluster: 5, host: host.clone(), role: role.clone() };
        let client = pb::ClientHello { protocol: 3, oldest_protocol: 2, cluster: 5, host, role };
        let failure = pb::Failure { kind: 3, detail: "no".to_owned() };
        vec![client.encode_to_vec(), server.encode_to_vec(), failure.encode_to_vec()]
    },
    repair: nothing,
};

/// A call: its number in two bytes, then its message.
pub(super) const REQUESTS: Target = Target {
    name: "wire/requests",
    source: "a peer of the cluster",
    cap: MESSAGES,
    shape: Shape::Message(2),
    cases: 20_000,
    decode: |bytes| call(bytes).is_some_and(|(method, message)| method.check_request(message).is_ok()),
    samples: messages,
    repair: nothing,
};

/// An answer: the number of its call in two bytes, then its message.
pub(super) const REPLIES: Target = Target {
    name: "wire/replies",
    source: "a peer of the cluster",
    cap: MESSAGES,
    shape: Shape::Message(2),
    cases: 20_000,
    decode: |bytes| call(bytes).is_some_and(|(method, message)| method.check_reply(message).is_ok()),
    samples: messages,
    repair: nothing,
};

/// An empty element of a list is two bytes on the wire and a whole struct in memory, twice while the list grows.
const MESSAGES: Cap = Cap { base: 16 << 10, times: 160 };

fn call(bytes: &[u8]) -> Option<(Method, &[u8])> {
    let (number, message) = bytes.split_first_chunk()?;
    let number = usize::from(u16::from_le_bytes(*number));
    Some((Method::ALL[number % Method::ALL.len()], message))
}

/// For each call a message with many lists in it: what a method does not know it passes over.
fn messages() -> Vec<Vec<u8>> {
    let version = Some(pb::Version { epoch: 3, seq: 300 });
    let member = pb::Member { node: 1, volume: 2, incarnation: 3, home: 4 };
    let block = pb::Metablock { id: 5, version, length: 9, members: vec![member; 3], ..Default::default() };
    let attr = pb::Attr { inode: 7, kind: 1, mode: 0o644, nlink: 1, ..Default::default() };
    let entry = pb::DirEntry { name: b"a".to_vec(), inode: 7, attr: Some(attr), ..Default::default() };
    let write = pb::WriteReplica { metablock: 5, version, checksums: vec![1, 2, 3], ..Default::default() };
    let bodies = [
        pb::MetaReply {
            entries: vec![entry; 2],
            metablocks: vec![block; 2],
            names: vec![b"n".to_vec()],
            ..Default::default()
        }
        .encode_to_vec(),
        write.encode_to_vec(),
        pb::LogWrites { inode: 3, epoch: 9, writes: vec![write; 2], ..Default::default() }.encode_to_vec(),
        super::meta::requests()[0].encode_to_vec(),
    ];
    let of_all = (0..Method::ALL.len() as u16).zip(bodies.iter().cycle());
    of_all.map(|(number, body)| [&number.to_le_bytes()[..], body].concat()).collect()
}

/// Between a client and the block server of its host.
pub(super) const SHARE: Target = Target {
    name: "wire/share",
    source: "a process of the host",
    cap: Cap { base: 16 << 10, times: 160 },
    shape: Shape::Message(0),
    cases: 10_000,
    decode: |bytes| pb::ShortCircuitRequest::decode(bytes).is_ok() | pb::ShortCircuitReply::decode(bytes).is_ok(),
    samples: || {
        let opened = pb::ShortCircuitOpened {
            request: 3,
            runs: vec![pb::ShortCircuitRun { offset: 1, at: 2, length: 3 }; 3],
            ..Default::default()
        };
        let reply = pb::ShortCircuitReply { kind: Some(pb::short_circuit_reply::Kind::Opened(opened)) };
        vec![reply.encode_to_vec(), vec![10, 4, 8, 1, 16, 2]]
    },
    repair: nothing,
};

/// Requests of the kernel's.
pub(super) const FUSE: Target = Target {
    name: "fuse/request",
    source: "the kernel",
    cap: Cap { base: 16 << 10, times: 8 },
    shape: Shape::Bytes,
    cases: 10_000,
    decode: |bytes| {
        let Ok(header) = abi::request::header(bytes) else { return false };
        let _ = abi::init::parse(&bytes[bytes.len().min(40)..]);
        abi::request::parse(&header, Bytes::copy_from_slice(bytes)).is_ok()
    },
    samples: || {
        let request = |opcode: u32| {
            let mut bytes = vec![0; 40];
            bytes[4..8].copy_from_slice(&opcode.to_ne_bytes());
            bytes.extend((0..96_u8).map(|at| at % 7));
            bytes.extend(b"name\0other\0");
            let len = bytes.len() as u32;
            bytes[0..4].copy_from_slice(&len.to_ne_bytes());
            bytes
        };
        (1..60).map(request).collect()
    },
    repair: |bytes| {
        let len = bytes.len() as u32;
        if let Some(stated) = bytes.get_mut(..4) {
            stated.copy_from_slice(&len.to_ne_bytes());
        }
    },
};
