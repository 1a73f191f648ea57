//! What breaks.

use crate::raid::state::{METABLOCKS, Places, State};
use crate::raid::{Action, Raid};

pub(super) fn enumerate(protocol: &Raid, state: &State, actions: &mut Vec<Action>) {
    let (bounds, used) = (&protocol.bounds, &state.used);
    for (place, node) in state.nodes.iter().enumerate() {
        if node.is_lost {
            continue;
        }
        if !node.is_up {
            actions.push(Action::Return(place));
            continue;
        }
        if used.absences < bounds.absences {
            actions.push(Action::Leave(place));
        }
        // The next loss comes when the last one has been made good.
        if used.losses < bounds.losses && !state.is_hurt {
            actions.push(Action::Lose(place));
        }
        if used.spoils < bounds.spoils && !state.is_hurt {
            let has = |metablock: &usize| node.disk[*metablock].is_some_and(|replica| replica.is_synced);
            actions.extend((0..METABLOCKS).filter(has).map(|metablock| Action::Spoil(place, metablock)));
        }
        let loses = node.disk.iter().flatten().any(|replica| !replica.is_synced);
        if used.crashes < bounds.crashes && loses {
            actions.push(Action::Crash(place));
        }
    }
    if used.restarts < bounds.restarts {
        actions.push(Action::Restart);
    }
}

pub(super) fn lose(state: &mut State, place: usize) {
    let node = &mut state.nodes[place];
    (node.is_up, node.is_lost) = (false, true);
    node.disk = [None; METABLOCKS];
    (state.used.losses, state.is_hurt) = (state.used.losses + 1, true);
}

pub(super) fn spoil(state: &mut State, place: usize, metablock: usize) {
    if let Some(replica) = &mut state.nodes[place].disk[metablock] {
        replica.is_spoiled = true;
    }
    (state.used.spoils, state.is_hurt) = (state.used.spoils + 1, true);
}

pub(super) fn crash(state: &mut State, place: usize) {
    for replica in &mut state.nodes[place].disk {
        *replica = replica.filter(|replica| replica.is_synced);
    }
    state.used.crashes += 1;
}

/// The encoder goes on, and its answer comes to the next leader.
pub(super) fn restart(state: &mut State) {
    state.term += 1;
    state.used.restarts += 1;
    (state.rebuild, state.frozen) = (None, [Places::default(); 2]);
}
