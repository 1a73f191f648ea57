//! Tests of multi-threaded code under every schedule and every memory order.
//!
//! What is not tested here:
//! - code that rests on tokio's own primitives. Tokio itself tests them under loom;
//! - state under a single lock that is never released half-way. It has no interleavings to test.
//!
//! The virtual world has one thread, so it never runs two threads at the same time. This crate compiles the *same
//! source files* once more, with loom's locks and atomics in place of the real ones. Loom repeats a scene until it has
//! seen every order of its steps (Norris and Demsky, "CDSChecker", OOPSLA 2013). No other crate changes for it. This
//! crate has the aliases `parking_lot` and `tokio`, and defines the items that these files import from them.
//!
//! | piece | promise |
//! |---|---|
//! | [`begun`](scenes::begun) | waiting work becomes a task once, whenever it is woken, also during a poll of it |
//! | [`outbox`](scenes::outbox) | every accepted frame is sent once, in order, without a further call |
//!
//! Reading order: [`stand_in`], [`scenes`], `tests/`.
#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this crate tests threads, and they are loom's"
)]

extern crate self as parking_lot;
extern crate self as tokio;

#[allow(dead_code, reason = "the file of another crate")]
#[path = "../../../crates/ebb-runtime/src/real/begun.rs"]
mod begun;
#[allow(dead_code, reason = "the file of another crate")]
#[path = "../../../crates/ebb-rpc/src/outbox.rs"]
mod outbox;
pub mod scenes;
pub mod stand_in;

pub use stand_in::{Mutex, runtime, sync};
use stand_in::{backend, writer};
