use super::*;

const N1: NodeId = NodeId::new(1);

fn at(seconds: u64) -> Moment {
    Moment(Duration::from_secs(seconds))
}

fn registry() -> Registry {
    Registry::new(at(0), Duration::from_secs(30), Duration::from_secs(5), 1)
}

fn volume(id: u64) -> pb::Volume {
    pb::Volume { id, incarnation: 9, capacity_bytes: 1000, free_bytes: 600, ..Default::default() }
}

fn record(id: u64, volumes: Vec<pb::Volume>, draining: bool) -> pb::NodeRecord {
    let node = pb::Node { id, host: format!("h{id}"), rack: "r".into(), volumes, ..Default::default() };
    pb::NodeRecord { node: Some(node), draining, removed: false }
}

fn beat(boot: u64, volumes: Vec<pb::Volume>) -> pb::Heartbeat {
    pb::Heartbeat { node: 1, boot, volumes, corrupt: vec![], load: 3, ..Default::default() }
}

fn report(boot: u64, volume: u64, metablocks: &[u64], last: bool) -> pb::ReplicaReport {
    let replicas = metablocks.iter().map(|id| pb::ReplicaState { metablock: *id, ..Default::default() }).collect();
    pb::ReplicaReport { node: 1, boot, volume, replicas, last }
}

#[test]
fn a_node_is_unknown_then_live_then_dead_then_live() {
    let mut registry = registry();
    assert_eq!(registry.state(N1), pb::NodeState::NodeUnknown);
    registry.on_register(N1, BootId::new(7), 1, &[volume(1)], at(1));
    assert!(registry.is_live(N1) && registry.is_sound(N1, VolumeId::new(1)));
    assert_eq!(registry.on_tick([N1].into_iter(), at(5), |_, _, _| Heartbeat::Owed), []);
    let (prompt, nodes) = (registry.version(), [record(1, vec![volume(1)], false)]);
    assert!(!registry.describe(&nodes[0]).late);
    assert_eq!(registry.on_tick([N1].into_iter(), at(6), |_, _, _| Heartbeat::NotYet), []);
    assert!(!registry.describe(&nodes[0]).late, "it sleeps");
    assert_eq!(registry.on_tick([N1].into_iter(), at(6), |_, _, _| Heartbeat::Owed), []);
    assert!(registry.describe(&nodes[0]).late && registry.version() > prompt, "clients hear of missed heartbeats");
    assert_eq!(registry.on_tick([N1].into_iter(), at(30), |_, _, _| Heartbeat::Owed), []);
    assert_eq!(registry.on_tick([N1].into_iter(), at(31), |_, _, _| Heartbeat::Owed), [Loss::NodeDied(N1)]);
    assert_eq!(registry.on_tick([N1].into_iter(), at(32), |_, _, _| Heartbeat::Owed), [], "told once");
    assert!(registry.is_dead(N1));
    let before = registry.version();
    assert_eq!(registry.on_heartbeat(&beat(7, vec![volume(1)]), at(40)), (Pulse::Known, vec![]));
    assert!(registry.is_live(N1) && registry.version() > before);
    assert!(!registry.describe(&nodes[0]).late);
}

#[test]
fn a_node_that_never_comes_back_is_dead_after_the_dead_time() {
    let mut registry = registry();
    let nodes = [record(1, vec![volume(1)], false)];
    assert!(!registry.is_safe_start(nodes.iter(), |_| false));
    assert_eq!(registry.on_tick([N1].into_iter(), at(29), |_, _, _| Heartbeat::Owed), []);
    assert!(!registry.is_dead(N1), "not heard of is not lost");
    assert_eq!(registry.on_tick([N1].into_iter(), at(30), |_, _, _| Heartbeat::Owed), [Loss::NodeDied(N1)]);
    assert!(registry.is_safe_start(nodes.iter(), |_| false));
}

#[test]
fn a_node_that_sleeps_by_plan_is_not_dead() {
    let mut registry = registry();
    registry.on_register(N1, BootId::new(7), 1, &[volume(1)], at(1));
    assert_eq!(registry.on_tick([N1].into_iter(), at(100), |_, _, _| Heartbeat::Off), []);
    assert!(registry.is_live(N1));
    assert_eq!(registry.on_tick([N1].into_iter(), at(101), |_, _, _| Heartbeat::Owed), [Loss::NodeDied(N1)]);
}

/// A plan may be made because a node is missed, and leave it out: it is missed all the same.
#[test]
fn a_node_that_is_late_stays_late_and_dies_although_a_plan_switches_it_off() {
    let mut registry = registry();
    registry.on_register(N1, BootId::new(7), 1, &[volume(1)], at(1));
    let node = record(1, vec![volume(1)], false);
    assert_eq!(registry.on_tick([N1].into_iter(), at(6), |_, _, _| Heartbeat::Owed), []);
    assert_eq!(registry.on_tick([N1].into_iter(), at(8), |_, _, _| Heartbeat::Off), []);
    assert!(registry.describe(&node).late);
    assert_eq!(registry.on_tick([N1].into_iter(), at(31), |_, _, _| Heartbeat::NotYet), [], "it may still be woken");
    assert_eq!(registry.on_tick([N1].into_iter(), at(31), |_, _, _| Heartbeat::Off), [Loss::NodeDied(N1)]);
}

#[test]
fn safe_start_waits_for_the_report_of_every_volume() {
    let mut registry = registry();
    let nodes = [record(1, vec![volume(1), volume(2)], false)];
    registry.on_register(N1, BootId::new(7), 1, &[volume(1), volume(2)], at(1));
    let whole = |ids: &[u64], first: bool| Reported::Whole {
        named: ids.iter().copied().map(MetablockId::new).collect(),
        first,
    };
    assert_eq!(registry.on_report(&report(7, 1, &[4, 5], false)), Reported::Part);
    assert_eq!(registry.on_report(&report(7, 1, &[6], true)), whole(&[4, 5, 6], true));
    assert!(!registry.is_safe_start(nodes.iter(), |_| false));
    assert_eq!(registry.on_report(&report(8, 2, &[], true)), Reported::Unknown, "of another start");
    registry.on_report(&report(7, 2, &[], true));
    assert!(registry.is_safe_start(nodes.iter(), |_| false));
    registry.on_register(N1, BootId::new(8), 1, &[volume(1), volume(2)], at(9));
    assert!(!registry.is_safe_start(nodes.iter(), |_| false), "a new start reports anew");
    registry.on_report(&report(8, 1, &[7], true));
    assert_eq!(registry.on_report(&report(8, 1, &[7, 8], false)), Reported::Part);
    registry.on_register(N1, BootId::new(8), 1, &[volume(1), volume(2)], at(9));
    assert_eq!(registry.on_report(&report(8, 1, &[9], true)), whole(&[9], false), "what broke off counts no more");
}

#[test]
fn safe_start_does_not_wait_for_nodes_that_are_off_by_plan() {
    let mut registry = registry();
    let nodes = [record(1, vec![volume(1)], false), record(2, vec![volume(2)], false)];
    let is_off = |node| node == NodeId::new(2);
    registry.on_register(N1, BootId::new(7), 1, &[volume(1)], at(1));
    assert!(!registry.is_safe_start(nodes.iter(), is_off), "the one that is on has not reported");
    registry.on_report(&report(7, 1, &[], true));
    assert!(registry.is_safe_start(nodes.iter(), is_off));
    assert!(!registry.is_safe_start(nodes.iter(), |_| false), "it was switched on");
    registry.on_register(NodeId::new(2), BootId::new(8), 1, &[volume(2)], at(9));
    assert!(!registry.is_safe_start(nodes.iter(), is_off), "whoever was heard reports, whatever a plan says");
}

#[test]
fn an_unknown_start_is_sent_to_register() {
    let mut registry = registry();
    assert_eq!(registry.on_heartbeat(&beat(7, vec![]), at(1)).0, Pulse::Register);
    registry.on_register(N1, BootId::new(7), 1, &[volume(1)], at(1));
    assert_eq!(registry.on_heartbeat(&beat(8, vec![]), at(2)).0, Pulse::Register);
    assert_eq!(registry.by_boot(BootId::new(7)), Some(N1));
    assert_eq!(registry.by_boot(BootId::new(8)), None);
}

#[test]
fn a_volume_that_becomes_poisoned_is_reported_once_and_lost() {
    let mut registry = registry();
    registry.on_register(N1, BootId::new(7), 1, &[volume(1)], at(1));
    let trouble = "sync of a replica: Input/output error".to_owned();
    let bad = pb::Volume { state: pb::VolumeState::VolumePoisoned as i32, trouble: trouble.clone(), ..volume(1) };
    let (_, losses) = registry.on_heartbeat(&beat(7, vec![bad.clone()]), at(2));
    assert_eq!(losses, [Loss::VolumePoisoned(VolumeId::new(1))]);
    assert_eq!(registry.on_heartbeat(&beat(7, vec![bad]), at(3)).1, []);
    assert!(registry.is_poisoned(N1, VolumeId::new(1)) && registry.is_live(N1));
    let shown = registry.describe(&record(1, vec![volume(1)], false)).volumes.remove(0);
    assert_eq!((shown.state(), shown.trouble), (pb::VolumeState::VolumePoisoned, trouble));
    assert_eq!(registry.space(&Reservations::default()), Space::default());
}

#[test]
fn placement_sees_the_nodes_that_may_take_replicas() {
    let mut registry = registry();
    registry.on_register(N1, BootId::new(7), 1, &[volume(1)], at(1));
    let usable_if = |registry: &Registry, draining, patience, now, rest| {
        let nodes = [record(1, vec![volume(1)], draining)];
        let view = registry.view(nodes.iter(), patience, &Reservations::default(), now, |_| rest);
        assert_eq!((view.volumes[0].free_bytes, view.volumes[0].incarnation.raw()), (600, 9));
        view.volumes[0].usable
    };
    let usable =
        |registry: &Registry, draining, patience, now| usable_if(registry, draining, patience, now, Sleep::None);
    assert!(usable(&registry, false, Patience::Prompt, at(2)));
    assert!(usable_if(&registry, false, Patience::Prompt, at(6), Sleep::Blinks), "it sleeps, and wakes by itself");
    // A node that is switched off is a home, whether or not it has reported to this process.
    for (of, free) in [(&registry, 600), (&self::registry(), super::UNREPORTED_FREE_BYTES)] {
        let nodes = [record(1, vec![volume(1)], false)];
        let view = of.view(nodes.iter(), Patience::Prompt, &Reservations::default(), at(90), |_| Sleep::Off);
        assert_eq!((view.volumes[0].usable, view.volumes[0].off, view.volumes[0].free_bytes), (true, true, free));
    }
    assert!(!usable_if(&registry, true, Patience::Prompt, at(2), Sleep::Off), "off and draining");
    assert!(!usable(&registry, true, Patience::Prompt, at(2)), "draining");
    assert!(!usable(&registry, false, Patience::Prompt, at(6)), "silent");
    assert!(usable(&registry, false, Patience::UntilDead, at(6)));
    registry.on_tick([N1].into_iter(), at(40), |_, _, _| Heartbeat::Owed);
    assert!(!usable(&registry, false, Patience::UntilDead, at(40)), "dead");
    assert_eq!(registry.describe(&record(1, vec![volume(1)], true)).state, pb::NodeState::NodeDead as i32);
}

#[test]
fn a_device_counts_once_however_many_volumes_share_it() {
    let mut registry = registry();
    let on = |id: u64, device: u64, free_bytes: u64| pb::Volume { device, free_bytes, used_bytes: 10, ..volume(id) };
    registry.on_register(N1, BootId::new(7), 1, &[on(1, 5, 600), on(2, 5, 590), on(3, 6, 400)], at(1));
    // Another node of the same machine, and two volumes that do not tell.
    registry.on_register(NodeId::new(2), BootId::new(8), 1, &[on(4, 5, 600), on(5, 0, 100), on(6, 0, 100)], at(1));
    let space = registry.space(&Reservations::default());
    let seen = (space.capacity_bytes, space.free_bytes, space.used_bytes);
    assert_eq!(seen, (4 * 1000, 590 + 400 + 100 + 100, 60));
    // 2 % of each device stay free; both nodes share the largest one.
    assert_eq!(space.available_bytes(2), (570 + 380 + 80 + 80) / 2);
}
