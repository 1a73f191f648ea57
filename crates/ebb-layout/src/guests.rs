//! Where a copy lies while its home is off: guests (Rabbit, Sec. 3.3, write off-loading).
//!
//! The layout chooses homes among all nodes that are well, on or off, as it would at full power: so its targets hold when
//! the power is back, whatever was written without. A copy whose home is off lies with an active node until then. Which one
//! is chosen here: one that has nothing to do with this metablock, on another host and in another rack if there is one, and
//! of those the one with the fewest guests, so that no active node takes more than its share.

use std::collections::BTreeMap;

use ebb_types::{NodeId, Result};

use crate::field::{Candidate, Field, Spread};
use crate::rng::{Rng, hash};
use crate::{Ask, Chosen, Plan, Reason, View, choose};

/// Guests by which a node in another rack may have more than the one with the fewest, and is taken all the same.
const RACK_GUESTS: u64 = 1;

/// What counts besides view and ask: in the ask `present` names the homes of the copies that there are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lodging {
    /// Where the copies of this metablock lie that there are: they take no other one.
    pub beside: Vec<NodeId>,
    /// Guests that each node has, of all metablocks.
    pub guests: BTreeMap<NodeId, u64>,
}

/// Places what is missing as on a cluster that is all on, and finds a guest's place for each copy whose home is off.
///
/// Without a node that is off this is [`choose`]. Errors as of [`choose`]; a copy with neither home nor host that is on and has
/// room is one that cannot be placed.
pub fn choose_lodged(view: &View, ask: &Ask, lodging: &Lodging) -> Result<Plan> {
    let mut plan = choose(view, &on_alone(ask, lodging))?;
    lodge(view, ask, lodging, &mut plan)?;
    Ok(plan)
}

/// A place for one copy whose home is known: the home, if it is on and can take it, else a guest's.
///
/// `Unavailable` or `NoSpace` if no active node can take it, either.
pub fn choose_shelter(view: &View, home: NodeId, ask: &Ask, lodging: &Lodging) -> Result<Chosen> {
    let one = Ask { replicas: ask.present.len() + 1, ..on_alone(ask, lodging) };
    let (view, mut rng) = (awake(view), rng(ask, home));
    let field = Field::survey(&view, &one)?;
    if let Some(at_home) = field.candidates.iter().find(|node| node.node == home) {
        return Ok(field.spread().take(at_home.pick_volume(&mut rng), Reason::Home));
    }
    let spread = beside(&view, lodging);
    let host = choose_host(&field.candidates, &spread, lodging, ask, home).expect("the survey counted a candidate");
    Ok(Chosen { home, ..field.spread().take(host.pick_volume(&mut rng), Reason::FewestGuests) })
}

fn rng(ask: &Ask, home: NodeId) -> Rng {
    Rng::new(&[ask.seed, ask.inode.raw(), ask.index, home.raw()])
}

/// The ask of the nodes that are on: who has a copy of this metablock takes none, whatever it is home to.
fn on_alone(ask: &Ask, lodging: &Lodging) -> Ask {
    let present = |node: &NodeId| ask.present.iter().any(|member| member.0 == *node);
    let beside = lodging.beside.iter().copied().filter(|node| !present(node));
    Ask { exclude: ask.exclude.iter().copied().chain(beside).collect(), ..ask.clone() }
}

/// The cluster as if what is off could not be used.
fn awake(view: &View) -> View {
    let mut view = view.clone();
    view.volumes.iter_mut().for_each(|volume| volume.usable &= !volume.off);
    view
}

fn beside<'a>(view: &'a View, lodging: &Lodging) -> Spread<'a> {
    let mut spread = Spread::default();
    for node in &lodging.beside {
        let volume = view.volumes.iter().find(|volume| volume.node == *node);
        spread.places.extend(volume.map(|volume| (&volume.host, &volume.rack)));
    }
    spread
}

/// Finds a host for each copy whose home is off.
fn lodge(view: &View, ask: &Ask, lodging: &Lodging, plan: &mut Plan) -> Result<()> {
    let is_off = |node: NodeId| view.volumes.iter().any(|volume| volume.node == node && volume.off);
    let mut lodging = lodging.clone();
    lodging.beside.extend(plan.members.iter().map(|member| member.node).filter(|node| !is_off(*node)));
    let mut present = ask.present.clone();
    present.extend(plan.members.iter().map(|member| (member.node, member.volume)));
    for member in plan.members.iter_mut().filter(|member| is_off(member.node)) {
        let ask = Ask { present: present.clone(), ..ask.clone() };
        *member = choose_shelter(view, member.node, &ask, &lodging)?;
        lodging.beside.push(member.node);
        *lodging.guests.entry(member.node).or_default() += 1;
    }
    Ok(())
}

/// What matters most is given up last: another host, then another rack, then the fewest guests.
fn choose_host<'f, 'a>(
    candidates: &'f [Candidate<'a>],
    spread: &Spread<'a>,
    lodging: &Lodging,
    ask: &Ask,
    home: NodeId,
) -> Option<&'f Candidate<'a>> {
    let own_host: Vec<_> = candidates.iter().filter(|node| !spread.has_host(node.host)).collect();
    let hosts = if own_host.is_empty() { candidates.iter().collect() } else { own_host };
    let guests = |node: &Candidate<'_>| lodging.guests.get(&node.node).copied().unwrap_or(0);
    let fewest = hosts.iter().map(|node| guests(node)).min()?;
    let leaves = |node: &&Candidate<'_>| {
        spread.only_rack().is_some_and(|rack| rack != node.rack) && guests(node) <= fewest + RACK_GUESTS
    };
    let outside: Vec<_> = hosts.iter().copied().filter(leaves).collect();
    let open = if outside.is_empty() { hosts } else { outside };
    let tie = |node: NodeId| hash(&[node.raw(), home.raw(), ask.inode.raw(), ask.index, ask.seed]);
    open.into_iter().min_by_key(|node| (guests(node), tie(node.node)))
}

#[cfg(test)]
mod tests;
