use super::*;
use crate::measure::Serial;
use crate::study::Study;

fn wish(within: f64) -> Wish {
    Wish {
        within,
        of: Strictness::Each,
        most_disks: 32,
        links: vec![20.0, 1.0, 4.0],
        prices: Prices { disk: 1.0, gbps: 0.5 },
    }
}

fn apps() -> Vec<App> {
    vec![App::by_name("Grep").unwrap(), App::by_name("TeraGen").unwrap()]
}

/// Goal: the answer is the cheapest. Method: against every LSN there is to choose from.
#[test]
fn the_advice_is_the_cheapest_of_all_that_fit() {
    let cluster = Study::by_name("5-node").unwrap().cluster;
    let wish = Wish { most_disks: 8, ..wish(0.15) };
    let advice = advise(&Serial, &cluster, &apps(), &[1], &wish).unwrap();
    let pairs: Vec<(usize, f64)> = wish.links.iter().flat_map(|gbps| (1..=8).map(|disks| (disks, *gbps))).collect();
    let all = measure_candidates(&Serial, &cluster, &apps(), &[1], &wish, &pairs).unwrap();
    let cheapest = all.iter().filter(|candidate| candidate.fits).map(|one| one.cost).fold(f64::INFINITY, f64::min);
    assert_eq!(advice.best.cost, cheapest, "{advice:#?}");
    assert!(advice.best.fits && advice.fewer_disks.is_none_or(|one| !one.fits));
    assert!(advice.frontier.iter().all(|one| one.fits && one.cost >= advice.best.cost));
}

#[test]
fn a_looser_wish_never_costs_more() {
    let cluster = Study::by_name("20-node").unwrap().cluster;
    let costs: Vec<f64> = [0.45, 0.7, 1.0, 3.0]
        .map(|within| advise(&Serial, &cluster, &apps(), &[1], &wish(within)).unwrap().best.cost)
        .to_vec();
    assert!(costs.is_sorted_by(|a, b| a >= b), "{costs:?}");
    assert!(costs[0] > costs[3]);
}

#[test]
fn an_impossible_wish_is_refused_with_the_nearest_possible_one() {
    let cluster = Study::by_name("5-node").unwrap().cluster;
    let narrow = Wish { links: vec![0.1], ..wish(0.05) };
    let error = advise(&Serial, &cluster, &apps(), &[1], &narrow).unwrap_err().to_string();
    assert!(error.contains("no LSN of up to 32 disks and 0.1 Gbps"), "{error}");
    let nearest: f64 = error.rsplit(' ').next().unwrap().parse().unwrap();
    let granted = Wish { within: nearest / 100.0, ..narrow };
    assert!(advise(&Serial, &cluster, &apps(), &[1], &granted).is_ok());
}

#[test]
fn senseless_wishes_are_refused() {
    let cluster = Study::by_name("5-node").unwrap().cluster;
    for (bad, nearest) in [
        (Wish { within: -0.1, ..wish(0.0) }, "value is 0"),
        (Wish { most_disks: 0, ..wish(0.1) }, "value is 1"),
        (Wish { prices: Prices { disk: -1.0, gbps: 1.0 }, ..wish(0.1) }, "value is 0"),
        (Wish { links: vec![0.0], ..wish(0.1) }, "value is 0.001"),
        (Wish { links: vec![], ..wish(0.1) }, "at least one"),
    ] {
        let error = advise(&Serial, &cluster, &apps(), &[1], &bad).unwrap_err().to_string();
        assert!(error.ends_with(nearest), "{error}");
    }
    let baseline = cluster.with_placement(Placement::Baseline);
    assert!(advise(&Serial, &baseline, &apps(), &[1], &wish(0.1)).unwrap_err().to_string().contains("hybrid"));
}
