//! Tests of whole block servers with a small master, in the virtual world and over loopback.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod copies;
mod encode;
mod master;
mod named;
mod pipeline;
mod reads;
mod registration;
mod rig;
mod short_circuit;
mod wrong_parts;
