//! The actions of the model.

use super::state::{Entry, MEMBERS, METABLOCKS, Message, NOTHING, Phase, State, Ticket, VIA, is_in};
use super::{Direct, Mutant, Variant};

/// One step. See the table in [`super`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// A client is given a ticket, and begins to put.
    AskTicket(u8),
    /// Something arrives, and its answer. An answer that is lost is a message that comes again.
    Deliver(Message),
    /// A client that every member has answered reports to the proxy.
    Report(u8),
    /// The proxy gives a reported write its place in the first metablock.
    Commit(Ticket, u8),
    /// And in the second.
    CommitRest,
    /// The time of a ticket is over.
    Abort(u8),
    /// A write by way of the proxy comes.
    Enter,
    /// Its turn comes.
    Write,
    /// The proxy fetches the put bytes of a place that this member has not filled, and sends them.
    FetchBack(usize, usize, usize),
    /// A member falls asleep.
    Sleep(usize),
    /// And wakes.
    Wake,
    /// The proxy has the next write of a metablock logged by a member's node.
    Log(usize, usize),
    /// The proxy answers a write.
    Answer(u8),
    /// A member syncs, and the proxy hears of it.
    Sync(usize),
    /// The proxy drops the put bytes of writes that all members have synced.
    Settle,
    /// fsync returns to the clients that have had answers.
    Fsync,
    /// A client reads both metablocks.
    Read,
    /// A member's process.
    Crash(usize),
    /// The proxy's process.
    ProxyDies,
    /// The file's recovery, and the next proxy.
    Recover,
}

/// Everything that may happen now.
pub fn enumerate(model: &Direct, state: &State, actions: &mut Vec<Action>) {
    let bounds = model.bounds;
    let mut may = |is_possible: bool, action: Action| {
        if is_possible {
            actions.push(action);
        }
    };
    for member in 0..MEMBERS {
        let is_awake = state.asleep != Some(member);
        may(is_awake && state.crashes < bounds.crashes, Action::Crash(member));
        may(state.asleep.is_none() && state.sleeps < bounds.sleeps, Action::Sleep(member));
        // The code syncs a member that lags behind, too. A crash before that leads to the same states.
        let (one, is_whole) =
            (&state.members[member], |at: usize| state.members[member].content[at].len() == state.placed[at].len());
        let lags = (0..METABLOCKS).any(|at| one.synced[at] < one.content[at].len());
        may(is_awake && bounds.syncs && lags && (0..METABLOCKS).all(is_whole), Action::Sync(member));
    }
    may(state.asleep.is_some(), Action::Wake);
    for message in &state.net {
        match message {
            Message::Put { member, .. } | Message::Apply { member, .. } | Message::Log { keeper: member, .. } => {
                may(state.asleep != Some(*member), Action::Deliver(*message));
            }
            Message::Report { ticket, write } => {
                may(!state.is_dead && may_commit(model, state, *ticket, *write), Action::Commit(*ticket, *write));
            }
        }
    }
    for write in 0..bounds.direct {
        if let Phase::Puts(_, had) = state.clients[usize::from(write)] {
            may(had.iter().all(|had| *had) || model.is(Mutant::AnswersEarly), Action::Report(write));
        }
    }
    if state.is_dead {
        // It waits for a member that sleeps.
        may(state.asleep.is_none(), Action::Recover);
        return;
    }
    for keeper in (0..MEMBERS).filter(|keeper| state.asleep.is_some_and(|asleep| asleep != *keeper)) {
        for metablock in 0..METABLOCKS {
            may(next_logged(state, metablock) < state.placed[metablock].len(), Action::Log(keeper, metablock));
        }
    }
    for write in 0..bounds.direct {
        may(state.clients[usize::from(write)] == Phase::Idle, Action::AskTicket(write));
        may(state.queue.iter().any(|entry| entry.write == write && !entry.is_half), Action::Abort(write));
    }
    may(state.queue.iter().any(|entry| entry.is_half), Action::CommitRest);
    may(bounds.via && state.via.is_none(), Action::Enter);
    let place = state.queue.iter().position(|entry| entry.write == VIA && !entry.is_half);
    let is_free = !state.queue.iter().any(|entry| entry.is_half);
    may(place.is_some_and(|place| is_free && (place == 0 || model.is(Mutant::ViaOvertakes))), Action::Write);
    for write in 0..=VIA {
        may(may_answer(model, state, write), Action::Answer(write));
    }
    let may_sync = all_safe(state) || model.is(Mutant::FsyncGoesByReceived);
    may(bounds.syncs && may_sync && state.fsynced != state.answered, Action::Fsync);
    let may_show = all_safe(state) || model.is(Mutant::ShowsUnsynced);
    may(bounds.syncs && may_show && (is_free || model.is(Mutant::ReadsBetween)), Action::Read);
    may(bounds.syncs && all_synced(state) && state.placed[0].len() > state.settled, Action::Settle);
    may(state.epoch < bounds.deaths, Action::ProxyDies);
    for member in 0..MEMBERS {
        for metablock in 0..METABLOCKS {
            let place = state.members[member].content[metablock].len();
            let lost = state.placed[metablock].get(place).and_then(|write| ticket_of(state, *write));
            let is_lost = lost.is_some_and(|ticket| !state.members[member].staged.contains_key(&ticket));
            may(is_lost, Action::FetchBack(member, metablock, place));
        }
    }
}

/// First in the queue, not given up, not done before.
fn may_commit(model: &Direct, state: &State, ticket: Ticket, write: u8) -> bool {
    if ticket.0 != state.epoch || state.queue.iter().any(|entry| entry.is_half) {
        return false;
    }
    if model.is(Mutant::AppliesWhatWasGivenUp) && is_in(write, state.aborted) {
        return !state.placed[0].contains(&write);
    }
    if model.is(Mutant::RepeatsReports) && state.placed[0].contains(&write) {
        return state.placed[0].len() < 3;
    }
    let place = state.queue.iter().position(|entry| entry.ticket == Some(ticket));
    place.is_some_and(|place| place == 0 || model.is(Mutant::Overtakes))
}

/// All members have said that they have it, or it is logged; or one has, if that is the mistake.
fn may_answer(model: &Direct, state: &State, write: u8) -> bool {
    let asked = match state.clients.get(usize::from(write)) {
        Some(Phase::Reported(ticket)) => Some(ticket.0),
        Some(_) => None,
        None => state.via,
    };
    if is_in(write, state.answered) || asked != Some(state.epoch) {
        return false;
    }
    let has = |member: usize| {
        (0..METABLOCKS).all(|metablock| {
            let place = state.placed[metablock].iter().position(|one| *one == write);
            place.is_some_and(|place| state.received[member][metablock].max(state.logged[metablock]) > place)
        })
    };
    match model.is(Mutant::AnswersEarly) {
        true => (0..MEMBERS).any(has),
        false => (0..MEMBERS).all(has),
    }
}

/// Everything that has a place is on all disks. Syncs are asked and answered at once here: the first model has them late.
fn all_synced(state: &State) -> bool {
    let is_synced =
        |member: usize, metablock: usize| state.members[member].synced[metablock] >= state.placed[metablock].len();
    (0..MEMBERS).all(|member| (0..METABLOCKS).all(|metablock| is_synced(member, metablock)))
}

/// Everything that has a place is on all disks, or logged.
fn all_safe(state: &State) -> bool {
    (0..METABLOCKS).all(|metablock| next_logged(state, metablock) >= state.placed[metablock].len())
}

/// The first place of a metablock that is neither logged nor synced by every member.
fn next_logged(state: &State, metablock: usize) -> usize {
    state.logged[metablock].max(state.settled(metablock))
}

/// Does one of them.
pub fn perform(model: &Direct, state: &mut State, action: Action) {
    match action {
        Action::AskTicket(write) => ask_ticket(model, state, write),
        Action::Deliver(message) => deliver(model, state, message),
        Action::Report(write) => {
            if let Phase::Puts(ticket, _) = state.clients[usize::from(write)] {
                state.clients[usize::from(write)] = Phase::Reported(ticket);
                state.net.insert(Message::Report { ticket, write });
            }
        }
        Action::Commit(ticket, write) => {
            note_overtaking(state, write);
            if !state.queue.iter().any(|entry| entry.write == write) {
                state.queue.push(Entry { write, ticket: Some(ticket), is_half: false });
            }
            place_half(state, write);
        }
        Action::CommitRest => {
            if let Some(at) = state.queue.iter().position(|entry| entry.is_half) {
                let entry = state.queue.remove(at);
                place(state, 1, entry);
            }
        }
        Action::Abort(write) => {
            state.queue.retain(|entry| entry.write != write);
            state.aborted |= 1 << write;
            drop_staged(state, write);
        }
        Action::Enter => {
            state.via = Some(state.epoch);
            state.queue.push(Entry { write: VIA, ticket: None, is_half: false });
        }
        Action::Write => {
            note_overtaking(state, VIA);
            place_half(state, VIA);
        }
        Action::FetchBack(member, metablock, place) => fetch_back(model, state, member, metablock, place),
        Action::Answer(write) => {
            state.answered |= 1 << write;
            state.was_answered_after |= state.epoch > 0;
        }
        Action::Sync(member) => {
            let member = &mut state.members[member];
            for metablock in 0..METABLOCKS {
                member.synced[metablock] = member.content[metablock].len();
            }
        }
        Action::Settle => {
            state.settled = state.placed[0].len();
            for write in state.placed[0].clone() {
                if write < VIA && !state.is_half(write) {
                    drop_staged(state, write);
                }
            }
        }
        Action::Sleep(member) => (state.asleep, state.sleeps) = (Some(member), state.sleeps + 1),
        Action::Wake => state.asleep = None,
        Action::Log(keeper, metablock) => {
            let place = next_logged(state, metablock);
            let write = state.placed[metablock][place];
            let (epoch, ticket) = (state.epoch, ticket_of(state, write));
            let bytes = (write == VIA).then_some(VIA);
            state.net.insert(Message::Log { keeper, epoch, metablock, place, ticket, bytes });
        }
        Action::Fsync => state.fsynced |= state.answered,
        Action::Read => read(state),
        Action::Crash(member) => crash(state, member),
        Action::ProxyDies => proxy_dies(state),
        Action::Recover => recover(model, state),
    }
}

fn ask_ticket(model: &Direct, state: &mut State, write: u8) {
    let process = if model.is(Mutant::TicketsWithoutProcess) { 0 } else { state.epoch };
    // The report names the process all the same.
    let ticket = (state.epoch, state.tickets);
    state.tickets += 1;
    state.ticket_of[usize::from(write)] = Some((process, ticket.1));
    state.queue.push(Entry { write, ticket: Some(ticket), is_half: false });
    // A member that sleeps gets them later: from the log, or from where they were put.
    let sleeps = |member: usize| state.asleep == Some(member);
    let had = std::array::from_fn(sleeps);
    state.clients[usize::from(write)] = Phase::Puts(ticket, had);
    for member in (0..MEMBERS).filter(|member| !had[*member]) {
        state.net.insert(Message::Put { member, ticket: (process, ticket.1), write });
    }
}

fn deliver(model: &Direct, state: &mut State, message: Message) {
    match message {
        Message::Put { member, ticket, write } => {
            // Present bytes stay: a repeated put brings the same.
            state.members[member].staged.entry(ticket).or_insert(write);
            if let Phase::Puts(_, had) = &mut state.clients[usize::from(write)] {
                had[member] = true;
            }
        }
        Message::Apply { member, epoch, metablock, place, ticket, bytes } => {
            let to = &mut state.members[member];
            if epoch < to.promised && !model.is(Mutant::IgnoresEpochs) {
                return;
            }
            if to.content[metablock].len() == place {
                let put = ticket.and_then(|ticket| to.staged.get(&ticket).copied());
                match bytes.or(put) {
                    Some(write) => {
                        to.content[metablock].push(write);
                        if model.variant == Variant::RollsForward && write < VIA {
                            to.noted[metablock] |= 1 << write;
                        }
                    }
                    None if model.is(Mutant::AppliesNothing) => to.content[metablock].push(NOTHING),
                    // "I have not got it": the proxy fetches it back.
                    None => {}
                }
            }
            let has = to.content[metablock].len();
            if epoch == state.epoch && !state.is_dead {
                state.received[member][metablock] = has;
            }
        }
        Message::Log { keeper, epoch, metablock, place, ticket, bytes } => {
            if epoch < state.log_promised {
                return;
            }
            let put = ticket.and_then(|ticket| state.members[keeper].staged.get(&ticket).copied());
            let nothing = model.is(Mutant::LogsNothing).then_some(NOTHING);
            // Without the bytes it refuses, and the proxy fetches them back.
            let Some(write) = bytes.or(put).or(nothing) else { return };
            state.log[metablock].insert(place, write);
            if epoch == state.epoch && !state.is_dead {
                state.logged[metablock] = state.logged[metablock].max(place + 1);
            }
        }
        Message::Report { .. } => {}
    }
}

fn note_overtaking(state: &mut State, write: u8) {
    let before = state.queue.iter().take_while(|entry| entry.write != write).count();
    let was_queued = state.queue.iter().any(|entry| entry.write == write);
    state.was_overtaken |= was_queued && before > 0;
}

fn place_half(state: &mut State, write: u8) {
    if let Some(at) = state.queue.iter().position(|entry| entry.write == write) {
        state.queue[at].is_half = true;
        let entry = state.queue[at];
        place(state, 0, entry);
    }
}

/// A write gets its place in a metablock, and is sent to the members.
fn place(state: &mut State, metablock: usize, entry: Entry) {
    let place = state.placed[metablock].len();
    state.placed[metablock].push(entry.write);
    let ticket = ticket_of(state, entry.write);
    let bytes = (entry.write == VIA).then_some(VIA);
    for member in 0..MEMBERS {
        let epoch = state.epoch;
        state.net.insert(Message::Apply { member, epoch, metablock, place, ticket, bytes });
    }
}

/// The bytes of a place for a member that has not got them. They come only from where they were put, because another
/// member may have newer content in the metablock.
fn fetch_back(model: &Direct, state: &mut State, member: usize, metablock: usize, place: usize) {
    let write = state.placed[metablock][place];
    let bytes = if model.is(Mutant::FetchesWhatIsThere) {
        let content = state.members.iter().map(|one| &one.content[metablock]).find(|content| content.len() > place);
        content.and_then(|content| content.last().copied())
    } else {
        let awake = (0..MEMBERS).filter(|one| state.asleep != Some(*one));
        let put = ticket_of(state, write)
            .and_then(|ticket| awake.map(|one| &state.members[one]).find_map(|one| one.staged.get(&ticket).copied()));
        put.or_else(|| state.log[metablock].get(&place).copied())
    };
    if bytes.is_some() {
        state.was_fetched = true;
        let epoch = state.epoch;
        state.net.insert(Message::Apply { member, epoch, metablock, place, ticket: None, bytes });
    }
}

/// The ticket of a direct write.
fn ticket_of(state: &State, write: u8) -> Option<Ticket> {
    state.ticket_of.get(usize::from(write)).copied().flatten()
}

fn drop_staged(state: &mut State, write: u8) {
    if let Some(ticket) = state.ticket_of[usize::from(write)] {
        for member in &mut state.members {
            member.staged.remove(&ticket);
        }
    }
}

/// The proxy shows all writes that have a place. Half a write does not count.
fn read(state: &mut State) {
    let has = |metablock: usize, write: u8| state.placed[metablock].contains(&write);
    let is_own = |write: u8| state.queue.iter().any(|entry| entry.write == write && entry.is_half);
    for write in 0..=VIA {
        // A write of which a recovery has found half was never answered.
        state.was_torn |= has(0, write) != has(1, write) && is_own(write);
        if has(0, write) && has(1, write) {
            state.shown |= 1 << write;
        }
    }
}

fn crash(state: &mut State, member: usize) {
    state.crashes += 1;
    let crashed = &mut state.members[member];
    crashed.staged.clear();
    crashed.noted = Default::default();
    for metablock in 0..METABLOCKS {
        crashed.content[metablock].truncate(crashed.synced[metablock]);
    }
}

fn proxy_dies(state: &mut State) {
    state.is_dead = true;
    state.queue.clear();
    state.received = Default::default();
}

/// In each metablock the longest content wins, is given to all, and synced. A client that had a ticket does not ask for
/// another one.
fn recover(model: &Direct, state: &mut State) {
    state.epoch += 1;
    state.is_dead = false;
    (state.tickets, state.settled) = (0, 0);
    let may_be_completed = known(state) & kept(state);
    if model.is(Mutant::PromiseDropsPuts) {
        state.members.iter_mut().for_each(|member| member.staged.clear());
    }
    for metablock in 0..METABLOCKS {
        let contents = state.members.iter().map(|member| &member.content[metablock]);
        let winner = if model.is(Mutant::RecoveryTakesTheShortest) {
            contents.min_by_key(|content| content.len())
        } else {
            contents.max_by_key(|content| content.len())
        };
        state.placed[metablock] = winner.cloned().unwrap_or_default();
        if !model.is(Mutant::RecoveryIgnoresLog) {
            replay(state, metablock);
        }
        state.log[metablock].clear();
        state.logged[metablock] = state.placed[metablock].len();
    }
    state.log_promised = state.epoch;
    if model.variant == Variant::RollsForward {
        roll_forward(model, state);
    }
    for metablock in 0..METABLOCKS {
        let content = &state.placed[metablock];
        for member in &mut state.members {
            member.promised = state.epoch;
            member.synced[metablock] = content.len();
            member.content[metablock].clone_from(content);
        }
    }
    for member in &mut state.members {
        // The recovery is over, and the bytes kept for it are not needed any more.
        if model.variant == Variant::RollsForward {
            member.staged.clear();
        }
        member.noted = Default::default();
    }
    for member in 0..MEMBERS {
        state.received[member] = [state.placed[0].len(), state.placed[1].len()];
    }
    state.was_not_completed |= (0..VIA).any(|write| is_in(write, may_be_completed) && state.is_half(write));
    let is_there = |write: u8| (0..METABLOCKS).all(|metablock| state.placed[metablock].contains(&write));
    let lost =
        (0..=VIA).filter(|write| is_in(*write, state.answered) && !is_there(*write)).fold(0, |all, one| all | 1 << one);
    if state.crashes >= MEMBERS as u8 {
        // Power has failed with the proxy: each writer gets an error that its write may be gone.
        state.answered &= !lost;
    }
    state.was_lost |= state.answered & lost != 0;
}

/// What was logged comes behind the longest content.
fn replay(state: &mut State, metablock: usize) {
    let placed = &mut state.placed[metablock];
    while let Some(write) = state.log[metablock].get(&placed.len()) {
        state.was_replayed = true;
        placed.push(*write);
    }
}

/// Completes, in the order in which one metablock has them, the direct writes that the other lacks.
fn roll_forward(model: &Direct, state: &mut State) {
    let (known, kept) = (known(state), kept(state));
    for (from, to) in [(0, 1), (1, 0)] {
        for write in state.placed[from].clone() {
            if write == VIA || state.placed[to].contains(&write) || !is_in(write, known) {
                continue;
            }
            if model.is(Mutant::CompletesFromContent) {
                // Any content of a member at that place counts as the bytes.
                let bytes = state.placed[from].last().copied();
                state.placed[to].extend(bytes);
            } else if is_in(write, kept) {
                state.placed[to].push(write);
                state.was_completed = true;
            }
        }
    }
    if model.is(Mutant::CompletesWhatNobodyApplied) {
        for write in (0..VIA).filter(|write| is_in(*write, kept)) {
            state.placed.iter_mut().filter(|placed| !placed.contains(&write)).for_each(|placed| placed.push(write));
        }
    }
}

/// Direct writes of which some member knows that it has applied them.
fn known(state: &State) -> u8 {
    state.members.iter().flat_map(|member| member.noted).fold(0, |all, noted| all | noted)
}

/// Direct writes whose put bytes a member still keeps.
fn kept(state: &State) -> u8 {
    state.members.iter().flat_map(|member| member.staged.values()).fold(0, |all, write| all | 1 << write)
}
