//! State of another release: a command of the log, or a record of a checkpoint, with a part that this release does not
//! know.
//!
//! protobuf ignores fields that it does not know. On a connection that is wanted. A state machine that ignores a field
//! or a command has another state than its writer from then on, and nothing shows it. So it stops before it applies
//! such a command or record (I-113).

use ebb_types::{Result, bail, err};
use ebb_wire::Message;

/// Decodes a message of the log or a checkpoint.
///
/// Errors: `Corrupt` if it does not decode; `Unsupported` if a part of it is not known here. The part may be a field, a
/// kind of command or a kind of operation, at any depth.
pub fn decode_known<M: Message + Default>(encoded: &[u8]) -> Result<M> {
    let message = M::decode(encoded).map_err(|error| err!(Corrupt, "does not decode: {error}"))?;
    // All state was written by this library, in one encoding. A re-encoding that is shorter has lost a part.
    let known = message.encoded_len();
    if known != encoded.len() {
        bail!(
            Unsupported,
            "says something that this release does not know ({known} of {} bytes are understood): a newer release wrote it. To go \
             on without that would lose it in silence. Start the newer release again",
            encoded.len()
        );
    }
    Ok(message)
}

#[cfg(test)]
mod tests {
    use ebb_types::ErrorKind;
    use ebb_wire::pb;
    use pb::command::Command as Change;

    use super::*;

    fn command() -> pb::Command {
        let quarantine = pb::Quarantine { volume: 3, metablocks: vec![1, 2, 300], release: true };
        pb::Command { now_ns: -5, command: Some(Change::Quarantine(quarantine)), step: 9 }
    }

    /// A field of this number with these bytes in it.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let tag = u16::from(number) << 3 | 2;
        let mut out = vec![(tag & 0x7f) as u8 | 0x80, (tag >> 7) as u8, u8::try_from(bytes.len()).unwrap()];
        out.extend_from_slice(bytes);
        out
    }

    #[test]
    fn this_release_knows_its_own_format() {
        let encoded = command().encode_to_vec();
        assert_eq!(decode_known::<pb::Command>(&encoded), Ok(command()));
        assert_eq!(decode_known::<pb::Command>(&[]), Ok(pb::Command::default()));
    }

    #[test]
    fn a_newer_releases_command_field_or_operation_is_not_passed_over() {
        let encoded = command().encode_to_vec();
        // Numbers that no release has used.
        let newer_field = [&encoded[..], &field(99, b"more")[..]].concat();
        let newer_kind = field(98, b"news");
        let newer_operation = field(2, &field(1, &field(5, &field(97, b"a new operation"))));
        for newer in [newer_field, newer_kind, newer_operation] {
            let refused = decode_known::<pb::Command>(&newer).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
            assert!(refused.to_string().contains("a newer release wrote it"), "{refused}");
        }
        let damaged = &encoded[..encoded.len() - 1];
        assert_eq!(decode_known::<pb::Command>(damaged).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
