//! Every decoder of Ebb, fed with bytes that no Ebb wrote: none may panic, hang, or take more memory than it declares.
//!
//! A decoder is whatever takes bytes from a socket or a disk. Each is a [`Target`]: a function of bytes alone, the memory
//! that it may take for so many of them, samples that the real encoders made, and a way to make checksums and lengths
//! right again after a change, so that what lies behind them is reached. The registry is [`targets::ALL`]; the table for
//! people is `docs/formats/decoders.md`, and a test holds the two together.
//!
//! The tests run so many cases of each target, made from a seed by a mutation engine that knows bytes, text and protobuf
//! messages; `cargo run -p ebb-fuzz -- run [TARGET] --seconds N` runs as many as one likes. A case that fails prints its
//! bytes and the command that repeats it.
//!
//! What never happens here: a verdict about what a decoder ought to say. That is for the tests beside it; here it only
//! has to say something, soon, and within its means.
//!
//! Reading order: [`target`], [`targets`], [`dice`], [`mutate`] with `message` and `text`, [`memory`], [`run`], [`command`].

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
