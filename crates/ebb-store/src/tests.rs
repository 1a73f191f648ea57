//! Tests of whole volumes, on the virtual disk (which loses and tears unsynced writes) and on a real one.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod compress;
mod cuts;
mod damage;
mod frozen;
mod life;
mod order;
mod overwrites;
mod pulls;
mod random;
mod removed;
mod rig;
mod room;
mod scarce;
mod short_circuit;
mod tombstones;
