use super::*;

fn version(epoch: u64, seq: u64) -> Version {
    Version::new(Epoch::new(epoch), seq)
}

fn member(node: u64) -> pb::Member {
    pb::Member { node, volume: node * 10, incarnation: 1, home: 0 }
}

fn case(committed: Version, answers: &[Option<Version>]) -> Case {
    let answers = answers.iter().enumerate().map(|(at, answer)| Answer {
        member: member(at as u64 + 1),
        // The length identifies the version.
        held: answer.map(|version| ReplicaState { version, length: version.seq * 100 }),
    });
    let answers: Vec<_> = answers.collect();
    let members = answers.iter().map(|answer| answer.member).collect();
    let record = pb::Metablock { id: 8, index: 2, version: Some(committed.into()), members, ..Default::default() };
    Case { record, answers, trim: None }
}

/// Tests every combination of three members' answers and a committed version. The holder acknowledged a write only when
/// all members had synced it, so it acknowledged at most the lowest of the members' versions, and committed nothing
/// above that. Whatever the decision, no acknowledged write may be lost.
#[test]
fn nothing_acknowledged_is_lost_in_any_small_case() {
    let versions = [Version::ZERO, version(1, 1), version(1, 2), version(2, 0), version(2, 1)];
    let mut settled_cases = 0;
    for a in versions {
        for b in versions {
            for c in versions {
                let acknowledged = a.min(b).min(c);
                for committed in versions.into_iter().filter(|committed| *committed <= acknowledged) {
                    for reached in 0..8u32 {
                        let answer = |at: u32, version| (reached >> at & 1 == 1).then_some(version);
                        let answers = [answer(0, a), answer(1, b), answer(2, c)];
                        let case = case(committed, &answers);
                        match plan(&case) {
                            Step::Wait { .. } => assert_eq!(reached, 0, "{answers:?} at {committed}"),
                            Step::Free { .. } => assert_eq!(acknowledged, Version::ZERO, "{answers:?}"),
                            Step::Settle(settle) => {
                                settled_cases += 1;
                                check(&settle, &answers, acknowledged, committed);
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(settled_cases > 500, "{settled_cases}");
}

fn check(settle: &Settle, answers: &[Option<Version>], acknowledged: Version, committed: Version) {
    let highest = answers.iter().flatten().max().copied().unwrap();
    assert_eq!(settle.base, highest);
    assert!(settle.base >= acknowledged && settle.base >= committed);
    assert_eq!(settle.length, highest.seq * 100);
    assert_eq!(settle.is_ahead(), highest > committed);
    assert!(!settle.sources.is_empty());
    for (at, answer) in answers.iter().enumerate() {
        let member = member(at as u64 + 1);
        assert_eq!(settle.sources.contains(&member), *answer == Some(highest));
        assert_eq!(settle.lagging.contains(&member), answer.is_some_and(|version| version < highest));
    }
}

#[test]
fn members_below_the_committed_version_are_not_believed() {
    let step = plan(&case(version(3, 4), &[None, Some(version(3, 3)), Some(Version::ZERO)]));
    let Step::Wait { reason } = step else { panic!("{step:?}") };
    assert!(reason.contains("e3.3") && reason.contains("e3.4"), "{reason}");
}

#[test]
fn a_trim_that_the_winner_has_not_seen_cuts_it() {
    let trim =
        |metablock, seq| Some(pb::meta_op::Trim { metablock, version: Some(version(1, seq).into()), length: 50 });
    let length = |trim| {
        let case = Case { trim, ..case(version(1, 1), &[Some(version(1, 3))]) };
        let Step::Settle(settle) = plan(&case) else { panic!() };
        settle.length
    };
    assert_eq!(length(trim(8, 4)), 50);
    assert_eq!(length(trim(8, 3)), 300, "it has seen the trim, and what was written after it");
    assert_eq!(length(trim(9, 4)), 300, "another metablock's");
    assert_eq!(length(None), 300);
}

#[test]
fn a_stamped_record_has_the_new_epoch_and_the_members_that_were_stamped() {
    let Step::Settle(settle) = plan(&case(version(1, 1), &[Some(version(1, 2)), Some(version(1, 1)), None])) else {
        panic!()
    };
    let record = settled(&settle, Epoch::new(5), vec![member(1), member(2)]);
    assert_eq!((record.min_version(), record.length, record.id, record.index), (version(5, 0), 200, 8, 2));
    assert_eq!(record.members, [member(1), member(2)]);
}

#[test]
fn the_size_covers_what_was_committed_and_what_was_found() {
    let block = |index, length| pb::Metablock { index, length, ..Default::default() };
    assert_eq!(size(10, 1000, &[]), 10);
    assert_eq!(size(10, 1000, &[block(0, 1000), block(3, 7)]), 3007);
    assert_eq!(size(9000, 1000, &[block(0, 1000), block(3, 0)]), 9000, "an empty replica ends nothing");
}
