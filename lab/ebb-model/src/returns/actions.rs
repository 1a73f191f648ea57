//! The actions of the model.

use super::state::{Holder, Joining, LeftOut, NODES, Presence, Replica, Settled, State, WANTED};
use super::{Mutant, Returns};

/// One step. See the table in [`super`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// A client takes the write lease.
    Acquire,
    /// The holder has a write.
    BeginWrite,
    /// A member takes it.
    Send(usize),
    /// All have it, and fsync returns.
    Commit,
    /// The holder gives its lease back.
    Release,
    /// The holder is gone.
    HolderDies,
    /// A recovery begins, or begins again.
    Begin,
    /// A member promises the recovery's epoch and reports its version.
    Promise(usize),
    /// The members that have promised are made equal and stamped.
    Settle,
    /// The recovery is recorded.
    Finish,
    /// A member that was left out is asked. It is stamped if it has exactly the content from which the set was stamped.
    Rejoin(usize),
    /// A node copies the set's content.
    Copy(usize),
    /// A member that has lost its disk copies it.
    Mend(usize),
    /// A node that has a copy, or was stamped, is recorded as a member.
    Record,
    /// The master asks the members, and decides that a node's replica may go.
    Judge(usize),
    /// The word of that comes.
    Delete(usize, u8),
    /// A node is switched off.
    Down(usize),
    /// A silent node has been so for long.
    TimePasses,
    /// A node is back.
    Up(usize),
    /// A node's disk is exchanged.
    LoseDisk(usize),
}

/// Everything that may happen now.
pub fn enumerate(model: &Returns, state: &State, actions: &mut Vec<Action>) {
    let bounds = model.bounds;
    let mut may = |is_possible: bool, action: Action| {
        if is_possible {
            actions.push(action);
        }
    };
    may(state.is_idle() && state.epoch < bounds.epochs, Action::Acquire);
    if let Some(holder) = state.holder {
        let is_over = holder.last == state.committed || holder.last == holder.before;
        may(is_over && state.writes < bounds.writes, Action::BeginWrite);
        may(!is_over && state.members().all(|node| has(state, node, holder.last)), Action::Commit);
        may(is_over, Action::Release);
        may(true, Action::HolderDies);
        for node in state.members() {
            let may_take = state.is_up(node) && state.nodes[node].promised <= state.epoch;
            may(!is_over && may_take && has(state, node, holder.before), Action::Send(node));
        }
    }
    may((state.orphaned || state.recovering) && state.epoch < bounds.epochs, Action::Begin);
    may(state.settled.is_none() && may_settle(model, state), Action::Settle);
    may(state.settled.is_some(), Action::Finish);
    may(state.joining.is_some(), Action::Record);
    for node in 0..bounds.nodes {
        let is_asked = state.recovering && state.settled.is_none() && state.is_member(node);
        may(is_asked && state.is_up(node) && state.answered & (1 << node) == 0, Action::Promise(node));
        may(may_rejoin(model, state, node), Action::Rejoin(node));
        may(state.copies < bounds.copies && may_copy(model, state, node), Action::Copy(node));
        may(state.copies < bounds.copies && may_mend(state, node), Action::Mend(node));
        may(may_judge(model, state, node), Action::Judge(node));
        may(state.is_up(node) && state.downs < bounds.downs, Action::Down(node));
        may(!state.is_up(node), Action::Up(node));
        let may_lose = state.losses < bounds.losses && state.deletions.is_empty();
        may(may_lose && state.is_up(node) && state.nodes[node].replica.is_some(), Action::LoseDisk(node));
    }
    may(state.nodes.iter().any(|node| node.presence == Presence::Silent), Action::TimePasses);
    for (node, life) in &state.deletions {
        may(state.is_up(*node), Action::Delete(*node, *life));
    }
}

fn has(state: &State, node: usize, version: (u8, u8)) -> bool {
    state.nodes[node].replica.is_some_and(|replica| replica.version == version)
}

/// Whether a recovery may go on: each member that has not answered, or cannot be stamped, was silent for long.
fn may_settle(model: &Returns, state: &State) -> bool {
    let has_answered = |node: usize| state.answered & (1 << node) != 0;
    let is_done = |node: usize| match state.nodes[node].presence {
        Presence::Up => has_answered(node) || model.is(Mutant::DoesNotWait),
        Presence::Silent => {
            model.is(Mutant::DoesNotWait) || has_answered(node) && model.is(Mutant::DoesNotWaitForStamps)
        }
        Presence::Gone => true,
    };
    state.recovering
        && state.members().all(is_done)
        && state.members().any(|node| has_answered(node) && state.is_up(node) && is_winner(state, node))
}

/// Whether a member that has promised has the highest reported version, and no less than the committed one.
fn is_winner(state: &State, node: usize) -> bool {
    let answer_of = |node: usize| state.nodes[node].replica.filter(|_| state.answered & (1 << node) != 0);
    let highest = state.members().filter_map(answer_of).map(|replica| replica.version).max();
    answer_of(node).is_some_and(|replica| Some(replica.version) == highest && replica.version >= state.committed)
}

fn may_grow(state: &State) -> bool {
    state.is_idle() && state.joining.is_none() && state.set.count_ones() < WANTED as u32
}

fn may_rejoin(model: &Returns, state: &State, node: usize) -> bool {
    let is_left_out =
        |one: &LeftOut| one.node == node && (state.may_rejoin(one) || model.is(Mutant::RejoinsAfterAWrite));
    may_grow(state)
        && state.is_up(node)
        && !state.is_member(node)
        && state.unfit & (1 << node) == 0
        && state.nodes[node].replica.is_some()
        && state.left_out.iter().any(is_left_out)
}

/// A member that may rejoin does so first.
fn may_copy(model: &Returns, state: &State, node: usize) -> bool {
    let is_kept = model.is(Mutant::KeepsTheUnfit) && state.left_out.iter().any(|one| one.node == node);
    may_grow(state)
        && state.is_up(node)
        && !state.is_member(node)
        && has_source(state)
        && !is_kept
        && (0..NODES).all(|other| !may_rejoin(model, state, other))
}

fn may_mend(state: &State, node: usize) -> bool {
    let is_damaged = state.is_member(node) && state.nodes[node].replica.is_none();
    state.is_idle() && state.joining.is_none() && state.is_up(node) && is_damaged && has_source(state)
}

fn has_source(state: &State) -> bool {
    state.good_members() > 0
}

fn may_judge(model: &Returns, state: &State, node: usize) -> bool {
    let is_stray = state.is_up(node) && !state.is_member(node);
    let Some(replica) = state.nodes[node].replica.filter(|_| is_stray) else { return false };
    let is_whole = if model.is(Mutant::DeletesByTheMapAlone) {
        true
    } else if model.is(Mutant::CountsMembersUnasked) {
        state.set.count_ones() >= WANTED as u32
    } else {
        state.good_members() >= WANTED
    };
    let is_coming = state.joining.is_some_and(|joining| joining.node == node);
    // A replica that comes into the set is counted, and is no member yet.
    let may =
        if model.is(Mutant::JudgesDuringCopy) { is_whole || is_coming } else { is_whole && state.joining.is_none() };
    state.is_idle() && may && !state.deletions.contains(&(node, replica.life))
}

/// Does one of them.
pub fn perform(model: &Returns, state: &mut State, action: Action) {
    let before = state.clone();
    match action {
        Action::Acquire => {
            state.epoch += 1;
            state.holder = Some(Holder { last: state.committed, before: state.committed, content: state.content });
        }
        Action::BeginWrite => {
            let epoch = state.epoch;
            let seq = if state.committed.0 == epoch { state.committed.1 } else { 0 };
            if let Some(holder) = &mut state.holder {
                holder.before = holder.last;
                holder.last = (epoch, seq + 1);
                holder.content |= 1 << state.writes;
            }
            state.writes += 1;
        }
        Action::Send(node) => {
            if let (Some(holder), Some(replica)) = (state.holder, &mut state.nodes[node].replica) {
                (replica.version, replica.content) = (holder.last, holder.content);
            }
        }
        Action::Commit => {
            if let Some(holder) = state.holder {
                (state.committed, state.content) = (holder.last, holder.content);
                state.acknowledged = holder.content;
            }
        }
        Action::Release => state.holder = None,
        Action::HolderDies => (state.holder, state.orphaned) = (None, true),
        Action::Begin => {
            state.epoch += 1;
            (state.orphaned, state.recovering) = (false, true);
            (state.answered, state.settled) = (0, None);
        }
        Action::Promise(node) => {
            state.nodes[node].promised = state.epoch;
            state.answered |= 1 << node;
        }
        Action::Settle => pull_and_stamp(state),
        Action::Finish => finish(state),
        Action::Rejoin(node) => rejoin(model, state, node),
        Action::Copy(node) | Action::Mend(node) => copy(state, node, action),
        Action::Record => record(model, state),
        Action::Judge(node) => {
            if let Some(replica) = state.nodes[node].replica {
                state.deletions.insert((node, replica.life));
            }
        }
        Action::Delete(node, life) => {
            state.deletions.remove(&(node, life));
            let is_meant = |replica: &Replica| replica.life == life || model.is(Mutant::DeletionHitsAnyLife);
            if state.nodes[node].replica.as_ref().is_some_and(is_meant) {
                state.nodes[node].replica = None;
                state.was_deleted = true;
            }
        }
        Action::Down(node) => {
            state.nodes[node].presence = Presence::Silent;
            state.downs += 1;
        }
        Action::TimePasses => {
            for node in state.nodes.iter_mut().filter(|node| node.presence == Presence::Silent) {
                node.presence = Presence::Gone;
            }
        }
        Action::Up(node) => state.nodes[node].presence = Presence::Up,
        Action::LoseDisk(node) => {
            state.nodes[node].replica = None;
            state.losses += 1;
        }
    }
    if is_of_master(action) {
        let count = |of: &State| of.nodes_with(state.content);
        let (there_were, there_are) = (count(&before), count(state));
        state.was_lowered |= there_are < there_were && there_are < WANTED;
    }
}

fn is_of_master(action: Action) -> bool {
    !matches!(
        action,
        Action::Acquire
            | Action::BeginWrite
            | Action::Send(_)
            | Action::Commit
            | Action::Release
            | Action::HolderDies
            | Action::Down(_)
            | Action::TimePasses
            | Action::Up(_)
            | Action::LoseDisk(_)
    )
}

/// Pulls and stamps are asked and answered at once here; the master may die before it records them.
fn pull_and_stamp(state: &mut State) {
    let answers = |state: &State, node: usize| state.is_up(node) && state.answered & (1 << node) != 0;
    let Some(winner) = state.members().find(|node| answers(state, *node) && is_winner(state, *node)) else { return };
    let Some(Replica { version: base, content, .. }) = state.nodes[winner].replica else { return };
    let mut stamped = 0;
    for node in state.members().collect::<Vec<_>>() {
        let is_there = answers(state, node);
        let epoch = state.epoch;
        match &mut state.nodes[node].replica {
            Some(replica) if is_there => {
                (replica.version, replica.content) = ((epoch, 0), content);
                stamped |= 1 << node;
            }
            // A recovery does not wait for a member that has lost its disk: it needs another replica.
            None if is_there => {}
            _ => state.was_hasty |= state.nodes[node].presence != Presence::Gone,
        }
    }
    state.settled = Some(Settled { base, content, stamped });
}

fn finish(state: &mut State) {
    let Some(Settled { base, content, stamped }) = state.settled.take() else { return };
    let epoch = state.epoch;
    let is_unchanged = |one: &LeftOut| base == (one.epoch, 0);
    let earlier = state.left_out.iter().filter(|one| is_unchanged(one)).map(|one| LeftOut { epoch, ..*one });
    let now = state.members().filter(|node| stamped & (1 << node) == 0).map(|node| LeftOut { node, base, epoch });
    let left_out = now.chain(earlier).collect();
    state.left_out = left_out;
    state.set = stamped;
    (state.committed, state.content) = ((epoch, 0), content);
    (state.recovering, state.answered, state.unfit) = (false, 0, 0);
}

fn rejoin(model: &Returns, state: &mut State, node: usize) {
    let Some(one) = state.left_out.iter().find(|one| one.node == node).copied() else { return };
    let (epoch, set, committed) = (state.epoch, state.set, state.committed);
    let to = &mut state.nodes[node];
    to.promised = to.promised.max(one.epoch);
    let Some(replica) = &mut to.replica else { return };
    if replica.version == one.base || model.is(Mutant::RejoinsWithoutComparing) {
        replica.version = committed;
        replica.life += 1;
        state.joining = Some(Joining { node, epoch, set, rejoins: true });
    } else {
        state.unfit |= 1 << node;
    }
}

fn copy(state: &mut State, node: usize, action: Action) {
    state.copies += 1;
    let life = state.nodes[node].replica.map_or(state.copies, |replica| replica.life) + 1;
    let replica = Replica { version: state.committed, content: state.content, life };
    state.nodes[node].replica = Some(replica);
    state.nodes[node].promised = state.epoch;
    if action == Action::Copy(node) {
        state.joining = Some(Joining { node, epoch: state.epoch, set: state.set, rejoins: false });
    }
}

/// Compare-and-swap: the set has not been written to or changed meanwhile.
fn record(model: &Returns, state: &mut State) {
    let Some(joining) = state.joining.take() else { return };
    let is_same = state.is_idle() && state.epoch == joining.epoch && state.set == joining.set;
    if is_same || model.is(Mutant::RecordsWithoutComparing) {
        state.set |= 1 << joining.node;
        state.has_rejoined |= joining.rejoins;
        state.left_out.retain(|one| one.node != joining.node);
        if state.set.count_ones() >= WANTED as u32 {
            state.left_out.clear();
        }
    }
}

/// Whether the master's own acts complete the set and remove replicas in no set, once all nodes are there and no client
/// writes.
pub fn becomes_complete(model: &Returns, state: &State) -> bool {
    let is_possible = state.members().any(|node| state.is_good(node));
    if !state.is_idle() || !is_possible {
        return true;
    }
    let mut state = state.clone();
    for node in &mut state.nodes {
        node.presence = Presence::Up;
    }
    // More than a few steps would mean that it goes round in circles.
    for _ in 0..32 {
        let next = (0..model.bounds.nodes).find_map(|node| {
            let can = [
                (state.joining.is_some(), Action::Record),
                (may_rejoin(model, &state, node), Action::Rejoin(node)),
                (may_mend(&state, node), Action::Mend(node)),
                (may_copy(model, &state, node), Action::Copy(node)),
                (may_judge(model, &state, node), Action::Judge(node)),
            ];
            can.into_iter().find(|(is_possible, _)| *is_possible).map(|(_, action)| action)
        });
        let deletion = state.deletions.iter().next().map(|(node, life)| Action::Delete(*node, *life));
        let Some(action) = next.or(deletion) else { break };
        perform(model, &mut state, action);
    }
    let has_strays = (0..NODES).any(|node| !state.is_member(node) && state.nodes[node].replica.is_some());
    state.good_members() == WANTED && !has_strays
}
