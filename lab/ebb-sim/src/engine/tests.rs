use proptest::prelude::*;

use super::*;

const FREE: f64 = f64::INFINITY;

fn ends(engine: &mut Engine) -> Vec<(f64, u64)> {
    let mut seen = Vec::new();
    while let Some(event) = engine.next_event() {
        let (Event::Done(token) | Event::Alarm(token)) = event;
        seen.push((engine.now(), token));
    }
    seen
}

#[test]
fn two_flows_share_a_link_and_the_second_speeds_up_when_the_first_ends() {
    let mut engine = Engine::new(0.0);
    let link = engine.add_resource(10.0);
    engine.start(10.0, FREE, &[Use::plain(link)], 1);
    engine.start(30.0, FREE, &[Use::plain(link)], 2);
    assert_eq!(ends(&mut engine), [(2.0, 1), (4.0, 2)]);
    assert!((engine.carried(link) - 40.0).abs() < 1e-9);
}

#[test]
fn a_flow_that_is_held_up_elsewhere_leaves_its_share_to_others() {
    let mut engine = Engine::new(0.0);
    let (wide, narrow) = (engine.add_resource(10.0), engine.add_resource(2.0));
    let slow = engine.start(100.0, FREE, &[Use::plain(wide), Use::plain(narrow)], 1);
    let fast = engine.start(100.0, FREE, &[Use::plain(wide)], 2);
    let limited = engine.start(100.0, 1.0, &[Use::plain(wide)], 3);
    engine.refresh_rates();
    assert_eq!([engine.rate(slow), engine.rate(fast), engine.rate(limited)], [2.0, 7.0, 1.0]);
}

#[test]
fn a_disk_seeks_only_while_it_has_company() {
    let mut engine = Engine::new(0.0);
    let disk = engine.add_resource(1.0);
    let used = Use { resource: disk, cost: 0.01, crowd_cost: 0.01 };
    // Alone for 1 s at 100 a second; together at 50 for both; alone again.
    engine.start(200.0, FREE, &[used], 1);
    engine.alarm(1.0, 9);
    assert_eq!(engine.next_event(), Some(Event::Alarm(9)));
    engine.start(50.0, FREE, &[used], 2);
    assert_eq!(ends(&mut engine), [(3.0, 2), (3.5, 1)]);
}

#[test]
fn nothing_takes_no_time_and_alarms_ring_in_their_order() {
    let mut engine = Engine::new(0.0);
    let link = engine.add_resource(1.0);
    engine.alarm(0.0, 5);
    engine.start(0.0, FREE, &[Use::plain(link)], 6);
    engine.alarm(0.0, 7);
    assert_eq!(ends(&mut engine), [(0.0, 5), (0.0, 6), (0.0, 7)]);
}

/// Start, amount, limit; and of each use the resource, the cost and the crowd's cost.
type PlannedFlow = (f64, f64, f64, Vec<(usize, f64, f64)>);

#[derive(Clone, Debug)]
struct World {
    capacities: Vec<f64>,
    flows: Vec<PlannedFlow>,
}

fn world() -> impl Strategy<Value = World> {
    let capacities = prop::collection::vec(0.5..20.0_f64, 1..6);
    let used = (0..6_usize, 0.1..3.0_f64, prop_oneof![Just(0.0), 0.0..1.0_f64]);
    let limit = prop_oneof![Just(FREE), 0.1..5.0_f64];
    let flow = (0.0..3.0_f64, 0.0..50.0_f64, limit, prop::collection::vec(used, 1..5));
    (capacities, prop::collection::vec(flow, 1..30)).prop_map(|(capacities, mut flows)| {
        for flow in &mut flows {
            for used in &mut flow.3 {
                used.0 %= capacities.len();
            }
        }
        World { capacities, flows }
    })
}

/// Runs a world, calling `look` whenever rates are up to date.
fn play(world: &World, quantum: f64, mut look: impl FnMut(&Engine, &[ResourceId], &[Option<FlowId>])) -> Engine {
    let mut engine = Engine::new(quantum);
    let ids: Vec<ResourceId> = world.capacities.iter().map(|capacity| engine.add_resource(*capacity)).collect();
    for (index, flow) in world.flows.iter().enumerate() {
        engine.alarm(flow.0, index as u64);
    }
    let mut live: Vec<Option<FlowId>> = vec![None; world.flows.len()];
    let mut last = 0.0;
    while let Some(event) = engine.next_event() {
        assert!(engine.now() >= last, "time goes on");
        last = engine.now();
        match event {
            Event::Alarm(index) => {
                let (_, amount, limit, uses) = &world.flows[index as usize];
                let uses: Vec<Use> = uses
                    .iter()
                    .map(|(id, cost, crowd_cost)| Use { resource: ids[*id], cost: *cost, crowd_cost: *crowd_cost })
                    .collect();
                live[index as usize] = Some(engine.start(*amount, *limit, &uses, index));
            }
            Event::Done(index) => live[index as usize] = None,
        }
        if quantum == 0.0 {
            engine.refresh_rates();
        }
        look(&engine, &ids, &live);
    }
    assert_eq!(engine.live(), 0);
    engine
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Goal: shares are max-min fair. Method: the definition. Every flow is at its limit, or uses a full resource on
    /// which no flow is faster.
    #[test]
    fn shares_are_fair_and_add_up(world in world()) {
        play(&world, 0.0, |engine, ids, live| {
            for id in ids {
                assert!(engine.load(*id) <= engine.capacity(*id) * (1.0 + 1e-6), "overcommitted");
            }
            let rates: Vec<f64> = live.iter().map(|id| id.map_or(0.0, |id| engine.rate(id))).collect();
            for (index, (_, amount, limit, uses)) in world.flows.iter().enumerate() {
                if live[index].is_none() || *amount == 0.0 || rates[index] >= limit * (1.0 - 1e-9) {
                    continue;
                }
                let held = uses.iter().any(|(id, ..)| {
                    let full = engine.load(ids[*id]) >= engine.capacity(ids[*id]) * (1.0 - 1e-6);
                    let users = |other: usize| world.flows[other].3.iter().any(|(used, ..)| used == id);
                    let fastest = (0..rates.len()).filter(|other| users(*other)).all(|other| {
                        rates[other] <= rates[index] * (1.0 + 1e-6)
                    });
                    full && fastest
                });
                assert!(held, "flow {index} could go faster: {rates:?}");
            }
        });
    }

    /// With any quantum the resources carry exactly the units of the flows, and none carries more than it can.
    #[test]
    fn bytes_are_conserved_and_no_rate_is_exceeded(world in world(), quantum in prop_oneof![Just(0.0), 0.01..2.0_f64]) {
        let engine = play(&world, quantum, |engine, ids, _| {
            for id in ids {
                assert!(engine.load(*id) <= engine.capacity(*id) * (1.0 + 1e-6), "overcommitted");
                let most = engine.capacity(*id) * engine.now();
                assert!(engine.carried(*id) <= most * (1.0 + 1e-6) + 1e-6, "carried more than it can");
            }
        });
        for (index, capacity) in world.capacities.iter().enumerate() {
            let brought: f64 = world.flows.iter().flat_map(|flow| flow.3.iter().map(move |used| (flow.1, used)))
                .filter(|(_, used)| used.0 == index).map(|(amount, used)| amount * used.1).sum();
            let carried = engine.carried(ResourceId(index as u32));
            prop_assert!((carried - brought).abs() <= 1e-6 * brought.max(1.0), "{carried} of {brought} by {capacity}");
        }
    }
}
