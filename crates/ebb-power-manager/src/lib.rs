//! The power manager and the power client as services around pure cores.
//!
//! The **manager** hears how much power there is, asks `ebb_power::manager::Manager` what to do, and has the master make
//! each plan durable before anybody follows it. The **power client** keeps the plans and carries them out on the nodes
//! that it serves: it asks a block server to rest, puts the node to sleep through an `ebb_power_drivers::PowerDriver`, and
//! wakes it. They are processes of their own: the manager may be killed and restarted at any time, and nodes keep to
//! the last plan, for the power client, which never sleeps, has it.
//!
//! Nothing here decides when a node sleeps, and nothing here is lost that matters: plans are in the master's log, the
//! operators' settings in a file that is replaced in one step before they are answered.
//!
//! Reading order: [`settings`], [`feed`], `books.rs` (the energy account on disk), [`known`], [`manager`], `status.rs`, [`client`].
#![forbid(unsafe_code)]

mod books;
pub mod client;
pub mod feed;
#[doc(hidden)]
pub mod fuzz;
pub mod known;
pub mod manager;
pub mod settings;
mod status;
