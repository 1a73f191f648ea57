//! The faults of a run and their times: a swarm for each seed.
//!
//! Each seed switches each kind of fault on or off (Groce et al., "Swarm Testing", ISSTA 2012: a run with few kinds of
//! faults goes deeper than one with all). Each fault lasts a while and is then undone; several may be under way at a
//! time, on any process. Synced data survive on as many copies as the promises count on ([`budget`]), so no promise is
//! ever suspended.

pub mod budget;
pub mod drain;
pub mod kind;
pub mod links;
pub mod master_disk;
mod returns;

use std::time::Duration;

use ebb_runtime::virt::{Dice, DiskFaults, World};

use self::kind::{Fault, Kind};
use crate::cluster::{Cluster, Member, Role};
use crate::watch::Watch;

/// Makes faults for `span`, then undoes them all.
pub async fn run(cluster: &Cluster, world: &World, watch: &Watch<'_>, span: Duration, mean_pause: Duration) {
    if mean_pause.is_zero() {
        world.sleep(span).await;
        return;
    }
    let mut dice = world.dice("faults");
    let mut kinds: Vec<Kind> = Kind::ALL.iter().copied().filter(|_| dice.chance(0.4)).collect();
    if let Some(only) = &cluster.options().faults {
        kinds.clone_from(only);
    }
    if kinds.is_empty() {
        kinds.push(*dice.pick(Kind::ALL));
    }
    tracing::info!(?kinds, "faults of this seed");
    let keeper = world.process("keeper").runtime();
    let end = world.now() + span;
    while world.now() < end {
        world.sleep(dice.span(mean_pause * 2)).await;
        let Some(fault) = draw(cluster, &kinds, &mut dice) else { continue };
        let (kind, name) = (fault.kind, fault.member.process.name().to_owned());
        let lasts = kind.span(fault.member.role, &mut dice);
        if kind.mars() && !may_mar(cluster, watch, &name).await {
            continue;
        }
        if kind == Kind::Drain && !drain::may_begin(cluster, &fault.member) {
            continue;
        }
        let impaired = fault.impaired(cluster);
        {
            let mut budget = cluster.budget();
            if !budget.impair(&impaired) {
                continue;
            }
            if kind.mars() {
                budget.mar(&name);
            }
        }
        cluster.note_fault(kind);
        if kind.forgets(fault.member.role) {
            cluster.note_lost_memory();
        }
        tracing::debug!(%kind, name, ?lasts, "a fault begins");
        let undo = fault.inject(cluster, world, &mut dice);
        let (waiting, cluster) = (keeper.clone(), cluster.clone());
        keeper.spawn("undo a fault", async move {
            waiting.sleep(lasts).await;
            undo(&cluster);
            tracing::debug!(%kind, name, "it ends");
            let mut budget = cluster.budget();
            budget.recover(&impaired);
            if kind.mars() {
                budget.end_marring();
            }
        });
    }
    heal(cluster, world);
}

fn draw(cluster: &Cluster, kinds: &[Kind], dice: &mut Dice) -> Option<Fault> {
    // A fault that mars needs a cluster that is whole, and it seldom is: these kinds go first when they are possible.
    let marring: Vec<Kind> = kinds.iter().copied().filter(|kind| kind.mars()).collect();
    let goes_first = !marring.is_empty() && dice.chance(0.3) && cluster.budget().is_untouched();
    let kind = *dice.pick(if goes_first { &marring } else { kinds });
    let members: Vec<_> = cluster.members().iter().filter(|member| kind.befalls(member.role)).collect();
    let member = (*dice.pick(&members)).clone();
    let others: Vec<_> =
        cluster.members().iter().filter(|other| other.process.host() != member.process.host()).collect();
    let other = (*dice.pick(&others)).clone();
    // A process that has gone for good cannot fail again.
    let fault = Fault { kind, member, other };
    (!cluster.is_given_up(&fault.member)).then_some(fault)
}

/// Whether the copies bear it that this block server loses something.
async fn may_mar(cluster: &Cluster, watch: &Watch<'_>, name: &str) -> bool {
    // A node that drains counts as gone for placement.
    let is_left = |member: &&Member| {
        let is_drained = cluster.drained().as_deref() == Some(member.process.host());
        member.role == Role::Block && !cluster.is_given_up(member) && !is_drained
    };
    let left = cluster.members().iter().filter(is_left);
    let spare = left.count() > cluster.options().least_block_servers();
    // Ordering: asked again after the look, which takes time in which other faults end.
    spare && cluster.budget().may_mar(name) && watch.is_complete(false).await && cluster.budget().may_mar(name)
}

/// Undoes every fault that is left.
pub fn heal(cluster: &Cluster, world: &World) {
    cluster.end_faults();
    // Some block servers are started again.
    cluster.note_lost_memory();
    world.heal();
    links::mend_gray(cluster, world);
    for member in cluster.members() {
        let process = &member.process;
        process.thaw();
        process.slow_disk(1.0);
        process.skew(0);
        process.fill_disk(None);
        process.cancel_misdirection();
        process.cancel_disk_faults();
        process.disk_faults(DiskFaults::default());
        // A volume that has seen an error of its disk is checked at the start of its process, as an operator would have
        // it checked.
        if member.role == Role::Block && cluster.budget().was_marred(process.name()) {
            process.kill();
        }
        cluster.restart(member);
    }
}
