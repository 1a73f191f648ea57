//! Power signals, power policies and power plans, as pure functions of plain values.
//!
//! Nothing here does I/O, reads a clock or draws a random number.
//!
//! The power manager reads the available power ([`signal`]) and asks a policy ([`policy::choose`]). The policy returns
//! a [`plan::PowerPlan`]: a value that says when each node is awake. Every process does its lookups in it. A power
//! client looks up when its node sleeps, a reader which node is awake longest, the proxy which node wakes first.
//! Master, nodes, clients, planners and the virtual cluster call the same functions.
//!
//! The property tests check these rules over all policies:
//! - `activation`, `blink-circular` and `migration` never draw above the budget at any instant. There is one exception:
//!   nodes blink although the budget is too small for a single node. They then take turns one by one, the mean over an
//!   interval is within the budget, and a battery carries every excess.
//! - `blink-staggered`, `blink-synchronous`, `load-proportional` and `tide` never draw above the budget as a mean over
//!   an interval. A battery carries every excess.
//! - The budget is the supply, or the level at which a battery is drawn down or filled over several intervals
//!   ([`policy::reservoir`]). With a battery nothing is drawn that neither it nor the supply gives.
//! - `always-on` has every node on, at any supply.
//! - Unless a plan declares data stalled, a copy of the data is on a node that is on or blinks. With `migration` this
//!   holds only for data that have been moved.
//! - No blink is too short to serve.
//! - No bound on the draw holds for a supply below the draw of all nodes asleep.
//!
//! Times are wall-clock times in milliseconds since the Unix epoch, with a guard band for clocks that differ. Power is
//! in watts. `docs/power/` has the formulas with their sources, and the byte form of a plan.
//!
//! Reading order: [`hardware`], [`battery`], [`plan`] (its value), [`plan::lookup`], [`plan::timetable`], [`signal`],
//! [`chain`] (datasets), [`policy`] (the registry; then [`policy::reservoir`], `policy/circular.rs`, `policy/tide.rs`), [`reach`],
//! [`account`], [`manager`]; then the rules for readers, writers, copies and jobs: [`read`], [`allot`], [`debt`],
//! [`popularity`], [`work`].
//!
//! Adding a policy: one file in `policy/`, one line in the registry.
#![forbid(unsafe_code)]

pub mod account;
pub mod allot;
pub mod battery;
pub mod chain;
pub mod debt;
pub mod hardware;
pub mod manager;
pub mod plan;
pub mod policy;
pub mod popularity;
pub mod reach;
pub mod read;
pub mod signal;
pub mod work;

pub use battery::Battery;
pub use chain::{ChainShape, DatasetChain};
pub use hardware::{Hardware, NodePower, Supply};
pub use plan::lookup::{Awake, NodeState};
pub use plan::timetable::Timetable;
pub use plan::{Duty, NodePlan, OutOfReach, PowerPlan, wall_ms};
pub use policy::{Ask, PolicyKind, Rotational, Timing, choose};
