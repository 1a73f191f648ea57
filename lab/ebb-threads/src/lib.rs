//! Pieces whose correctness rests on threads, under every schedule and every order that memory may have.
//!
//! The virtual world has one thread, so it never tries what two do at the same time. Here the *same source files* are built
//! once more, with loom's locks and atomics in the place of the real ones. Loom runs a scene again and again until it has seen every
//! order of its steps (Norris and Demsky, "CDSChecker", OOPSLA 2013). No other crate changes for it: this one calls itself
//! `parking_lot` and `tokio`, and has in it what these files take from there.
//!
//! | piece | what it promises |
//! |---|---|
//! | [`begun`](scenes::begun) | work that waits becomes a task once, whenever it is woken, also while it is being polled |
//! | [`outbox`](scenes::outbox) | every frame that was taken goes out once, in its order, and nobody has to come back for it |
//!
//! Not here: what runs under tokio's own primitives, which tokio tries under loom itself, and what is guarded by one lock
//! that is never left half way, where there is nothing to try.
//!
//! Reading order: [`stand_in`], [`scenes`], `tests/`.
#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "threads are what this is about, and they are loom's"
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
