//! The virtual world: many processes on many hosts in one thread, on virtual time, from one seed.
//!
//! [`World::run`] runs a body of code, and every task that it starts, on an executor of its own: virtual time stands
//! still while any task can run and jumps to the next event when none can, so an hour of waiting costs
//! microseconds. Which of several runnable tasks goes first is drawn from the seed, so seeds explore interleavings
//! as well as faults, and a seed replays exactly. Tasks live in their process: a crash drops them, a freeze leaves
//! them unpolled, and nothing has to cooperate. Waiting is by [`crate::Runtime`] and by what any executor can run
//! (`tokio::sync`, `tokio::select!` with `biased`); there is no tokio runtime here, so a forgotten
//! `tokio::time::sleep` or `tokio::spawn` panics instead of escaping from virtual time.
//!
//! Links carry real bytes with modelled latency, jitter and bandwidth ([`LinkOptions`]); a partition holds bytes back
//! as TCP does. Disks ([`DiskOptions`]) keep synced changes and lose or tear others ([`Process::crash`]);
//! one can have several spindles ([`Process::split_disk`]).
//! Every fault that took effect is counted ([`World::faults`]) and logged ([`World::fault_log`]).
//!
//! Reading order: [`world`], [`process`], `executor`, `net`, `disk`; [`dice`] says how randomness is split.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod clock;
pub mod dice;
mod disk;
mod executor;
mod local;
mod net;
pub mod options;
pub mod process;
mod trace;
pub mod turn;
pub mod world;

#[cfg(test)]
mod tests;

pub use dice::Dice;
pub use disk::{PowerCut, Restored};
pub use options::{DiskFaults, DiskOptions, DiskWork, LinkOptions, PlannedFault, Small, WorldOptions};
pub use process::{Process, Spindle};
pub use trace::{Event, Fault};
pub use turn::Turn;
pub use world::World;
