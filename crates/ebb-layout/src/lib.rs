//! Where replicas go: placement as pure functions of plain values.
//!
//! A caller shows what it knows of the cluster ([`View`]), says what it needs ([`Ask`]) and gets a [`Plan`] back: the
//! members to add, each with the reason why it was chosen. [`choose`] serves first placements, replacements of failed
//! members and repairs alike; the difference is only which members are already `present`. [`choose_excess`] is its
//! counterpart: which of too many replicas to let go. [`choose_shift`] brings copies back to where their chain wants them after
//! a failure. [`choose_lodged`] is the same as [`choose`] for a cluster of which a part is switched off, or has too much to write:
//! homes among all nodes, and guests among those that are on and have less.
//!
//! Nothing here does I/O, reads a clock, holds a lock, keeps state between calls or draws randomness of its own: the
//! same view, ask and seed give the same plan on every machine. What a plan never does, whatever the layout (the
//! property tests in `tests.rs` hold every layout of the registry to it):
//! - put two copies on one node, or one on an unusable, full or excluded node;
//! - put two copies on one host while another host could take one;
//! - keep all copies in one rack while another rack could take one (on an expansion chain: while one could
//!   that lacks nearly as much of its share; the power-balanced circle does not look at racks).
//!
//! Reading order: [`view`], [`ask`], [`plan`], [`layouts`] (the registry), then `field` (the cluster as a layout sees
//! it), `layouts/random.rs`, `layouts/striped.rs`, [`excess`], [`guests`], [`overload`]. For chains: [`targets`] (how much each node should hold,
//! whatever the blocks are), [`chain`] (what it holds), `layouts/chained.rs`, `layouts/balanced.rs`, [`restore`].
//!
//! Adding a layout: one file in `layouts/` with a function `place`, and one line in the registry in `layouts.rs`.
#![forbid(unsafe_code)]

pub mod ask;
pub mod chain;
pub mod excess;
mod field;
pub mod guests;
pub mod layouts;
pub mod overload;
pub mod plan;
pub mod rendezvous;
pub mod restore;
mod rng;
pub mod targets;
#[cfg(test)]
mod tests;
pub mod view;

pub use ask::Ask;
pub use chain::{ChainView, Tally};
pub use excess::choose_excess;
pub use guests::{Lodging, choose_lodged, choose_shelter};
pub use layouts::LayoutKind;
pub use overload::{OverloadRule, Queue, choose_overloaded};
pub use plan::{Chosen, Plan, Reason};
pub use restore::{Shift, choose_change, choose_shift};
pub use view::{View, VolumeView};

use ebb_types::{Result, bail};

/// The members to add so that, together with `ask.present`, there are `ask.replicas` copies on distinct nodes.
///
/// An ask that is already met gives an empty plan. Errors: `Invalid` if no copies are asked for, or a chain is missing, `Unavailable` if
/// there are too few usable nodes, `NoSpace` if there are enough but too few of them have room.
pub fn choose(view: &View, ask: &Ask) -> Result<Plan> {
    if ask.layout.has_chain() && ask.chain.is_none() {
        bail!(Invalid, "the layout {} places along an expansion chain, and none was given", ask.layout);
    }
    let field = field::Field::survey(view, ask)?;
    Ok(ask.layout.place(&field, ask))
}
