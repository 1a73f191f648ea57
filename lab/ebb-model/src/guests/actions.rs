//! The actions of the model.

use crate::guests::state::{COPIES, Deletion, Member, Moving, NODES, Pull, Sent, State};
use crate::guests::{Guests, Mutant};
use crate::names::Writes;

/// One step of one process. Nodes go by their place, members and messages by theirs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// The holder's program writes.
    Write,
    /// A node receives a write.
    Deliver(usize, usize),
    /// The holder replaces a member whose node does not answer.
    Lodge(usize, Member),
    /// The holder gives its lease back.
    Release,
    /// A client gets the lease.
    Take,
    /// The holder is given up, and the members that answer recover the file.
    Recover,

    /// The master begins to bring a guest home.
    GoHome(usize),
    /// It begins to make up for a copy that is missing, or on a dead node.
    MakeUp(Option<usize>, Member),
    /// A node pulls.
    Pull(usize),
    /// The copy that was begun is recorded.
    Record,
    /// The copy that was begun comes to nothing: the master dies, or gives it up.
    GiveUp,
    /// A guest whose home is dead becomes a member like others.
    Adopt(usize),
    /// A node's replica is found to be in excess.
    Judge(usize),
    /// A node carries a deletion out.
    Delete(usize),

    /// A plan switches a node off.
    Off(usize),
    /// A plan switches it on.
    On(usize),
    /// A node dies.
    Die(usize),
}

/// Everything that may happen in a state.
pub fn enumerate(protocol: &Guests, state: &State, actions: &mut Vec<Action>) {
    holder_actions(protocol, state, actions);
    master_actions(protocol, state, actions);
    for (place, node) in state.nodes.iter().enumerate() {
        if node.is_dead {
            continue;
        }
        if !node.is_on {
            actions.push(Action::On(place));
        } else {
            actions.extend((0..state.sent.len()).map(|sent| Action::Deliver(place, sent)));
            // A plan that puts the last copy out of reach is not let through.
            let others = state.awake().any(|member| member.node != place);
            if state.switches < protocol.bounds.switches && others {
                actions.push(Action::Off(place));
            }
        }
        // The next failure comes when the copies have been made up after the last.
        let has_other = state.master.set.iter().any(|member| member.node != place && !state.nodes[member.node].is_dead);
        if state.deaths < protocol.bounds.deaths && has_other {
            actions.push(Action::Die(place));
        }
    }
    let pulls = state.pulls.iter().enumerate().filter(|(_, pull)| state.nodes[pull.target].answers());
    actions.extend(pulls.map(|(at, _)| Action::Pull(at)));
    let deletions = state.deletions.iter().enumerate().filter(|(_, deletion)| state.nodes[deletion.node].answers());
    actions.extend(deletions.map(|(at, _)| Action::Delete(at)));
}

fn holder_actions(protocol: &Guests, state: &State, actions: &mut Vec<Action>) {
    let master = &state.master;
    let may_raise = master.epoch < protocol.bounds.epoch;
    if !master.is_held {
        if may_raise && master.set.len() == COPIES {
            actions.push(Action::Take);
        }
        return;
    }
    if state.writes < protocol.bounds.writes {
        actions.push(Action::Write);
    }
    if all_have(state, state.written) {
        actions.push(Action::Release);
    }
    if may_raise && state.best().is_some() {
        actions.push(Action::Recover);
    }
    if state.best().is_none() {
        return;
    }
    for (place, member) in master.set.iter().enumerate() {
        if !state.nodes[member.node].answers() {
            actions.extend(replacements(protocol, state, member).into_iter().map(|joins| Action::Lodge(place, joins)));
        }
    }
}

/// Members that may take a member's place: a copy with the same home, or, where that is dead, one with another home.
fn replacements(protocol: &Guests, state: &State, member: &Member) -> Vec<Member> {
    if state.nodes[member.home].is_dead {
        return homes(state).into_iter().flat_map(|home| state.lodgings(home)).collect();
    }
    let home = if protocol.is(Mutant::HostBecomesHome) { member.node } else { member.home };
    let mut all = state.lodgings(home);
    if protocol.is(Mutant::GuestAtAnothersHome) {
        let free = (0..NODES).filter(|place| state.nodes[*place].answers() && !state.is_member(*place));
        all = free.map(|node| Member { node, home }).collect();
    }
    all
}

/// Where a copy may belong that has no home yet: to the layout's nodes first.
fn homes(state: &State) -> Vec<usize> {
    let free = |place: &usize| !state.is_taken(*place) && !state.nodes[*place].is_dead;
    let of_layout: Vec<usize> = (0..COPIES).filter(free).collect();
    if of_layout.is_empty() { (COPIES..NODES).filter(free).collect() } else { of_layout }
}

fn all_have(state: &State, writes: Writes) -> bool {
    state.master.set.iter().all(|member| {
        let node = &state.nodes[member.node];
        !node.is_dead && node.writes().includes(writes)
    })
}

fn master_actions(protocol: &Guests, state: &State, actions: &mut Vec<Action>) {
    let master = &state.master;
    if let Some(moving) = &master.moving {
        actions.push(Action::GiveUp);
        if moving.is_whole && (may_record(state, moving) || protocol.is(Mutant::RecordsBlindly)) {
            let sleeps = !state.nodes[moving.joins.node].answers();
            if !sleeps || protocol.is(Mutant::RecordsWhileHomeSleeps) {
                actions.push(Action::Record);
            }
        }
    }
    if !master.is_held {
        idle_actions(protocol, state, actions);
    }
    for (place, node) in state.nodes.iter().enumerate() {
        let comes = master.moving.as_ref().is_some_and(|moving| moving.joins.node == place);
        let is_left_alone = master.is_held || (comes && !protocol.is(Mutant::JudgesWhileMoving));
        if node.answers() && node.replica.is_some() && !state.is_member(place) && !is_left_alone {
            actions.push(Action::Judge(place));
        }
    }
}

/// Compare-and-swap, while the file has no lease holder.
fn may_record(state: &State, moving: &Moving) -> bool {
    let master = &state.master;
    !master.is_held && (master.epoch, master.generation) == (moving.epoch, moving.generation)
}

fn idle_actions(protocol: &Guests, state: &State, actions: &mut Vec<Action>) {
    let master = &state.master;
    for (place, member) in master.set.iter().enumerate() {
        if member.is_guest() && state.nodes[member.home].is_dead && !protocol.is(Mutant::WaitsForTheDead) {
            actions.push(Action::Adopt(place));
        }
    }
    if master.moving.is_some() || state.copies >= protocol.bounds.copies || state.best().is_none() {
        return;
    }
    for (place, member) in master.set.iter().enumerate() {
        let home = &state.nodes[member.home];
        // The home's old replica waits for its deletion: a pull beside it would make a second replica of the same name.
        let is_clear = home.replica.is_none() || protocol.is(Mutant::OldCopyCounts);
        if member.is_guest() && home.answers() && is_clear {
            actions.push(Action::GoHome(place));
        }
        if state.nodes[member.node].is_dead {
            let joins = replacements(protocol, state, member);
            actions.extend(joins.into_iter().map(|joins| Action::MakeUp(Some(member.node), joins)));
        }
    }
    if master.set.len() < COPIES {
        let joins: Vec<Member> = if protocol.is(Mutant::MakesUpWithoutHomes) {
            let free = (0..NODES).filter(|place| state.nodes[*place].answers() && !state.is_taken(*place));
            free.map(|node| Member { node, home: node }).collect()
        } else {
            homes(state).into_iter().flat_map(|home| state.lodgings(home)).collect()
        };
        actions.extend(joins.into_iter().map(|joins| Action::MakeUp(None, joins)));
    }
}

/// Carries one action out.
pub fn perform(protocol: &Guests, state: &mut State, action: Action) {
    match action {
        Action::Write => {
            let after = state.written.with(state.writes);
            state.sent.push(Sent { epoch: state.master.epoch, before: state.written, after });
            state.written = after;
            state.writes += 1;
        }
        Action::Deliver(place, sent) => deliver(state, place, sent),
        Action::Lodge(place, joins) => lodge(state, place, joins),
        Action::Release => {
            state.master.is_held = false;
            state.master.committed = state.written;
        }
        Action::Take => {
            state.master.epoch += 1;
            state.master.is_held = true;
        }
        Action::Recover => recover(protocol, state),
        Action::GoHome(place) => go_home(protocol, state, place),
        Action::MakeUp(leaves, joins) => begin_copy(state, leaves, joins),
        Action::Pull(at) => pull(protocol, state, at),
        Action::Record => record(state),
        Action::GiveUp => state.master.moving = None,
        Action::Adopt(place) => {
            state.master.set[place].home = state.master.set[place].node;
            state.master.generation += 1;
        }
        Action::Judge(place) => request_deletion(state, place),
        Action::Delete(at) => {
            let deletion = state.deletions[at];
            delete(protocol, state, &deletion);
        }
        Action::Off(place) => {
            state.nodes[place].is_on = false;
            state.switches += 1;
        }
        Action::On(place) => state.nodes[place].is_on = true,
        Action::Die(place) => {
            state.nodes[place].is_dead = true;
            state.nodes[place].replica = None;
            state.deaths += 1;
        }
    }
    if state.master.is_held && all_have(state, state.written) {
        state.firm = state.written;
    }
}

/// Refused below the fence, and by nodes that are no members; applied behind its predecessor.
fn deliver(state: &mut State, place: usize, sent: usize) {
    let (sent, is_member) = (state.sent[sent], state.is_member(place));
    let node = &mut state.nodes[place];
    // A stranger that has a replica may take a write that comes late; it has no place in the set all the same.
    if sent.epoch < node.promised || node.writes() != sent.before || (!is_member && node.replica.is_none()) {
        return;
    }
    node.promised = sent.epoch;
    match &mut node.replica {
        Some(replica) => replica.writes = sent.after,
        None => node.store_replica(sent.after),
    }
}

fn lodge(state: &mut State, place: usize, joins: Member) {
    let (epoch, best) = (state.master.epoch, state.best().expect("it was asked"));
    let writes = state.nodes[best].writes();
    let node = &mut state.nodes[joins.node];
    node.promised = node.promised.max(epoch);
    if writes != Writes::NONE {
        node.store_replica(writes);
    }
    state.master.set[place] = joins;
    state.master.generation += 1;
}

fn recover(protocol: &Guests, state: &mut State) {
    let best = state.best().expect("it was asked");
    let writes = state.nodes[best].writes();
    state.master.epoch += 1;
    let epoch = state.master.epoch;
    let mut set: Vec<Member> = state.awake().copied().collect();
    for member in &mut set {
        let node = &mut state.nodes[member.node];
        node.promised = epoch;
        if node.writes() != writes {
            node.store_replica(writes);
        }
        if protocol.is(Mutant::RecoveryForgetsHomes) {
            member.home = member.node;
        }
    }
    if set != state.master.set {
        state.master.set = set;
        state.master.generation += 1;
    }
    state.master.is_held = false;
    (state.master.committed, state.written) = (writes, writes);
}

fn begin_copy(state: &mut State, leaves: Option<usize>, joins: Member) {
    let master = &mut state.master;
    let (epoch, at) = (master.epoch, master.committed);
    let generation = master.generation;
    master.moving = Some(Moving { joins, leaves, epoch, generation, at, is_whole: at == Writes::NONE });
    state.copies += 1;
    if at != Writes::NONE {
        state.pulls.push(Pull { target: joins.node, epoch, at });
    }
}

fn go_home(protocol: &Guests, state: &mut State, place: usize) {
    let guest = state.master.set[place];
    begin_copy(state, Some(guest.node), Member { node: guest.home, home: guest.home });
    if protocol.is(Mutant::OldCopyCounts)
        && state.nodes[guest.home].replica.is_some()
        && let Some(moving) = &mut state.master.moving
    {
        moving.is_whole = true;
    }
}

/// From any node that has it. A pull that comes late finds all of it there, or a fence.
fn pull(protocol: &Guests, state: &mut State, at: usize) {
    let pull = state.pulls.remove(at);
    let Some(best) = state.best() else { return };
    let writes = state.nodes[best].writes();
    let node = &mut state.nodes[pull.target];
    if node.promised > pull.epoch || !writes.includes(pull.at) {
        return;
    }
    node.promised = pull.epoch;
    let had = node.writes();
    node.store_replica(if had.includes(pull.at) { had } else { writes });
    let now = node.writes();
    let Some(moving) = &mut state.master.moving else { return };
    if (moving.joins.node, moving.epoch) == (pull.target, pull.epoch) && now == moving.at {
        moving.is_whole = true;
        if protocol.is(Mutant::GuestGoesFirst)
            && let Some(leaves) = moving.leaves
        {
            state.nodes[leaves].replica = None;
        }
    }
}

fn record(state: &mut State) {
    let Some(moving) = state.master.moving.take() else { return };
    state.came_home |= !moving.joins.is_guest() && moving.leaves.is_some_and(|node| !state.nodes[node].is_dead);
    let master = &mut state.master;
    master.set.retain(|member| Some(member.node) != moving.leaves);
    master.set.push(moving.joins);
    master.set.sort_unstable_by_key(|member| member.home);
    master.generation += 1;
}

fn request_deletion(state: &mut State, place: usize) {
    let Some(replica) = state.nodes[place].replica else { return };
    let deletion = Deletion { node: place, life: replica.life, epoch: state.master.epoch };
    if !state.deletions.contains(&deletion) {
        state.deletions.push(deletion);
    }
}

fn delete(protocol: &Guests, state: &mut State, deletion: &Deletion) {
    let node = &mut state.nodes[deletion.node];
    let is_meant = node.replica.is_some_and(|replica| replica.life == deletion.life);
    if is_meant || protocol.is(Mutant::DeletesAnyLife) {
        node.replica = None;
        node.promised = node.promised.max(deletion.epoch);
    }
}
