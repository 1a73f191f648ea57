use proptest::prelude::*;

use super::*;

const DATASET: DatasetId = DatasetId::new(0);

fn block(id: u64, length: u64, volumes: &[u64]) -> pb::Metablock {
    let members =
        volumes.iter().map(|volume| pb::Member { node: *volume, volume: *volume, incarnation: 1, home: 0 }).collect();
    pb::Metablock { id, length, members, ..Default::default() }
}

#[test]
fn a_reservation_counts_until_it_is_committed_and_reported() {
    let (inode, volume) = (InodeId::new(5), VolumeId::new(2));
    let mut all = Reservations::default();
    all.reserve(inode, DATASET, &block(1, 0, &[1, 2]), 1000);
    assert_eq!((all.on_volume(volume), all.in_dataset(DATASET)), (1000, 1000));
    all.reserve(inode, DATASET, &block(1, 300, &[1, 2]), 500);
    assert_eq!(all.reserved(inode, MetablockId::new(1)), 1000, "nothing is taken back");
    assert_eq!(all.in_dataset(DATASET), 700);
    assert_eq!(all.on_volume(volume), 1000, "300 are committed, and not yet missing from what the volume reported");
    all.on_heartbeat(volume);
    assert_eq!(all.on_volume(volume), 1000, "it may have been asked before");
    all.on_heartbeat(volume);
    assert_eq!(all.on_volume(volume), 700);
    // Without a holder in the state machine all is given back.
    all.refresh(&Machine::new(), inode);
    assert_eq!((all.on_volume(volume), all.in_dataset(DATASET)), (0, 0));
    assert!(all.files.is_empty());
}

/// Goal: a holder that reclaims more than was ever given out changes no sum by it. Method: the most that a message can say.
#[test]
fn a_false_reclaim_counts_as_the_guess() {
    let (inode, volume) = (InodeId::new(5), VolumeId::new(2));
    let mut all = Reservations::default();
    for id in [1, 2] {
        all.reserve(inode, DATASET, &block(id, 100, &[1, 2]), 1000);
    }
    let file = all.files.get_mut(&inode).unwrap();
    file.blocks.values_mut().for_each(|block| block.is_guess = true);
    let most = [1, 2].map(|id| (MetablockId::new(id), u64::MAX));
    all.on_reclaimed(inode, Some(&BTreeMap::from(most)));
    assert_eq!((all.on_volume(volume), all.in_dataset(DATASET)), (1800, 1800));
    assert_eq!(all.reserved(inode, MetablockId::new(1)), 1000);
    assert!(!all.has_guesses());
}

#[test]
fn the_last_bytes_are_given_in_steps_and_then_refused() {
    let offer = Offer { have: 0, step: 100, whole: 1000, room: Some(1 << 20), quota: None };
    assert_eq!(choose_reserved(&offer), Ok(1000));
    assert_eq!(choose_reserved(&Offer { room: Some(5000), ..offer }), Ok(100), "it gets tight");
    assert_eq!(choose_reserved(&Offer { room: Some(30), have: 100, ..offer }), Ok(130));
    assert_eq!(choose_reserved(&Offer { room: Some(0), ..offer }), Err(Short::Room));
    assert_eq!(choose_reserved(&Offer { quota: Some(0), ..offer }), Err(Short::Quota));
    assert_eq!(choose_reserved(&Offer { quota: Some(7), ..offer }), Ok(7));
    assert_eq!(choose_reserved(&Offer { room: Some(0), have: 1000, ..offer }), Ok(1000), "it has all");
}

fn at(seconds: u64) -> Moment {
    Moment(std::time::Duration::from_secs(seconds))
}

#[test]
fn a_grant_counts_until_it_is_written_given_back_or_old() {
    let (inode, volume) = (InodeId::new(5), VolumeId::new(2));
    let mut all = Reservations::default();
    all.on_time(at(100));
    let on_its_way = all.expect(&block(1, 0, &[1, 2]).members, 1000);
    assert_eq!(all.waiting(volume), 1000, "before it is recorded");
    all.reserve(inode, DATASET, &block(1, 0, &[1, 2]), 1000);
    all.forget_expected(&on_its_way);
    assert_eq!(all.waiting(volume), 1000);
    all.reserve(inode, DATASET, &block(1, 300, &[1, 2]), 1000);
    assert_eq!(all.waiting(volume), 700, "300 are written");
    all.on_time(at(106));
    all.reserve(inode, DATASET, &block(2, 0, &[2, 3]), 50);
    assert_eq!((all.waiting(volume), all.waiting(VolumeId::new(1))), (750, 700));
    all.on_time(at(111));
    assert_eq!((all.waiting(volume), all.waiting(VolumeId::new(1))), (50, 0), "handed out 11 seconds ago");
    assert_eq!(all.on_volume(volume), 700 + 50 + 300, "it is reserved all the same");
    all.refresh(&Machine::new(), inode);
    assert_eq!(all.waiting(volume), 0, "nobody holds it");
    all.on_time(at(1000));
    let lost = all.expect(&block(3, 0, &[2]).members, 80);
    all.on_time(at(2000));
    all.forget_expected(&lost);
    assert_eq!(all.waiting(volume), 0);
}

#[test]
fn a_file_that_grew_by_lines_is_expected_to_grow_by_lines() {
    assert_eq!(expected(1000, None), 1000, "nothing is known of it");
    assert_eq!(expected(1000, Some(40)), 40);
    assert_eq!(expected(1000, Some(4000)), 1000);
}

proptest! {
    /// Whatever is asked for in whatever order, no more is given than there was.
    #[test]
    fn reservations_never_exceed_the_space_that_exists(wishes in prop::collection::vec((0u64..6, 1u64..4), 1..80), room in 0u64..9000, quota in 0u64..9000) {
        let mut all = Reservations::default();
        for (file, index) in wishes {
            let (inode, id) = (InodeId::new(file), file * 10 + index);
            let have = all.reserved(inode, MetablockId::new(id));
            let left = room - all.on_volume(VolumeId::new(1));
            let quota = quota - all.in_dataset(DATASET);
            let offer = Offer { have, step: 100, whole: 1000, room: Some(left), quota: Some(quota) };
            match choose_reserved(&offer) {
                Ok(reserved) => {
                    prop_assert!(reserved > have || have == 1000);
                    all.reserve(inode, DATASET, &block(id, 0, &[1]), reserved);
                }
                Err(short) => prop_assert_eq!(short, if quota == 0 { Short::Quota } else { Short::Room }),
            }
        }
        prop_assert!(all.on_volume(VolumeId::new(1)) <= room && all.in_dataset(DATASET) <= quota);
    }
}
