//! The causes of a gray node, and its return.

use super::*;

const MS: Duration = Duration::from_millis(1);
const S1: SessionId = SessionId::new(1);
const S2: SessionId = SessionId::new(2);

fn at(ms: u64) -> Moment {
    Moment::default().after(Duration::from_millis(100_000 + ms))
}

fn node(number: u64) -> NodeId {
    NodeId::new(number)
}

/// Six nodes that report their disks every second, and are assessed twice as often.
struct Bench {
    gray: Gray,
    standings: BTreeMap<NodeId, Standing>,
    /// Time of each node's commits, in milliseconds; 0 means that it has none.
    took: [u64; 6],
    working: [bool; 6],
    now: u64,
}

impl Bench {
    fn new() -> Self {
        let standings = (1..=6).map(|number| (node(number), Standing::There)).collect();
        Self { gray: Gray::default(), standings, took: [2; 6], working: [false; 6], now: 0 }
    }

    fn pass(&mut self, seconds: u64) -> Vec<Change> {
        let mut changes = Vec::new();
        for _ in 0..seconds * 2 {
            if self.now.is_multiple_of(1000) {
                for (number, took) in (1..).zip(self.took) {
                    let volume = pb::Volume { commit_us: took * 1000, commits: 9, ..Default::default() };
                    let volumes: Vec<_> = std::iter::repeat_n(volume, usize::from(took > 0)).collect();
                    let working = self.working[number as usize - 1];
                    self.gray.on_heartbeat(node(number), &volumes, working, at(self.now));
                }
            }
            changes.extend(self.gray.on_tick(&self.standings, at(self.now), self.now));
            self.now += 500;
        }
        changes
    }

    fn grays(&self) -> Vec<u64> {
        self.gray.slowest_first().into_iter().map(NodeId::raw).collect()
    }

    /// Records that a client finds some nodes slow, and some well.
    fn say(&mut self, session: SessionId, slow: &[u64], well: &[u64]) {
        let slow: Vec<_> =
            slow.iter().map(|node| pb::SlowNode { node: *node, took_us: 210_000, peers_us: 2000 }).collect();
        self.gray.on_poll(session, &slow, well, at(self.now));
    }
}

#[test]
fn a_slow_disk_is_gray_after_seconds_and_again_well_after_more() {
    let mut bench = Bench::new();
    bench.pass(5);
    bench.took[2] = 200;
    assert_eq!(bench.pass(3), []);
    let began = bench.pass(2);
    let Change::Began(named, verdict) = began[0] else { panic!("{began:?}") };
    assert_eq!((named, verdict.disk), (node(3), Some(Figure { took: 200 * MS, peers: 2 * MS })));
    assert_eq!(bench.gray.verdict(node(3)).unwrap().to_message().cause(), pb::GrayCause::GrayDisk);
    assert_eq!(bench.pass(60), [], "it stays so while it is slow");
    bench.took[2] = 2;
    assert_eq!(bench.pass(9), []);
    assert!(matches!(bench.pass(3)[..], [Change::Ended(named, _)] if named == node(3)));
}

#[test]
fn a_node_that_is_gray_again_soon_must_be_well_for_longer() {
    let mut bench = Bench::new();
    let mut holds = Vec::new();
    for _ in 0..4 {
        bench.took[0] = 300;
        bench.pass(5);
        assert_eq!(bench.grays(), [1]);
        bench.took[0] = 2;
        let mut hold = 0;
        while !bench.grays().is_empty() {
            bench.pass(1);
            hold += 1;
        }
        holds.push(hold);
    }
    assert!(holds.windows(2).all(|pair| pair[1] >= pair[0] * 2 - 2), "{holds:?}");
    bench.pass(700);
    bench.took[0] = 300;
    bench.pass(5);
    bench.took[0] = 2;
    bench.pass(12);
    assert!(bench.grays().is_empty(), "that was long ago");
}

#[test]
fn where_everything_is_slow_nothing_is_gray() {
    let mut bench = Bench::new();
    bench.took = [400, 380, 420, 390, 500, 900];
    assert_eq!(bench.pass(60), []);
    bench.took = [2, 2, 2, 2, 2, 45];
    assert_eq!(bench.pass(60), [], "below the floor");
    bench.took = [0, 0, 0, 0, 0, 300];
    assert_eq!(bench.pass(60), [], "nobody to compare with");
}

#[test]
fn fewer_than_half_are_gray_the_slowest_first() {
    let mut bench = Bench::new();
    bench.took = [2, 300, 2, 700, 500, 2];
    bench.pass(10);
    assert_eq!(bench.grays(), [4, 5]);
    let mut small = Bench::new();
    small.standings.retain(|node, _| node.raw() <= 3);
    small.say(S1, &[2], &[1, 3]);
    small.pass(1);
    assert_eq!(small.grays(), [2], "one of three");
    small.standings.remove(&node(3));
    let mut two = Bench { standings: small.standings.clone(), ..Bench::new() };
    two.say(S1, &[2], &[1]);
    two.pass(1);
    assert_eq!(two.grays(), Vec::<u64>::new(), "of two one is half");
}

#[test]
fn clients_decide_by_majority_and_a_lone_one_for_itself() {
    let mut bench = Bench::new();
    bench.say(S1, &[4], &[1, 2, 3]);
    bench.say(S2, &[], &[1, 4, 5]);
    bench.pass(1);
    assert_eq!(bench.grays(), Vec::<u64>::new(), "one finds it slow, one does not");
    assert_eq!(bench.gray.slow_for(S1, at(bench.now)), [node(4)]);
    assert!(bench.gray.on_replacement(S1, node(4), at(bench.now)).is_ok());
    assert!(bench.gray.on_replacement(S2, node(4), at(bench.now)).is_err());
    bench.say(S2, &[], &[1, 5]);
    bench.pass(1);
    assert_eq!(bench.grays(), [4]);
    assert_eq!(bench.gray.verdict(node(4)).unwrap().to_message().clients, 1);
    bench.pass(9);
    bench.say(S1, &[], &[1, 2, 3]);
    bench.pass(12);
    assert_eq!(bench.grays(), Vec::<u64>::new());
}

#[test]
fn a_client_that_finds_most_slow_is_slow_itself() {
    let mut bench = Bench::new();
    bench.say(S1, &[1, 2, 3], &[4, 5]);
    bench.pass(2);
    assert_eq!(bench.grays(), Vec::<u64>::new());
    assert_eq!(bench.gray.slow_for(S1, at(bench.now)), []);
}

#[test]
fn a_node_that_works_well_has_just_started_sleeps_or_is_silent_is_not_judged() {
    let mut bench = Bench::new();
    bench.took[1] = 300;
    bench.working[1] = true;
    assert_eq!(bench.pass(30), []);
    bench.working[1] = false;
    bench.gray.on_start(node(2), at(bench.now));
    assert_eq!(bench.pass(9), []);
    for standing in [Standing::Away, Standing::Silent] {
        bench.standings.insert(node(2), standing);
        assert_eq!(bench.pass(30), []);
    }
    bench.standings.insert(node(2), Standing::There);
    bench.pass(5);
    assert_eq!(bench.grays(), [2]);
    bench.standings.insert(node(2), Standing::Silent);
    assert_eq!(bench.pass(30), [], "what is known stays");
    bench.standings.insert(node(2), Standing::Away);
    assert!(matches!(bench.pass(1)[..], [Change::Ended(_, _)]));
}
