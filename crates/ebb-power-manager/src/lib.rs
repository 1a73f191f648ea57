//! The power manager and the power client: two services around pure cores.
//!
//! Nothing here decides when a node sleeps. No state that matters is lost here: plans are in the master's log. The
//! operators' settings are in a file, which is replaced atomically before a change of them is answered.
//!
//! - The **power manager** receives the available power, and asks `ebb_power::manager::Manager` for a plan. It has the
//!   master make each plan durable before any process follows it.
//! - The **power client** keeps the plans and carries them out on the nodes that it serves. It asks a block server to
//!   rest, puts the node to sleep through an `ebb_power_drivers::PowerDriver`, and wakes it.
//!
//! They are separate processes, so the manager may be killed and restarted at any time. Meanwhile the nodes follow the
//! last plan, because the power client has it and never sleeps.
//!
//! Reading order: [`settings`], [`feed`], [`forecast`], `books.rs` (the energy account on disk), [`known`], [`manager`], `status.rs`,
//! [`client`].
#![forbid(unsafe_code)]

mod books;
pub mod client;
pub mod feed;
pub mod forecast;
#[doc(hidden)]
pub mod fuzz;
pub mod known;
pub mod manager;
pub mod settings;
mod status;
