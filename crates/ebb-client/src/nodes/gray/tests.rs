//! Members that are found slow, members that are not, and members that are well again.

use super::*;

const MS: Duration = Duration::from_millis(1);

fn at(ms: u64) -> Moment {
    Moment::default().after(Duration::from_millis(60_000 + ms))
}

/// Rounds with members 1, 2 and 3 at an interval for some seconds, in which they take these milliseconds.
fn rounds(evidence: &mut Evidence, from_ms: u64, seconds: u64, every_ms: u64, took: [u64; 3]) -> u64 {
    let end = from_ms + seconds * 1000;
    let mut ms = from_ms;
    while ms < end {
        let answers: Vec<_> = (1..).zip(took).map(|(node, took)| (node, u32::try_from(took).unwrap() * MS)).collect();
        evidence.on_round(&answers, at(ms));
        evidence.find_slow(at(ms));
        ms += every_ms;
    }
    end
}

fn slow(evidence: &Evidence) -> Vec<u64> {
    evidence.slow().map(|(node, _)| node).collect()
}

#[test]
fn a_member_is_slow_after_seconds_of_slow_rounds_however_few() {
    for every_ms in [100, 300, 1000, 2500] {
        let mut evidence = Evidence::default();
        let now = rounds(&mut evidence, 0, 3, every_ms, [3, 220, 4]);
        assert_eq!(slow(&evidence), Vec::<u64>::new());
        rounds(&mut evidence, now, 2, every_ms, [3, 220, 4]);
        assert_eq!(slow(&evidence), [2], "a round each {every_ms} ms");
        assert_eq!(evidence.slow().next().unwrap().1, Figure { took: 220 * MS, peers: 4 * MS });
        assert_eq!(evidence.well().collect::<Vec<_>>(), [1, 3]);
        // A round every now and then in which it is slow does not make it so.
        let mut seldom = Evidence::default();
        rounds(&mut seldom, 0, 1, 100, [3, 220, 4]);
        let now = rounds(&mut seldom, 1000, 5, 100, [3, 4, 4]);
        rounds(&mut seldom, now, 1, 100, [3, 220, 4]);
        assert_eq!(slow(&seldom), Vec::<u64>::new());
    }
}

#[test]
fn a_node_as_slow_as_the_others_is_not_slow() {
    let mut evidence = Evidence::default();
    rounds(&mut evidence, 0, 20, 100, [3, 220, 240]);
    assert_eq!(slow(&evidence), Vec::<u64>::new(), "one is quick");
    rounds(&mut evidence, 30_000, 20, 100, [200, 900, 220]);
    assert_eq!(slow(&evidence), Vec::<u64>::new(), "all are busy");
    rounds(&mut evidence, 60_000, 20, 100, [1, 45, 1]);
    assert_eq!(slow(&evidence), Vec::<u64>::new(), "below the floor");
}

#[test]
fn a_freeze_is_not_slowness() {
    let mut evidence = Evidence::default();
    let mut now = 0;
    for _ in 0..5 {
        now = rounds(&mut evidence, now, 2, 100, [3, 4, 3]);
        // Many wait for the one that is frozen, and are answered at once.
        now += 3000;
        for _ in 0..200 {
            evidence.on_round(&[(1, 3 * MS), (2, 3000 * MS), (3, 4 * MS)], at(now));
        }
        evidence.find_slow(at(now));
        assert_eq!(slow(&evidence), Vec::<u64>::new());
    }
}

#[test]
fn one_that_stops_now_and_then_is_slow_by_the_mean() {
    let stops = |every: u64, stopped: u64| {
        let mut evidence = Evidence::default();
        for number in 0..600 {
            let took = if number % every == 0 { Duration::from_millis(stopped) } else { 4 * MS };
            evidence.on_round(&[(1, 4 * MS), (2, took), (3, 5 * MS)], at(number * 20));
            evidence.find_slow(at(number * 20));
        }
        slow(&evidence)
    };
    assert_eq!(stops(8, 450), [2]);
    assert_eq!(stops(8, 150), Vec::<u64>::new(), "22 ms are below the floor");
    assert_eq!(stops(100, 900), Vec::<u64>::new(), "seldom");
}

/// One writer that waits for each round: the member stops and works in turn, for these times.
fn with_stops(stopped: u64, works: u64, quick: Duration) -> Evidence {
    let mut evidence = Evidence::default();
    let mut now = Duration::from_secs(60);
    while now < Duration::from_secs(75) {
        let until = now + u32::try_from(stopped).unwrap() * MS;
        evidence.on_round(&[(1, 2 * MS), (2, until - now), (3, 2 * MS)], Moment(until));
        now = until;
        while now < until + u32::try_from(works).unwrap() * MS {
            now += quick;
            evidence.on_round(&[(1, 2 * MS), (2, quick), (3, 2 * MS)], Moment(now));
            evidence.find_slow(Moment(now));
        }
    }
    evidence
}

#[test]
fn one_that_stops_again_and_again_is_slow_however_many_rounds_are_quick_between() {
    let evidence = with_stops(1000, 100, 2 * MS);
    assert_eq!(slow(&evidence), [2], "its mean is 21 ms, and nearly all the time is spent waiting for it");
    let figure = evidence.slow().next().unwrap().1;
    assert!(figure.took > 800 * MS && figure.peers == 2 * MS, "{figure:?}");
    assert_eq!(slow(&with_stops(300, 60, 2 * MS)), [2]);
    assert_eq!(slow(&with_stops(90, 400, 2 * MS)), Vec::<u64>::new(), "it stops for a fifth of the time");
    assert_eq!(slow(&with_stops(12, 0, 12 * MS)), Vec::<u64>::new(), "no round is long");
    assert_eq!(slow(&with_stops(1000, 4000, 2 * MS)), Vec::<u64>::new(), "seldom");
}

#[test]
fn a_starved_client_blames_no_node() {
    let mut evidence = Evidence::default();
    let mut now = 0;
    for _ in 0..10 {
        now = rounds(&mut evidence, now, 3, 100, [3, 220, 4]);
        evidence.on_starved(at(now - 3000));
    }
    assert_eq!(slow(&evidence), Vec::<u64>::new());
    let now = rounds(&mut evidence, now, 2, 100, [3, 220, 4]);
    evidence.on_starved(at(now));
    rounds(&mut evidence, now + 1000, 2, 100, [3, 220, 4]);
    assert_eq!(slow(&evidence), [2], "what came before counts");
}

#[test]
fn one_that_is_still_written_to_is_well_when_its_rounds_are() {
    let mut evidence = Evidence::default();
    let now = rounds(&mut evidence, 0, 6, 100, [3, 220, 4]);
    let now = rounds(&mut evidence, now, 5, 100, [3, 5, 4]);
    assert_eq!(slow(&evidence), [2], "not yet");
    rounds(&mut evidence, now, 8, 100, [3, 5, 4]);
    assert_eq!(slow(&evidence), Vec::<u64>::new());
}

#[test]
fn one_that_is_not_is_asked() {
    let mut evidence = Evidence::default();
    let mut now = rounds(&mut evidence, 0, 6, 100, [3, 220, 4]);
    let mut ask = |evidence: &mut Evidence, seconds: u64, took: [Option<u64>; 4]| {
        for number in 0..seconds * 2 {
            now += 500;
            let took = took[usize::try_from(number % 4).unwrap()].map(Duration::from_millis);
            evidence.on_asked(2, took, Some(MS), at(now));
            evidence.find_slow(at(now));
        }
        slow(evidence)
    };
    assert_eq!(ask(&mut evidence, 60, [Some(1), Some(120), Some(70), None]), [2], "now and then it is quick");
    assert_eq!(ask(&mut evidence, 6, [Some(1); 4]), [2]);
    assert_eq!(ask(&mut evidence, 7, [Some(1); 4]), Vec::<u64>::new());
    assert!(evidence.is_empty());
}
