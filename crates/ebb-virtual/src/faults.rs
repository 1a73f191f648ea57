//! What goes wrong, and when: a swarm of faults for each seed.
//!
//! Each seed switches each kind of fault on or off (Groce et al., "Swarm Testing", ISSTA 2012: a run with few kinds of
//! faults goes deeper than one with all). Each fault lasts a while and is then undone; several may be under way at a
//! time, on any process. Synced data survives all of them, so no promise is ever suspended.

use std::time::Duration;

use ebb_runtime::virt::Dice;

use crate::cluster::{Cluster, Member, Role};

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Power fails and comes back; unsynced writes are lost or torn.
    Crash,
    /// Power stays away for a while, and peers hear nothing.
    PowerOff,
    /// The process is killed; its page cache stays.
    Kill,
    /// The process gets no processor.
    Freeze,
    /// Two hosts cannot reach each other.
    Partition,
    /// Nothing gets from one host to another, but the other way it does.
    OneWay,
    /// A host is cut off from all others.
    Isolate,
    /// A disk takes far longer.
    SlowDisk,
    /// The wall clock jumps.
    Skew,
}

const KINDS: [Kind; 9] = [
    Kind::Crash,
    Kind::PowerOff,
    Kind::Kill,
    Kind::Freeze,
    Kind::Partition,
    Kind::OneWay,
    Kind::Isolate,
    Kind::SlowDisk,
    Kind::Skew,
];

/// Makes faults for as long as told, then undoes them all.
pub async fn run(cluster: &Cluster, world: &ebb_runtime::virt::World, span: Duration, mean_pause: Duration) {
    if mean_pause.is_zero() {
        world.sleep(span).await;
        return;
    }
    let mut dice = world.dice("faults");
    let mut kinds: Vec<Kind> = KINDS.into_iter().filter(|_| dice.coin()).collect();
    if kinds.is_empty() {
        kinds.push(*dice.pick(&KINDS));
    }
    tracing::info!(?kinds, "faults of this seed");
    let keeper = world.process("keeper").runtime();
    let end = world.now() + span;
    while world.now() < end {
        world.sleep(dice.span(mean_pause * 2)).await;
        let kind = *dice.pick(&kinds);
        let member = dice.pick(cluster.members()).clone();
        let lasts = dice.span_between(Duration::from_millis(50), Duration::from_secs(20));
        // Frequent short ones meet other edges than rare long ones.
        let lasts = if dice.coin() { lasts / 10 } else { lasts };
        let undo = begin(cluster, world, kind, &member, &mut dice);
        let (waiting, cluster) = (keeper.clone(), cluster.clone());
        keeper.spawn("undo a fault", async move {
            waiting.sleep(lasts).await;
            undo(&cluster);
        });
    }
    heal(cluster, world);
}

/// Undoes whatever is still wrong.
pub fn heal(cluster: &Cluster, world: &ebb_runtime::virt::World) {
    world.heal();
    for member in cluster.members() {
        member.process.thaw();
        member.process.slow_disk(1.0);
        member.process.skew(0);
        cluster.restart(member);
    }
}

/// How a fault is undone.
type Undo = Box<dyn FnOnce(&Cluster) + Send>;

fn begin(cluster: &Cluster, world: &ebb_runtime::virt::World, kind: Kind, member: &Member, dice: &mut Dice) -> Undo {
    let process = &member.process;
    let again = member.clone();
    match kind {
        Kind::Crash | Kind::PowerOff | Kind::Kill => {
            match kind {
                Kind::Crash => process.crash(),
                Kind::PowerOff => process.power_off(),
                _ => process.kill(),
            }
            cluster.on_death(member);
            Box::new(move |cluster| cluster.restart(&again))
        }
        Kind::Freeze => {
            process.freeze();
            Box::new(move |_| again.process.thaw())
        }
        Kind::Partition | Kind::OneWay | Kind::Isolate => {
            let hosts: Vec<String> = cluster.members().iter().map(|other| other.process.host().to_owned()).collect();
            let own = process.host();
            let others: Vec<&String> = hosts.iter().filter(|host| *host != own).collect();
            match kind {
                Kind::Partition => world.partition(own, others[dice.index(others.len())]),
                Kind::OneWay => world.partition_one_way(own, others[dice.index(others.len())]),
                _ => others.iter().for_each(|other| world.partition(own, other)),
            }
            let world = world.clone();
            Box::new(move |_| world.heal())
        }
        Kind::SlowDisk => {
            // A disk of a client holds nothing.
            if !matches!(member.role, Role::Client(_)) {
                process.slow_disk(dice.between(10, 1000) as f64);
            }
            Box::new(move |_| again.process.slow_disk(1.0))
        }
        Kind::Skew => {
            let hour: u64 = 3_600_000_000_000;
            process.skew(dice.between(0, 2 * hour).cast_signed() - hour.cast_signed());
            Box::new(move |_| again.process.skew(0))
        }
    }
}
