//! What two releases of Ebb say to each other while a cluster is upgraded, process by process.
//!
//! `previous/` holds the message definitions of the release before, the numbers of its calls (`methods.txt`), and messages as it
//! encodes them (`messages.txt`). They are compared with those of this tree:
//! - [`rules`]: no definition may change its meaning: numbers, types, places in a `oneof`.
//! - [`sample`]: messages with something in each field, made of definitions. This release reads what the one before wrote and
//!   loses nothing; the release before reads what this one writes, as far as it knows the fields.
//!
//! Nothing here runs in a cluster. With a release the folder is made anew ([CONTRIBUTING.md](../../../CONTRIBUTING.md)).
//!
//! Reading order: [`rules`], [`sample`], the tests.
#![forbid(unsafe_code)]

pub mod rules;
pub mod sample;
#[cfg(test)]
mod tests;

use prost::Message;
use prost_types::FileDescriptorSet;

/// Reads a message of a name and writes it again; none: there is no such message.
type Again = fn(&str, &[u8]) -> Option<Result<Vec<u8>, prost::DecodeError>>;

/// A release: what it defines, and its readers.
#[derive(Clone, Copy, Debug)]
pub struct Release {
    definitions: &'static [u8],
    again: Again,
}

/// The release before.
pub const PREVIOUS: Release =
    Release { definitions: include_bytes!(concat!(env!("OUT_DIR"), "/previous.bin")), again: previous::again };
/// This one.
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
