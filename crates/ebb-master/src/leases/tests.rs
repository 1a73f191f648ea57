use super::*;

const FILE: InodeId = InodeId::new(5);

fn session(number: u64) -> SessionId {
    SessionId::new(number)
}

fn held_by(holder: u64) -> FileView {
    FileView { holder: Some(session(holder)), ..Default::default() }
}

fn recalls(list: &[(u64, Mode)]) -> Decision {
    Decision::Wait { recalls: list.iter().map(|(id, keep)| (session(*id), *keep)).collect() }
}

/// Decides a wish that has no competition and leaves the queue.
fn once(leases: &mut Leases, view: FileView, id: u64, mode: Mode) -> Decision {
    let wish = leases.enter(session(id), FILE, mode);
    let decision = leases.decide(view, &wish);
    leases.leave(&wish);
    decision
}

#[test]
fn any_number_of_readers_or_one_writer() {
    let mut leases = Leases::default();
    let free = FileView::default();
    assert_eq!(once(&mut leases, free, 1, Mode::Read), Decision::Granted);
    assert_eq!(once(&mut leases, free, 2, Mode::Read), Decision::Granted);
    assert_eq!(once(&mut leases, free, 3, Mode::Write), recalls(&[(1, Mode::None), (2, Mode::None)]));
    leases.remove_reader(session(1), FILE);
    // Its own read lease is not in a writer's way.
    assert_eq!(once(&mut leases, free, 2, Mode::Write), Decision::Propose);
    assert_eq!(once(&mut leases, held_by(2), 1, Mode::Write), recalls(&[(2, Mode::None)]));
    assert_eq!(once(&mut leases, held_by(2), 1, Mode::Read), recalls(&[(2, Mode::Read)]));
    assert_eq!(once(&mut leases, held_by(2), 2, Mode::Read), Decision::Granted);
}

#[test]
fn readers_do_not_pass_a_waiting_writer() {
    let mut leases = Leases::default();
    let free = FileView::default();
    leases.add_reader(session(1), FILE);
    let writer = leases.enter(session(2), FILE, Mode::Write);
    let late = leases.enter(session(3), FILE, Mode::Read);
    let later = leases.enter(session(4), FILE, Mode::Read);
    assert_eq!(leases.decide(free, &late), Decision::Wait { recalls: vec![] });
    leases.remove_reader(session(1), FILE);
    assert_eq!(
        leases.decide(free, &late),
        Decision::Wait { recalls: vec![] },
        "also while the writer's lease is logged"
    );
    assert_eq!(leases.decide(free, &writer), Decision::Propose);
    leases.leave(&writer);
    assert_eq!(leases.decide(held_by(2), &later), recalls(&[(2, Mode::Read)]), "reads go together");
    assert_eq!(leases.decide(free, &later), Decision::Granted);
    assert_eq!(leases.decide(free, &late), Decision::Granted);
}

#[test]
fn nothing_is_granted_while_a_file_is_recovered() {
    let mut leases = Leases::default();
    let view = FileView { recovering: true, ..Default::default() };
    for mode in [Mode::Read, Mode::Write] {
        assert_eq!(once(&mut leases, view, 1, mode), Decision::Wait { recalls: vec![] });
    }
}

#[test]
fn a_new_master_gives_no_write_lease_while_others_may_hold_read_leases() {
    let mut leases = Leases::default();
    let view = FileView { unclaimed: true, ..Default::default() };
    assert_eq!(once(&mut leases, view, 1, Mode::Read), Decision::Granted);
    assert_eq!(once(&mut leases, view, 2, Mode::Write), recalls(&[(1, Mode::None)]));
    leases.remove_reader(session(1), FILE);
    assert_eq!(once(&mut leases, view, 2, Mode::Write), Decision::Wait { recalls: vec![] });
    assert_eq!(once(&mut leases, FileView::default(), 2, Mode::Write), Decision::Propose);
}

#[test]
fn a_copy_by_the_master_keeps_writers_waiting_and_leaves_no_lease() {
    let mut leases = Leases::default();
    let copy = leases.enter(MASTER, FILE, Mode::Read);
    assert_eq!(leases.decide(held_by(1), &copy), recalls(&[(1, Mode::Read)]));
    assert_eq!(leases.decide(FileView::default(), &copy), Decision::Granted);
    assert_eq!(leases.readers(FILE).count(), 0);
    assert_eq!(once(&mut leases, FileView::default(), 1, Mode::Write), Decision::Wait { recalls: vec![] });
    assert_eq!(once(&mut leases, FileView::default(), 1, Mode::Read), Decision::Granted);
    leases.leave(&copy);
    assert_eq!(once(&mut leases, FileView::default(), 1, Mode::Write), Decision::Propose);
}

#[test]
fn a_session_that_ends_leaves_nothing_behind() {
    let mut leases = Leases::default();
    leases.add_reader(session(1), FILE);
    leases.add_open(session(1), FILE, 3);
    leases.add_open(session(2), FILE, 4);
    assert_eq!(leases.interested(FILE).len(), 2);
    leases.drop_session(session(1));
    assert!(leases.is_open(FILE) && !leases.is_open_by(session(1), FILE));
    leases.remove_open(session(2), FILE, Some(4));
    assert!(!leases.is_open(FILE));
    assert!(leases.files.is_empty() && leases.by_session.is_empty(), "{leases:?}");
}

#[test]
fn a_late_close_does_not_close_a_file_opened_since() {
    let mut leases = Leases::default();
    leases.add_open(session(1), FILE, 4);
    leases.remove_open(session(1), FILE, Some(3));
    assert!(leases.is_open_by(session(1), FILE));
    // An open that comes late does not take the later one's number away.
    leases.add_open(session(1), FILE, 2);
    leases.remove_open(session(1), FILE, Some(3));
    assert!(leases.is_open_by(session(1), FILE));
    leases.remove_open(session(1), FILE, Some(4));
    assert!(!leases.is_open(FILE));
    leases.add_open(session(1), FILE, 0);
    leases.remove_open(session(1), FILE, Some(1));
    assert!(leases.files.is_empty(), "who made it has opened it before any other open: {leases:?}");
}

/// All short histories of three sessions: never a reader beside a writer, and the books close at the end.
#[test]
fn no_history_grants_conflicting_leases() {
    // Each step is one of: session s wants to read / to write / gives everything back.
    let steps: Vec<(u64, Mode)> =
        (1..=3).flat_map(|id| [(id, Mode::Read), (id, Mode::Write), (id, Mode::None)]).collect();
    let mut histories = 0;
    for history in 0..steps.len().pow(5) {
        let (mut leases, mut holder, mut rest) = (Leases::default(), None, history);
        for _ in 0..5 {
            let (id, mode) = steps[rest % steps.len()];
            rest /= steps.len();
            let id = session(id);
            if mode == Mode::None {
                leases.remove_reader(id, FILE);
                holder = holder.filter(|holder| *holder != id);
                continue;
            }
            let wish = leases.enter(id, FILE, mode);
            if leases.decide(FileView { holder, ..Default::default() }, &wish) == Decision::Propose {
                holder = Some(id);
                leases.remove_reader(id, FILE);
            }
            leases.leave(&wish);
            let others = leases.readers(FILE).filter(|reader| Some(*reader) != holder).count();
            assert!(holder.is_none() || others == 0, "history {history}: {holder:?} writes beside {leases:?}");
        }
        for id in 1..=3 {
            leases.drop_session(session(id));
        }
        assert!(leases.files.is_empty(), "history {history}");
        histories += 1;
    }
    assert_eq!(histories, 59_049);
}
