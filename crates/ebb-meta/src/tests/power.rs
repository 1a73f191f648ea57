//! Power plans in the log and in checkpoints.

use ebb_types::ErrorKind as E;
use ebb_wire::pb;
use ebb_wire::pb::command::Command as Change;

use crate::Machine;

fn publish(machine: &mut Machine, now_ms: i64, version: u64, start_ms: u64) -> Result<(), E> {
    let plan = pb::PublishedPlan { version, start_ms, plan: vec![version as u8] };
    let command =
        pb::Command { now_ns: now_ms * 1_000_000, command: Some(Change::PublishPlan(plan)), ..Default::default() };
    machine.apply(&command).reply.map(drop).map_err(|error| error.kind())
}

fn versions(machine: &Machine) -> Vec<u64> {
    machine.plans().map(|plan| plan.version).collect()
}

#[test]
fn the_plan_in_force_and_those_announced_are_kept() {
    let mut machine = Machine::new();
    publish(&mut machine, 100, 1, 200).unwrap();
    publish(&mut machine, 250, 2, 300).unwrap();
    publish(&mut machine, 260, 3, 400).unwrap();
    assert_eq!(versions(&machine), [1, 2, 3]);
    assert_eq!(publish(&mut machine, 261, 3, 400), Err(E::Stale), "another manager was faster");
    publish(&mut machine, 270, 4, 300).unwrap();
    assert_eq!(versions(&machine), [1, 4], "what was to follow later never comes into force");
    publish(&mut machine, 500, 5, 600).unwrap();
    assert_eq!(versions(&machine), [4, 5], "what was replaced is forgotten");
    for version in 6..=12 {
        publish(&mut machine, 500, version, 600 + version).unwrap();
    }
    assert_eq!(publish(&mut machine, 500, 13, 700), Err(E::Overloaded));
}
