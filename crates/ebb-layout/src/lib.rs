//! Placement of replicas, as pure functions of plain values.
//!
//! Nothing here does I/O, reads a clock, holds a lock or keeps state between calls. Randomness comes only from the seed
//! in the arguments. The same view, ask and seed give the same plan on every machine.
//!
//! A caller passes its knowledge of the cluster ([`View`]) and its request ([`Ask`]). It gets a [`Plan`]: the members
//! to add, each with the reason for the choice.
//! - [`choose`] serves first placements, replacements of failed members, and repairs. They differ only in the members
//!   that are already `present`.
//! - [`choose_excess`] is the counterpart of [`choose`]: it chooses which of too many replicas to drop.
//! - [`choose_shift`] moves copies back to where their chain wants them after a failure.
//! - [`choose_lodged`] is [`choose`] for a cluster in which some nodes are off or have too much to write. It chooses
//!   homes among all nodes, and guests among the nodes that are on and have less to write.
//! - [`raid::choose_sets`] chooses which cold metablocks make RAID sets, which of their copies stay, and where their check
//!   metablocks lie.
//!
//! The property tests in `tests.rs` check these rules for every layout of the registry. A plan never:
//! - puts two copies on one node, or one on an unusable, full or excluded node;
//! - puts two copies on one host while another host could take one;
//! - keeps all copies in one rack while another rack could take one.
//!
//! The rule about racks has two exceptions. On an expansion chain, it counts only nodes outside the rack that lack
//! nearly as much of their share as the node that lacks most. The power-balanced circle does not look at racks.
//!
//! Reading order: [`view`], [`ask`], [`plan`], [`layouts`] (the registry), then `field` (the cluster as a layout sees
//! it), `layouts/random.rs`, `layouts/striped.rs`, [`excess`], [`guests`], [`overload`]. For chains: [`targets`] (how
//! much each node should hold, independent of single blocks), [`chain`] (what it holds), `layouts/chained.rs`,
//! `layouts/balanced.rs`, [`restore`]. For disks that hosts share: [`sub_racks`]. For what is cold: [`raid`], which has an order of
//! its own.
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
pub mod raid;
pub mod rendezvous;
pub mod restore;
mod rng;
pub use rng::hash;
pub mod sub_racks;
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
pub use sub_racks::{Distance, SubRacks, check_declared};
pub use view::{View, VolumeView, row_reserve_bytes};

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
