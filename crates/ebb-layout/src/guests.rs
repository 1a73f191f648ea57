//! Where a copy lies while its home is off, or has too much to write: guests (Rabbit, Sec. 3.3, write off-loading).
//!
//! The layout chooses homes among all nodes that are well, on or off, as it would at full power: so its targets hold
//! when the power is back, in spite of writes without it. A copy whose home is off lies with an active node until then.
//! That node is chosen here. It has nothing to do with this metablock so far. It is on another host, and in another rack if there is
//! one. Of such nodes it is the one with the fewest guests, so that no active node takes more than its share.
//!
//! A copy whose home is on and overloaded ([`crate::overload`]) lies with the node that has least to write, if that is less
//! than the mean. It could lie at home as well, so it is a guest only where nothing is given up for it: on a host of its
//! own, and in as many racks.

use std::collections::{BTreeMap, BTreeSet};

use ebb_types::{NodeId, Result};

use crate::field::{Candidate, Field, Spread};
use crate::overload::{Queue, mean_bytes};
use crate::rng::{Rng, hash};
use crate::{Ask, Chosen, Plan, Reason, View, choose};

/// Guests by which a node in another rack may have more than the one with the fewest, and is taken all the same.
const RACK_GUESTS: u64 = 1;

/// Input besides view and ask: in the ask `present` names the homes of the copies that there are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lodging {
    /// Where the copies of this metablock lie that there are: they take no other one.
    pub beside: Vec<NodeId>,
    /// Guests that each node has, of all metablocks.
    pub guests: BTreeMap<NodeId, u64>,
    /// Nodes that stay on: no other one writes for others, or has others write for it.
    pub queues: BTreeMap<NodeId, Queue>,
    /// Of these, those that have too much to write.
    pub overloaded: BTreeSet<NodeId>,
}

/// Places missing copies as on a cluster that is all on, and finds a guest's place for each copy whose home is off, or
/// overloaded.
///
/// Without a node that is off or overloaded this is [`choose`]. Errors as of [`choose`]; a copy with neither home nor
/// host that is on and has room is one that cannot be placed.
pub fn choose_lodged(view: &View, ask: &Ask, lodging: &Lodging) -> Result<Plan> {
    let mut plan = choose(view, &on_alone(ask, lodging))?;
    lodge(view, ask, lodging, &mut plan)?;
    relieve(view, ask, lodging, &mut plan);
    Ok(plan)
}

/// A place for one copy whose home is known: the home, if it is on and can take it, else a guest's. An overloaded home
/// takes it: a copy that is made up for, or comes back, is one at a time.
///
/// `Unavailable` or `NoSpace` if no active node can take it, either.
pub fn choose_shelter(view: &View, home: NodeId, ask: &Ask, lodging: &Lodging) -> Result<Chosen> {
    let one = Ask { replicas: ask.present.len() + 1, ..on_alone(ask, lodging) };
    let (view, mut rng) = (awake(view), rng(ask, home));
    let field = Field::survey(&view, &one)?;
    if let Some(at_home) = field.candidates.iter().find(|node| node.node == home) {
        return Ok(field.spread().place_on(at_home.pick_volume(&mut rng), Reason::Home));
    }
    let spread = beside(&view, lodging);
    let host = choose_host(&field.candidates, &spread, lodging, ask, home).expect("the survey counted a candidate");
    Ok(Chosen { home, ..field.spread().place_on(host.pick_volume(&mut rng), Reason::FewestGuests) })
}

fn rng(ask: &Ask, home: NodeId) -> Rng {
    Rng::new(&[ask.seed, ask.inode.raw(), ask.index, home.raw()])
}

/// The ask of the nodes that are on: a node with a copy of this metablock takes none, independent of that copy's home.
fn on_alone(ask: &Ask, lodging: &Lodging) -> Ask {
    let present = |node: &NodeId| ask.present.iter().any(|member| member.0 == *node);
    let beside = lodging.beside.iter().copied().filter(|node| !present(node));
    Ask { exclude: ask.exclude.iter().copied().chain(beside).collect(), ..ask.clone() }
}

/// The cluster as if nodes that are off could not be used.
fn awake(view: &View) -> View {
    let mut view = view.clone();
    view.volumes.iter_mut().for_each(|volume| volume.usable &= !volume.off);
    view
}

fn beside<'a>(view: &'a View, lodging: &Lodging) -> Spread<'a> {
    spread_of(view, lodging.beside.iter().copied())
}

fn spread_of(view: &View, nodes: impl Iterator<Item = NodeId>) -> Spread<'_> {
    let mut spread = Spread::default();
    for node in nodes {
        let volume = view.volumes.iter().find(|volume| volume.node == node);
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

/// Finds a host for each copy whose home is overloaded, where there is one that has less to write.
fn relieve(view: &View, ask: &Ask, lodging: &Lodging, plan: &mut Plan) {
    for place in 0..plan.members.len() {
        let member = plan.members[place];
        if member.home == member.node && lodging.overloaded.contains(&member.home) {
            plan.members[place] = choose_relief(view, ask, lodging, plan, place).unwrap_or(member);
        }
    }
}

/// The node that writes the copy at `place` for its home; none if no node could without something being given up for
/// it.
fn choose_relief(view: &View, ask: &Ask, lodging: &Lodging, plan: &Plan, place: usize) -> Option<Chosen> {
    let home = plan.members[place].home;
    let room = view.volumes.iter().filter(|volume| volume.node == home);
    let room: u64 = room.map(|volume| volume.free_bytes.saturating_sub(volume.reserve_bytes())).sum();
    let away = lodging.queues.get(&home)?.away;
    // Copies that are away must find room at home.
    if room < ask.bytes.saturating_mul(away + 1) {
        return None;
    }
    let others = plan.members.iter().enumerate().filter(|(at, _)| *at != place).map(|(_, member)| member.node);
    let others: Vec<NodeId> = others.chain(lodging.beside.iter().copied()).collect();
    let homes = plan.members.iter().map(|member| (member.home, member.volume));
    let present: Vec<_> = ask.present.iter().copied().chain(homes).collect();
    let exclude = ask.exclude.iter().chain(&others).copied().filter(|node| !present.iter().any(|one| one.0 == *node));
    let one = Ask { replicas: present.len() + 1, exclude: exclude.collect(), present, ..ask.clone() };
    let awake = awake(view);
    let field = Field::survey(&awake, &one).ok()?;
    let (spread, mean) = (spread_of(view, others.iter().copied()), mean_bytes(&lodging.queues));
    let home_rack = view.volumes.iter().find(|volume| volume.node == home).map(|volume| &volume.rack);
    // Where the home makes it two racks, the guest does, too.
    let shunned = spread.only_rack().filter(|rack| home_rack.is_some_and(|of_home| of_home != *rack));
    let waiting = |node: NodeId| lodging.queues.get(&node).map(|queue| queue.waiting_bytes);
    let is_better = |node: &&Candidate<'_>| {
        !lodging.overloaded.contains(&node.node)
            && waiting(node.node).is_some_and(|bytes| bytes <= mean)
            && !spread.has_host(node.host)
            && shunned.is_none_or(|rack| node.rack != rack)
    };
    let tie = |node: NodeId| hash(&[node.raw(), home.raw(), ask.inode.raw(), ask.index, ask.seed]);
    let host = field.candidates.iter().filter(is_better).min_by_key(|node| (waiting(node.node), tie(node.node)))?;
    let volume = host.pick_volume(&mut rng(ask, home));
    Some(Chosen { home, ..field.spread().place_on(volume, Reason::LeastToWrite) })
}

/// The most important conditions are given up last: another host, then another rack, then one that has not too much to
/// write, then the fewest guests.
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
    let calm: Vec<_> = open.iter().copied().filter(|node| !lodging.overloaded.contains(&node.node)).collect();
    let open = if calm.is_empty() { open } else { calm };
    let tie = |node: NodeId| hash(&[node.raw(), home.raw(), ask.inode.raw(), ask.index, ask.seed]);
    open.into_iter().min_by_key(|node| (guests(node), tie(node.node)))
}

#[cfg(test)]
mod tests;
