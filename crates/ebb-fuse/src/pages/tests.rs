use super::*;

const A: InodeId = InodeId::new(1);

/// The ranges of a drop that is done at once.
fn drop_served(pages: &mut Pages, inode: InodeId, changer: Changer) -> Served {
    let served = pages.begin_drop(inode, changer, false);
    if served != Served::Nothing {
        pages.notified(inode, Served::Nothing);
    }
    served
}

#[test]
fn a_writer_goes_around_the_cache_and_so_do_readers_meanwhile() {
    let mut pages = Pages::default();
    assert_eq!(pages.open(A, Access::Read, Way::Cached, Mappable::All), Way::Cached);
    assert_eq!(pages.open(A, Access::Write, Way::Cached, Mappable::All), Way::Direct);
    assert_eq!(pages.open(A, Access::Read, Way::Cached, Mappable::All), Way::Direct);
    pages.close(A, Access::Write, Way::Direct);
    assert_eq!(pages.open(A, Access::Read, Way::Cached, Mappable::All), Way::Cached);
    assert_eq!(
        pages.open(A, Access::Write, Way::Cached, Mappable::Cached),
        Way::Cached,
        "a kernel that cannot map what goes around"
    );
}

#[test]
fn served_pages_outlive_the_descriptor_until_the_kernel_drops_them() {
    let mut pages = Pages::default();
    pages.open(A, Access::Read, Way::Cached, Mappable::All);
    pages.serve(A, Way::Cached, 0, 10);
    assert_eq!(pages.close(A, Access::Read, Way::Cached), None);
    assert!(pages.may_have(A));
    assert_eq!(drop_served(&mut pages, A, Changer::ThisMount), Served::Ranges(vec![(0, 10)]));
    assert!(!pages.may_have(A) && pages.files.is_empty());
    (0..=RANGES_MAX as u64).for_each(|at| pages.serve(A, Way::Cached, at, 1));
    assert_eq!(drop_served(&mut pages, A, Changer::ThisMount), Served::Anything);
}

#[test]
fn writes_around_the_cache_drop_the_pages_of_others_alone() {
    let mut pages = Pages::default();
    pages.open(A, Access::Read, Way::Direct, Mappable::All);
    pages.serve(A, Way::Direct, 0, 10);
    assert!(!pages.may_have(A), "a change by this mount costs nothing more");
    assert_eq!(drop_served(&mut pages, A, Changer::ThisMount), Served::Nothing);
    pages.serve(A, Way::Cached, 20, 10);
    assert_eq!(drop_served(&mut pages, A, Changer::OtherMount), Served::Ranges(vec![(20, 10), (0, 10)]));
    pages.close(A, Access::Read, Way::Direct);
    assert!(pages.files.is_empty());
}

/// The kernel has caught up with an answer.
fn adapted(pages: &mut Pages, shown: Shown) {
    pages.adapted(A, shown);
    pages.notified(A, Served::Nothing);
}

fn shown(size: u64, time: i64) -> Shown {
    Shown { size, mtime: WallTime(time), ctime: WallTime(time) }
}

#[test]
fn an_answer_that_shows_a_change_drops_what_was_served_before() {
    let mut pages = Pages::default();
    assert_eq!(pages.adapt(A, shown(10, 1)), Adapt::Done, "the file is not in use");
    pages.open(A, Access::Read, Way::Cached, Mappable::All);
    let first = Behind { pages: Served::Nothing, grows: true };
    assert_eq!(pages.adapt(A, shown(10, 1)), Adapt::Do(first), "the kernel's size is not known");
    assert_eq!(pages.adapt(A, shown(10, 1)), Adapt::Wait);
    adapted(&mut pages, shown(10, 1));
    pages.serve(A, Way::Cached, 0, 10);
    assert_eq!(pages.adapt(A, shown(10, 1)), Adapt::Done, "nothing has changed");
    let changed = Behind { pages: Served::Ranges(vec![(0, 10)]), grows: false };
    assert_eq!(pages.adapt(A, shown(10, 2)), Adapt::Do(changed.clone()));
    // It was given up half-way.
    pages.notified(A, changed.pages);
    assert_eq!(pages.adapt(A, shown(12, 2)), Adapt::Do(Behind { pages: Served::Ranges(vec![(0, 10)]), grows: true }));
    pages.close(A, Access::Read, Way::Cached);
    adapted(&mut pages, shown(12, 2));
    assert!(pages.files.is_empty());
}

#[test]
fn an_answer_drops_what_mappings_brought_if_the_kernel_may_not_compare_it() {
    let mut pages = Pages::default();
    pages.open(A, Access::Read, Way::Direct, Mappable::All);
    pages.serve(A, Way::Direct, 0, 10);
    let grown = |ranges: &[(u64, u64)]| Behind { pages: Served::Ranges(ranges.to_vec()), grows: true };
    assert_eq!(pages.adapt(A, shown(10, 1)), Adapt::Do(grown(&[(0, 10)])), "a notice of the size");
    adapted(&mut pages, shown(10, 1));
    pages.serve(A, Way::Direct, 0, 10);
    assert_eq!(pages.adapt(A, shown(10, 2)), Adapt::Done, "the kernel compares, and nothing overtakes the answer");
    pages.open(A, Access::Read, Way::Cached, Mappable::All);
    assert_eq!(pages.adapt(A, shown(10, 2)), Adapt::Done, "nothing has changed");
    pages.serve(A, Way::Cached, 10, 10);
    let dropped = |ranges: &[(u64, u64)]| Adapt::Do(Behind { pages: Served::Ranges(ranges.to_vec()), grows: false });
    assert_eq!(pages.adapt(A, shown(10, 3)), dropped(&[(10, 10), (0, 10)]));
    adapted(&mut pages, shown(10, 3));
    pages.serve(A, Way::Direct, 20, 10);
    assert_eq!(pages.adapt(A, shown(10, 4)), dropped(&[(20, 10)]), "a faster answer may have overtaken this one");
}

#[test]
fn an_answer_waits_for_notifications() {
    let mut pages = Pages::default();
    assert_eq!(pages.begin_drop(A, Changer::ThisMount, false), Served::Nothing);
    assert!(pages.files.is_empty());
    pages.serve(A, Way::Cached, 0, 10);
    assert_eq!(pages.begin_drop(A, Changer::ThisMount, false), Served::Ranges(vec![(0, 10)]));
    assert_eq!(pages.begin_drop(A, Changer::OtherMount, true), Served::Anything);
    pages.notified(A, Served::Nothing);
    assert_eq!(pages.adapt(A, shown(10, 1)), Adapt::Wait);
    pages.notified(A, Served::Nothing);
    assert!(pages.files.is_empty());
    assert_eq!(pages.adapt(A, shown(10, 1)), Adapt::Done);
}

#[test]
fn the_size_of_an_empty_file_is_not_raised() {
    let mut pages = Pages::default();
    pages.open(A, Access::Read, Way::Cached, Mappable::All);
    assert_eq!(pages.adapt(A, shown(0, 1)), Adapt::Done);
    assert!(matches!(pages.adapt(A, shown(1, 2)), Adapt::Do(Behind { grows: true, .. })));
}

#[test]
fn the_size_that_a_program_here_wrote_is_known_to_the_kernel() {
    let mut pages = Pages::default();
    pages.open(A, Access::Write, Way::Cached, Mappable::All);
    assert!(matches!(pages.adapt(A, shown(10, 1)), Adapt::Do(_)));
    adapted(&mut pages, shown(10, 1));
    pages.on_written(A, 30);
    assert_eq!(pages.adapt(A, shown(30, 2)), Adapt::Done);
    assert_eq!(pages.adapt(A, shown(5, 3)), Adapt::Done, "a read finds out that a file is shorter");
    assert!(matches!(pages.adapt(A, shown(6, 4)), Adapt::Do(Behind { grows: true, .. })));
    adapted(&mut pages, shown(6, 4));
    pages.overwrite_size(A);
    assert!(matches!(pages.adapt(A, shown(6, 4)), Adapt::Do(Behind { grows: true, .. })));
}

#[test]
fn a_guard_keeps_new_descriptors_away_from_the_cache() {
    let mut pages = Pages::default();
    pages.guard(A);
    pages.guard(A);
    assert_eq!(pages.open(A, Access::Read, Way::Cached, Mappable::All), Way::Direct);
    pages.close(A, Access::Read, Way::Direct);
    assert!(!pages.unguard(A) && pages.is_guarded(A));
    assert!(pages.unguard(A) && pages.files.is_empty());
}

#[test]
fn closed_files_are_dropped_when_there_are_too_many() {
    let mut pages = Pages::default();
    for id in 0..=FILES_MAX as u64 {
        pages.serve(InodeId::new(id + 10), Way::Cached, 0, 1);
    }
    pages.open(A, Access::Read, Way::Cached, Mappable::All);
    pages.serve(A, Way::Cached, 0, 1);
    let dropped = pages.close(A, Access::Read, Way::Cached).unwrap();
    assert_ne!(drop_served(&mut pages, dropped, Changer::OtherMount), Served::Nothing);
    assert!(pages.files.len() <= FILES_MAX + 1);
}
