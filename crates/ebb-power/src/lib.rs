//! A cluster that follows its power: signals, policies and power plans as pure functions of plain values.
//!
//! The power manager hears how much power there is ([`signal`]), asks a policy ([`policy::choose`]) and gets a
//! [`plan::PowerPlan`]: when each node is awake, as a value. Everybody looks things up in it: the power client of a node
//! when to sleep, a reader who is awake longest, the proxy who wakes first. Master, nodes, clients, planners and the
//! virtual cluster call the same functions.
//!
//! Nothing here does I/O, reads a clock, or draws chance. What always holds (the property tests hold every policy to it):
//! - circular and gear policies never draw above the budget at any instant; the others never as a mean over an interval,
//!   and a battery carries every excess;
//! - a plan never sleeps the only copy of what it does not call stalled;
//! - no blink is too short to serve;
//! - nothing is promised for less power than sleep takes.
//!
//! Time is wall-clock time in milliseconds since the Unix epoch, with a guard band for clocks that differ. Power is
//! watts. `docs/power/` has the formulas with their sources and the byte form of a plan.
//!
//! Reading order: [`hardware`], [`battery`], [`plan`] (its value), [`plan::lookup`], [`plan::timetable`], [`signal`],
//! [`chain`] (datasets), [`policy`] (the registry; then `policy/circular.rs`, `policy/tide.rs`), [`reach`], [`account`],
//! [`manager`]; then what readers, writers and copies go by: [`read`], [`drain`], [`popularity`].
//!
//! Adding a policy: one file in `policy/`, one line in the registry.
#![forbid(unsafe_code)]

pub mod account;
pub mod battery;
pub mod chain;
pub mod drain;
pub mod hardware;
pub mod manager;
pub mod plan;
pub mod policy;
pub mod popularity;
pub mod reach;
pub mod read;
pub mod signal;

pub use battery::Battery;
pub use chain::{ChainShape, DatasetChain};
pub use hardware::{Hardware, NodePower, Supply};
pub use plan::lookup::NodeState;
pub use plan::timetable::Timetable;
pub use plan::{Duty, NodePlan, OutOfReach, PowerPlan, wall_ms};
pub use policy::{Ask, PolicyKind, Rotational, Timing, choose};
