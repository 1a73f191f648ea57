use ebb_types::WallTime;
use proptest::prelude::*;

use super::*;

const DIRECTORY: InodeId = InodeId::new(5);
const FILE: InodeId = InodeId::new(9);

fn attr(inode: InodeId, ctime_ns: i64) -> Attr {
    Attr { ctime: WallTime(ctime_ns), ..Attr::empty(inode, FileKind::Directory) }
}

#[test]
fn an_answer_that_passed_a_change_on_its_way_is_not_kept() {
    let known = Known::default();
    let asking = known.ask();
    known.forget(&[DIRECTORY]);
    known.put_name(&asking, DIRECTORY, b"a", Some(FILE));
    known.put_attr(&asking, attr(DIRECTORY, 1));
    assert_eq!(known.name(DIRECTORY, b"a"), Name::Unknown);
    assert_eq!(known.attr(DIRECTORY), None);
    let later = known.ask();
    known.put_name(&later, DIRECTORY, b"a", Some(FILE));
    assert_eq!(known.name(DIRECTORY, b"a"), Name::Leads(FILE));
}

#[test]
fn a_size_that_was_asked_for_before_a_lease_ended_may_never_have_been_right() {
    let file = Attr { kind: FileKind::File, ..attr(FILE, 1) };
    let known = Known::default();
    let asking = known.ask();
    assert_eq!(asking.trust(&file), Trust::Kept);
    known.forget(&[FILE]);
    assert_eq!(asking.trust(&file), Trust::Once);
    let lowering = known.ask();
    known.on_lowered(&lowering, FILE, Some(file));
    assert_eq!(known.attr(FILE), Some(file), "what came with the lease is known");
    assert_eq!(asking.trust(&file), Trust::Never);
    assert_eq!(asking.trust(&attr(FILE, 1)), Trust::Once, "the master knows the size of what is not a file");
    assert_eq!(known.ask().trust(&file), Trust::Kept);
    known.clear();
    assert_eq!(lowering.trust(&file), Trust::Never);
}

#[test]
fn a_change_of_another_name_does_not_disturb() {
    let known = Known::default();
    let (asking, making) = (known.ask(), known.ask());
    known.on_own_name(&making, DIRECTORY, b"b", Some(FILE), Some(attr(DIRECTORY, 2)));
    known.put_name(&asking, DIRECTORY, b"a", None);
    known.put_attr(&asking, attr(DIRECTORY, 1));
    assert_eq!(known.name(DIRECTORY, b"a"), Name::Missing);
    assert_eq!(known.name(DIRECTORY, b"b"), Name::Leads(FILE));
    assert_eq!(known.attr(DIRECTORY).unwrap().ctime.0, 2);
}

#[test]
fn two_changes_of_one_name_at_once_leave_it_unknown() {
    let known = Known::default();
    let empty = known.ask();
    known.put_empty(&empty, DIRECTORY);
    assert_eq!(known.name(DIRECTORY, b"a"), Name::Missing);
    // Made, then removed; the answers come the other way round.
    let (making, removing) = (known.ask(), known.ask());
    known.on_own_name(&removing, DIRECTORY, b"a", None, Some(attr(DIRECTORY, 2)));
    known.on_own_name(&making, DIRECTORY, b"a", Some(FILE), Some(attr(DIRECTORY, 1)));
    assert_eq!(known.name(DIRECTORY, b"a"), Name::Unknown);
    assert_eq!(known.attr(DIRECTORY), None);
    assert_eq!(known.name(DIRECTORY, b"other"), Name::Unknown, "what is not listed may be there");
}

fn page(after: Option<u64>, entries: &[DirEntry]) -> Page<'_> {
    Page { after, entries, is_last: false }
}

#[test]
fn a_listing_is_whole_only_if_nothing_happened_between_its_pages() {
    let entry = |name: &str, cookie| DirEntry {
        name: name.into(),
        inode: FILE,
        kind: FileKind::File,
        cookie,
        attr: None,
        map: None,
    };
    for disturbed in [false, true] {
        let known = Known::default();
        known.put_listing(&known.ask(), DIRECTORY, &page(None, &[entry("a", 3)]));
        assert_eq!(known.name(DIRECTORY, b"c"), Name::Unknown);
        if disturbed {
            let making = known.ask();
            known.on_own_name(&making, DIRECTORY, b"c", Some(FILE), Some(attr(DIRECTORY, 2)));
        }
        known.put_listing(&known.ask(), DIRECTORY, &Page { is_last: true, ..page(Some(3), &[entry("b", 4)]) });
        assert_eq!(known.name(DIRECTORY, b"b"), Name::Leads(FILE));
        assert_eq!(known.name(DIRECTORY, b"z") == Name::Unknown, disturbed);
    }
    let known = Known::default();
    known.put_listing(&known.ask(), DIRECTORY, &Page { is_last: true, ..page(None, &[]) });
    assert_eq!(known.name(DIRECTORY, b"a"), Name::Missing);
}

#[test]
fn nothing_outlives_the_session() {
    let known = Known::default();
    let before = known.ask();
    known.put_attr(&before, attr(FILE, 1));
    assert_eq!(known.clear(), [FILE]);
    known.put_attr(&before, attr(FILE, 1));
    known.put_name(&before, DIRECTORY, b"a", None);
    assert_eq!((known.attr(FILE), known.name(DIRECTORY, b"a")), (None, Name::Unknown));
}

#[test]
fn events_are_remembered_only_while_a_question_is_open() {
    let known = Known::default();
    let asking = known.ask();
    for _ in 0..10 {
        known.forget(&[FILE]);
    }
    assert_eq!(known.0.lock().events.len(), 10);
    drop(asking);
    assert!(known.0.lock().events.is_empty());
}

proptest! {
    /// A directory of three names on the master, changed by this client and by others, with answers that arrive in
    /// any order: a kept answer is never wrong.
    #[test]
    fn a_kept_answer_is_true(steps in prop::collection::vec((0u8..5, 0usize..3, any::<bool>(), 0usize..4), 0..80)) {
        let names: [&[u8]; 3] = [b"a", b"b", b"c"];
        let known = Known::default();
        let mut truth: [Option<InodeId>; 3] = [None; 3];
        let mut version = 0;
        // Answers on their way: their contents, and whether they are about a change.
        let mut flights: Vec<(Asking<'_>, usize, Option<InodeId>, i64, bool)> = Vec::new();
        for (action, name, there, pick) in steps {
            match action {
                0 => flights.push((known.ask(), name, truth[name], version, false)),
                1 => {
                    let asking = known.ask();
                    truth[name] = there.then_some(FILE);
                    version += 1;
                    flights.push((asking, name, truth[name], version, true));
                }
                // Others change it only after this client has forgotten.
                2 => {
                    known.forget(&[DIRECTORY]);
                    // An answer from before their change is on its way: the word to forget overtook it.
                    truth[name] = there.then_some(FILE);
                    version += 1;
                }
                _ if !flights.is_empty() => {
                    let (asking, name, answer, version, change) = flights.remove(pick % flights.len());
                    if change {
                        known.on_own_name(&asking, DIRECTORY, names[name], answer, Some(attr(DIRECTORY, version)));
                    } else {
                        known.put_name(&asking, DIRECTORY, names[name], answer);
                        known.put_attr(&asking, attr(DIRECTORY, version));
                    }
                }
                _ => {}
            }
            // A change whose answer has not come yet may show or not.
            let changing: Vec<usize> = flights.iter().filter(|flight| flight.4).map(|flight| flight.1).collect();
            for at in (0..3).filter(|at| !changing.contains(at)) {
                let believed = known.name(DIRECTORY, names[at]);
                let right = truth[at].map_or(Name::Missing, Name::Leads);
                prop_assert!(believed == Name::Unknown || believed == right, "{:?} for {:?}", believed, right);
            }
            if changing.is_empty() {
                prop_assert!(known.attr(DIRECTORY).is_none_or(|attr| attr.ctime.0 == version));
            }
        }
    }
}

#[test]
fn nothing_is_kept_of_a_file_that_has_lost_its_last_name() {
    let known = Known::default();
    let asking = known.ask();
    known.put_attr(&asking, attr(FILE, 1));
    known.put_empty(&asking, FILE);
    known.put_name(&asking, FILE, b"below", Some(DIRECTORY));
    known.forget_removed(FILE);
    let state = known.0.lock();
    assert_eq!((state.attrs.len(), state.directories.len(), state.names), (0, 0, 0));
}
