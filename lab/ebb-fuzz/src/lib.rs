//! Fuzzing of every decoder of Ebb: no input may make one panic, hang, or take more memory than it declares.
//!
//! What never happens here: a check of what a decoder returns. The tests beside each decoder check that. Here it only
//! has to return in time and within its memory.
//!
//! A decoder is any code that takes bytes from a socket or a disk. Each is a [`Target`]:
//! - a function of bytes alone;
//! - the memory that it may take for a given number of bytes;
//! - samples from the real encoders;
//! - a function that corrects checksums and lengths after a change, so that the code behind those checks is reached.
//!
//! The registry is [`targets::ALL`]. The table for people is `docs/formats/decoders.md`, and a test checks that the two
//! agree.
//!
//! The tests run a fixed number of cases of each target. A mutation engine makes them from a seed. It knows bytes, text
//! and protobuf messages. `cargo run -p ebb-fuzz -- run [TARGET] --seconds N` runs cases for N seconds per
//! target. A case that fails prints its bytes, and the command that repeats it.
//!
//! Reading order: [`target`], [`targets`], [`dice`], [`mutate`] with `message` and `text`, [`memory`], [`run`],
//! [`command`].

pub mod command;
pub mod dice;
pub mod memory;
mod message;
pub mod mutate;
pub mod run;
pub mod target;
pub mod targets;
mod text;

#[cfg(test)]
mod tests;

pub use target::{Cap, Shape, Target};

/// Counts what each thread takes, in whatever program this crate is part of.
#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;
