use ebb_layout::LayoutKind;

use super::*;

const CHAIN: DatasetId = DatasetId::new(1);
const ANYWHERE: DatasetId = DatasetId::new(0);

fn member(node: u64) -> pb::Member {
    pb::Member { node, volume: node * 10, incarnation: 1, home: 0 }
}

/// Eight nodes, two of them primaries, gears of two; all well.
fn facts() -> Facts {
    let order = (1..=8).map(NodeId::new).collect();
    let chain = ChainView::new(LayoutKind::Geared, order, 2, 2, 2).unwrap();
    let volume = |node: u64| {
        (VolumeId::new(node * 10), VolumeFacts { incarnation: Incarnation::new(1), is_there: true, serves: true })
    };
    Facts {
        volumes: (1..=8).map(volume).collect(),
        damaged: BTreeSet::new(),
        datasets: BTreeMap::from([
            (CHAIN, wants_two(chain)),
            (ANYWHERE, wants_two(ChainView::uncharted(LayoutKind::Random, 2))),
        ]),
    }
}

fn wants_two(chain: ChainView) -> DatasetFacts {
    DatasetFacts { wanted: 2, chain: Arc::new(chain) }
}

fn census(facts: &Facts, sets: &[(DatasetId, &[pb::Member])]) -> Census {
    let mut counting = Counting::default();
    for (id, (dataset, members)) in (1..).zip(sets) {
        facts.count(&mut counting, *dataset, MetablockId::new(id), members);
    }
    facts.finish(&counting)
}

#[test]
fn failures_are_counted_by_their_effect_on_readers_and_writers() {
    let mut facts = facts();
    // Primary 1 belongs to the column of nodes 3, 5, 7.
    let sets: [(DatasetId, &[pb::Member]); 3] =
        [(CHAIN, &[member(1), member(3)]), (CHAIN, &[member(2), member(4)]), (ANYWHERE, &[member(1), member(8)])];
    assert_eq!(census(&facts, &sets), Census::default());
    facts.volumes.get_mut(&VolumeId::new(10)).unwrap().is_there = false;
    assert_eq!(census(&facts, &sets), Census { unreachable: 0, short: 2, misplaced: 1 });
    facts.volumes.get_mut(&VolumeId::new(30)).unwrap().serves = false;
    assert_eq!(census(&facts, &sets).unreachable, 1, "the other copy is on a node that is switched off");
    let elsewhere: [(DatasetId, &[pb::Member]); 2] =
        [(CHAIN, &[member(2), member(3)]), (ANYWHERE, &[member(2), member(8)])];
    assert_eq!(
        census(&facts, &elsewhere),
        Census { unreachable: 0, short: 0, misplaced: 1 },
        "another primary's column"
    );
    facts.volumes.get_mut(&VolumeId::new(40)).unwrap().incarnation = Incarnation::new(2);
    facts.damaged.insert((MetablockId::new(3), ebb_types::VolumeId::new(80)));
    assert_eq!(census(&facts, &sets).short, 3, "another life, and a damaged replica");
    let guest = pb::Member { home: 4, ..member(6) };
    let away: [(DatasetId, &[pb::Member]); 1] = [(CHAIN, &[member(2), guest])];
    assert_eq!(census(&facts, &away).misplaced, 1, "a guest is not where it belongs");
}

#[test]
fn blocks_off_the_circle_are_counted() {
    let mut facts = facts();
    let order = (1..=8).map(NodeId::new).collect();
    let mut circle = ChainView::new(LayoutKind::PowerBalanced, order, 0, 0, 2).unwrap();
    let opposite: Vec<Vec<NodeId>> = (1..=4).map(|node| vec![NodeId::new(node), NodeId::new(node + 4)]).collect();
    (0..10).flat_map(|_| &opposite).for_each(|nodes| circle.add(nodes));
    facts.datasets.insert(CHAIN, wants_two(circle.clone()));
    let sets: [(DatasetId, &[pb::Member]); 2] = [(CHAIN, &[member(1), member(5)]), (CHAIN, &[member(6), member(2)])];
    assert_eq!(census(&facts, &sets), Census::default());
    let beside: [(DatasetId, &[pb::Member]); 1] = [(CHAIN, &[member(1), member(6)])];
    assert_eq!(census(&facts, &beside).misplaced, 1, "not opposite");
    // Ten blocks more for one place and the one opposite: two is what a node may be off by.
    (0..10).for_each(|_| circle.add(&opposite[0]));
    facts.datasets.insert(CHAIN, wants_two(circle));
    assert_eq!(
        census(&facts, &sets).misplaced,
        12,
        "each of the two has 7.5 too many, each of the six others lacks 2.5"
    );
}

#[test]
fn each_stage_has_the_time_since_when_it_is_restored() {
    let node = NodeId::new(1);
    let mut failures = Failures::default();
    assert!(!failures.are_open());
    failures.on_look(&BTreeMap::from([(node, 1_000)]), 4_000);
    let look = |failures: &Failures| *failures.iter().next().unwrap();
    let wrong = |unreachable, short, misplaced| Census { unreachable, short, misplaced };
    failures.on_census(wrong(5, 9, 9), 4_000);
    assert_eq!((look(&failures).failed_ms, look(&failures).reachable_ms), (1_000, None));
    failures.on_census(wrong(0, 9, 9), 6_000);
    // Something else breaks: since when it is so again is what counts.
    failures.on_census(wrong(1, 9, 9), 7_000);
    failures.on_census(wrong(0, 4, 9), 8_000);
    failures.on_census(wrong(0, 0, 9), 20_000);
    let failure = look(&failures);
    assert_eq!(
        (failure.reachable_ms, failure.whole_ms, failure.placed_ms, failure.back_ms),
        (Some(8_000), Some(20_000), None, None)
    );
    failures.on_look(&BTreeMap::new(), 25_000);
    failures.on_census(wrong(0, 0, 0), 30_000);
    assert!(look(&failures).is_over() && !failures.are_open());
    assert_eq!((look(&failures).back_ms, look(&failures).placed_ms), (Some(25_000), Some(30_000)));
    // Another node: the first failure stays closed.
    failures.on_look(&BTreeMap::from([(NodeId::new(2), 31_000)]), 34_000);
    failures.on_census(wrong(0, 3, 3), 35_000);
    assert_eq!(look(&failures).placed_ms, Some(30_000));
    assert!(failures.are_open());
}

#[test]
fn a_node_that_fails_again_is_reported_once_and_few_failures_are_kept() {
    let mut failures = Failures::default();
    for round in 1..=3 {
        failures.on_look(&BTreeMap::from([(NodeId::new(1), round * 100)]), round * 100 + 10);
        failures.on_look(&BTreeMap::new(), round * 100 + 20);
    }
    assert_eq!(failures.iter().map(|failure| failure.failed_ms).collect::<Vec<_>>(), [300]);
    failures.on_census(Census::default(), 400);
    let all: BTreeMap<NodeId, u64> = (2..=30).map(|node| (NodeId::new(node), 500)).collect();
    failures.on_look(&all, 600);
    assert_eq!(failures.iter().count(), KEPT_MAX);
    assert!(failures.iter().all(|failure| failure.node != NodeId::new(1)), "what is over goes first");
}
