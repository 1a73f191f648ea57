//! Compatibility of the messages of two releases, for clusters that are upgraded process by process.
//!
//! Nothing here runs in a cluster.
//!
//! `previous/` holds three things of the previous release: its message definitions, the numbers of its calls
//! (`methods.txt`), and messages that it encoded (`messages.txt`). Two modules compare them with this tree:
//! - [`rules`]: no definition may change its meaning: numbers, types, places in a `oneof`.
//! - [`sample`]: messages with a value in each field, generated from the definitions. This release reads the messages
//!   of the previous one without loss. The previous release reads the messages of this one, as far as it knows their
//!   fields.
//!
//! Each release makes the folder anew ([CONTRIBUTING.md](../../../CONTRIBUTING.md)).
//!
//! Reading order: [`rules`], [`sample`], the tests.
#![forbid(unsafe_code)]

pub mod rules;
pub mod sample;
#[cfg(test)]
mod tests;

use prost::Message;
use prost_types::FileDescriptorSet;

/// Reads a message of this name and writes it again. `None`: there is no such message.
type Again = fn(&str, &[u8]) -> Option<Result<Vec<u8>, prost::DecodeError>>;

/// A release: its definitions and its readers.
#[derive(Clone, Copy, Debug)]
pub struct Release {
    definitions: &'static [u8],
    again: Again,
}

/// The previous release.
pub const PREVIOUS: Release =
    Release { definitions: include_bytes!(concat!(env!("OUT_DIR"), "/previous.bin")), again: previous::again };
/// This release.
pub const CURRENT: Release =
    Release { definitions: include_bytes!(concat!(env!("OUT_DIR"), "/current.bin")), again: current::again };

impl Release {
    /// Its message definitions.
    #[must_use]
    pub fn definitions(self) -> FileDescriptorSet {
        FileDescriptorSet::decode(self.definitions).expect("the build script wrote it")
    }

    /// Reads a message of this name and writes it again. `None`: the release has no such message.
    #[must_use]
    pub fn again(self, name: &str, bytes: &[u8]) -> Option<Result<Vec<u8>, prost::DecodeError>> {
        (self.again)(name, bytes)
    }
}

fn pass<M: Message + Default>(bytes: &[u8]) -> Result<Vec<u8>, prost::DecodeError> {
    M::decode(bytes).map(|message| message.encode_to_vec())
}

#[allow(missing_docs, clippy::all, clippy::pedantic)]
mod previous {
    use super::pass;

    mod pb {
        include!(concat!(env!("OUT_DIR"), "/ebb.rs"));
    }

    include!(concat!(env!("OUT_DIR"), "/previous.rs"));
}

#[allow(missing_docs, clippy::all, clippy::pedantic)]
mod current {
    use ebb_wire::pb;

    use super::pass;

    include!(concat!(env!("OUT_DIR"), "/current.rs"));
}
