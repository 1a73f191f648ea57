//! Copies: what makes them, moves them and takes them away.

pub(crate) mod executor;
pub mod extras;
pub mod guests;
pub mod layout;
pub(crate) mod rejoin;
pub mod repair;
pub mod route;
pub(crate) mod transfer;
