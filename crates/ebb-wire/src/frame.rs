//! The fixed header before every message.
//!
//! ```text
//!  0      4    5     6        8            16            20            24            28         32
//!  | magic | ver | kind | method | request id | message len | payload len | deadline ms | crc32c |
//!  | EBB1  | u8  | u8   | u16    | u64        | u32         | u32         | u32         | u32    |
//! ```
//! All numbers little-endian. The CRC covers bytes 0..28. After the header come `message len` bytes of protobuf and
//! `payload len` bytes of raw data. Both lengths have caps that are checked before a byte is allocated for them.

use ebb_types::{Result, bail};

/// Bytes of a header.
pub const HEADER_LEN: usize = 32;
/// Largest protobuf message (a report part, a directory listing).
pub const MESSAGE_LEN_MAX: usize = 4 << 20;
/// Largest payload: the largest block.
pub const PAYLOAD_LEN_MAX: usize = 16 << 20;
/// Largest frame before the handshake is done: nothing big is allocated for a stranger.
pub const HANDSHAKE_LEN_MAX: usize = 1024;

/// The number of a failure that answers no request: the server ends the connection. It has answered every request that
/// it accepted, so those that still wait were not begun. (Releases that do not know it ignore an answer without a
/// request.)
pub const GOODBYE: u64 = 0;

const MAGIC: u32 = u32::from_le_bytes(*b"EBB1");
const VERSION: u8 = 1;

/// The kind of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FrameKind {
    /// A call.
    Request = 1,
    /// A good answer.
    Reply = 2,
    /// A refusal or failure: the message is [`crate::pb::Failure`].
    Failure = 3,
    /// Handshake, before anything else.
    Hello = 4,
    /// Before an answer: what it waits for is held up in front of a link. Only for calls that ask to be told.
    HeldUp = 5,
}

/// A decoded header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHeader {
    /// Its kind.
    pub kind: FrameKind,
    /// The call's number (of a reply: the call that it answers).
    pub method: u16,
    /// Chosen by the caller, unique among its calls in progress on this connection; never [`GOODBYE`].
    pub request: u64,
    /// Bytes of protobuf that follow.
    pub message_len: u32,
    /// Raw bytes after the message.
    pub payload_len: u32,
    /// How long the caller waits, from sending; 0 in replies.
    pub deadline_ms: u32,
}

impl FrameHeader {
    /// The header as it travels.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        out[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        out[4] = VERSION;
        out[5] = self.kind as u8;
        out[6..8].copy_from_slice(&self.method.to_le_bytes());
        out[8..16].copy_from_slice(&self.request.to_le_bytes());
        out[16..20].copy_from_slice(&self.message_len.to_le_bytes());
        out[20..24].copy_from_slice(&self.payload_len.to_le_bytes());
        out[24..28].copy_from_slice(&self.deadline_ms.to_le_bytes());
        let crc = crc32c(&out[..28]);
        out[28..32].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a header and checks magic, version, checksum, kind and caps.
    pub fn decode(bytes: &[u8; HEADER_LEN]) -> Result<Self> {
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if u32_at(0) != MAGIC {
            bail!(Protocol, "not an Ebb frame (magic {:#010x})", u32_at(0));
        }
        if bytes[4] != VERSION {
            bail!(Protocol, "frame version {} is not {VERSION}: the peer runs another release", bytes[4]);
        }
        if u32_at(28) != crc32c(&bytes[..28]) {
            bail!(Protocol, "frame header checksum mismatch");
        }
        let kind = match bytes[5] {
            1 => FrameKind::Request,
            2 => FrameKind::Reply,
            3 => FrameKind::Failure,
            4 => FrameKind::Hello,
            5 => FrameKind::HeldUp,
            other => bail!(Protocol, "unknown frame kind {other}"),
        };
        let header = Self {
            kind,
            method: u16::from_le_bytes([bytes[6], bytes[7]]),
            request: u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes")),
            message_len: u32_at(16),
            payload_len: u32_at(20),
            deadline_ms: u32_at(24),
        };
        if header.message_len as usize > MESSAGE_LEN_MAX {
            bail!(Protocol, "message of {} bytes is above the cap of {MESSAGE_LEN_MAX}", header.message_len);
        }
        if header.payload_len as usize > PAYLOAD_LEN_MAX {
            bail!(Protocol, "payload of {} bytes is above the cap of {PAYLOAD_LEN_MAX}", header.payload_len);
        }
        Ok(header)
    }
}

/// CRC-32C (Castagnoli, as HDFS and iSCSI use it).
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes);
    u32::try_from(sum).expect("a 32-bit checksum")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header() -> FrameHeader {
        FrameHeader {
            kind: FrameKind::Request,
            method: 7,
            request: 99,
            message_len: 5,
            payload_len: 6,
            deadline_ms: 700,
        }
    }

    #[test]
    fn golden_bytes() {
        let hex: String = header().encode()[..28].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "454242310101070063000000000000000500000006000000bc020000");
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn lengths_above_the_cap_are_refused() {
        let big = FrameHeader { payload_len: u32::MAX, ..header() };
        assert!(FrameHeader::decode(&big.encode()).unwrap_err().to_string().contains("above the cap"));
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(bytes in proptest::array::uniform32(any::<u8>())) {
            let _ = FrameHeader::decode(&bytes);
        }

        #[test]
        fn one_flipped_bit_is_noticed(at in 0usize..HEADER_LEN * 8) {
            let mut bytes = header().encode();
            bytes[at / 8] ^= 1 << (at % 8);
            prop_assert!(FrameHeader::decode(&bytes).is_err());
        }
    }
}
