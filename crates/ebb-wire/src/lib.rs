//! Messages and framing. Nothing here does I/O.
//!
//! - `proto/` is the source of truth for every message.
//! - [`frame`] is the fixed header before each message.
//! - [`method`] assigns the numbers of the calls.
//! - [`attributes`] converts the attributes of an inode.
//! - [`convert`] converts ids, versions and errors between messages and types.
#![forbid(unsafe_code)]

pub mod attributes;
pub mod convert;
pub mod frame;
pub mod method;

/// The generated messages.
#[allow(missing_docs, clippy::all, clippy::pedantic)]
pub mod pb {
    include!(concat!(env!("OUT_DIR"), "/ebb.rs"));
}

pub use frame::{FrameHeader, FrameKind, HEADER_LEN};
pub use method::{Call, Method};
pub use prost::{Message, decode_length_delimiter, encode_length_delimiter};
