use ebb_types::{Epoch, Version};

use super::*;

fn set(found: &[Found], wanted: usize, version: Version) -> Examined {
    let member = |node| pb::Member { node, volume: node, incarnation: 1, home: 0 };
    let found: Vec<_> = found.iter().enumerate().map(|(at, found)| (member(at as u64 + 1), *found)).collect();
    let members = found.iter().map(|(member, _)| *member).collect();
    let record = pb::Metablock { id: 6, version: Some(version.into()), members, ..Default::default() };
    Examined { record, wanted, at_most: wanted, unsettled: false, found, decodable: false }
}

#[test]
fn each_kind_of_finding_is_counted() {
    let written = Version::new(Epoch::new(1), 1);
    let mut reply = pb::FsckReply::default();
    assert!(examine(&set(&[Found::Good; 3], 3, written), &mut reply).is_empty());
    let text = examine(&set(&[Found::Good, Found::Corrupt, Found::Good], 3, written), &mut reply).join("\n");
    assert!(text.contains("n2") && text.contains("damaged") && text.contains("2 of 3"), "{text}");
    examine(&set(&[Found::Behind, Found::Unreachable], 2, written), &mut reply);
    examine(&set(&[Found::Good; 4], 3, written), &mut reply);
    assert!(examine(&set(&[Found::Behind; 3], 3, Version::ZERO), &mut reply).is_empty(), "granted, not written");
    let uncommitted = examine(&set(&[Found::Good, Found::Behind, Found::Corrupt], 3, Version::ZERO), &mut reply);
    assert_eq!(uncommitted.len(), 1, "damage counts before anything is committed: {uncommitted:?}");
    let expected = pb::FsckReply {
        metablocks: 6,
        unreachable: 1,
        under_replicated: 1,
        over_replicated: 1,
        corrupt: 2,
        ..Default::default()
    };
    assert_eq!(reply, expected);
}

#[test]
fn what_can_be_decoded_is_not_missing() {
    let mut reply = pb::FsckReply::default();
    let lost = set(&[Found::Unreachable], 1, Version::new(Epoch::new(1), 1));
    let findings = examine(&Examined { decodable: true, ..lost.clone() }, &mut reply);
    assert_eq!((reply.degraded, reply.unreachable), (1, 0), "{findings:?}");
    examine(&lost, &mut reply);
    assert_eq!((reply.degraded, reply.unreachable), (1, 1));
}

#[test]
fn copies_of_a_slot_on_their_way_are_no_excess() {
    let mut reply = pb::FsckReply::default();
    let slot = set(&[Found::Good; 3], 1, Version::new(Epoch::new(1), 1));
    let findings = examine(&Examined { at_most: 3, ..slot.clone() }, &mut reply);
    assert_eq!((reply.over_replicated, findings.len()), (0, 0), "{findings:?}");
    examine(&Examined { at_most: 2, ..slot }, &mut reply);
    assert_eq!(reply.over_replicated, 1);
}

#[test]
fn a_sleeping_node_is_neither_missed_nor_asked() {
    let written = Version::new(Epoch::new(1), 1);
    let mut reply = pb::FsckReply::default();
    assert!(examine(&set(&[Found::Asleep, Found::Good, Found::Asleep], 3, written), &mut reply).is_empty());
    let dark = examine(&set(&[Found::Asleep; 3], 3, written), &mut reply).join("\n");
    assert!(
        dark.contains("out of reach by plan: the power plan keeps n1 or n2 or n3 off") && !dark.contains("--repair"),
        "{dark}"
    );
    let short = examine(&set(&[Found::Asleep, Found::Unreachable], 2, written), &mut reply).join("\n");
    assert!(short.contains("1 of 2 copies are good"), "{short}");
    examine(&set(&[Found::Asleep], 1, Version::ZERO), &mut reply);
    let expected = pb::FsckReply { metablocks: 4, under_replicated: 1, asleep: 2, unseen: 7, ..Default::default() };
    assert_eq!(reply, expected);
}

/// Goal: missing, damaged, out of reach by plan and by failure are four things, and no sentence promises a good copy
/// that may not exist.
#[test]
fn a_metablock_that_cannot_be_read_is_counted_by_its_cause() {
    let written = Version::new(Epoch::new(1), 1);
    let check = |found: &[Found]| {
        let mut reply = pb::FsckReply::default();
        let text = examine(&set(found, 3, written), &mut reply).join("\n");
        assert!(!text.contains("a good copy takes its place"), "{text}");
        assert_eq!(reply.under_replicated, u64::from(found.contains(&Found::Asleep)), "{text}");
        ([reply.missing, reply.damaged, reply.asleep, reply.unreachable], text)
    };
    let (counts, text) = check(&[Found::Behind; 3]);
    assert_eq!(counts, [1, 0, 0, 0]);
    assert!(text.contains("missing: no replica is left on any node"), "{text}");
    let (counts, text) = check(&[Found::Corrupt, Found::Behind, Found::Corrupt]);
    assert_eq!(counts, [0, 1, 0, 0]);
    assert!(text.contains("no good copy is left") && text.contains("every replica that is left is damaged"), "{text}");
    let (counts, text) = check(&[Found::Corrupt, Found::Asleep, Found::Unreachable]);
    assert_eq!(counts, [0, 0, 1, 0]);
    assert!(text.contains("it is copied when n2 is on") && text.contains("keeps n2 off"), "{text}");
    let (counts, text) = check(&[Found::Corrupt, Found::Unreachable, Found::Unreachable]);
    assert_eq!(counts, [0, 0, 0, 1]);
    assert!(
        text.contains("it is copied if n2 or n3 comes back") && text.contains("n2 or n3 does not answer"),
        "{text}"
    );
}
