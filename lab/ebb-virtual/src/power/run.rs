//! A run: a policy against a signal, programs, and faults; then rest, and the checks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ebb_client::{Access, Client, Location};
use ebb_layout::LayoutKind;
use ebb_power::chain::{ChainShape, DatasetChain};
use ebb_power::signal::Trace;
use ebb_power::{Battery, Duty, Hardware, wall_ms};
use ebb_power_manager::known::holding;
use ebb_runtime::virt::options::Panics;
use ebb_runtime::virt::{Dice, Process, World, WorldOptions};
use ebb_types::{DatasetId, InodeId, NodeId, Result, bail};
use ebb_wire::pb;
use parking_lot::Mutex;
use pb::meta_op::{Op, SetDataset};

use super::meter::{Look, Meter};
use super::options::{Fault, PowerOptions};
use super::supplied::Supplied;
use super::work::{self, Ledger};
use super::{DEAD_TIME, LOG_DIR, OverloadRule, PowerCluster};
use crate::invariants::{Violation, healthy, linear, placed};
use crate::names::work::Names;
use crate::report::Report;
use crate::workload::Board;

const FILES: usize = 6;
/// How many metablocks the file that is kept has before anything goes wrong.
const KEPT_FIRST: u32 = 30;
const WRITERS: usize = 2;
/// Programs that use the same names, and their longest pause between two operations.
const NAMERS: usize = 2;
const NAMERS_PAUSE: Duration = Duration::from_millis(250);
const LOOK: Duration = Duration::from_millis(10);
/// Readings between two questions to the master.
const ASK_EVERY: u32 = 20;
/// For everything to come to rest, and for a read then.
const REST_MAX: Duration = Duration::from_secs(240);
/// After so long at full power, the master has missed every silent node.
const MISSED_AFTER: Duration = DEAD_TIME.saturating_add(Duration::from_secs(2));
const READ_MAX: Duration = Duration::from_secs(90);
/// The time of a call beside the wait for a node.
const SLACK: Duration = Duration::from_millis(400);

/// Blocks of the files are small, and so are the limits of an overload.
const OVERLOADED: OverloadRule = OverloadRule { ahead_bytes: Some(128 << 10), ahead_metablocks: 2, away_max: 2048 };

#[derive(Clone, Copy)]
enum Program {
    Writer(usize),
    Reader,
    /// Writes more at a time than the primaries.
    Burst,
    /// Makes the file longer that is kept.
    Filler(InodeId),
    /// Uses names of a directory that others use, too, with its number among these.
    Namer(usize),
}

struct Scene {
    world: World,
    cluster: PowerCluster,
    options: PowerOptions,
    /// Where the files are.
    directory: InodeId,
    path: &'static str,
    /// The file that is kept.
    kept: Option<InodeId>,
    ledger: Mutex<Ledger>,
    /// The operations on names.
    board: Board,
    meter: Mutex<Meter>,
    supply: Supplied,
    injected: Mutex<BTreeMap<String, u64>>,
    /// Until then nodes need not follow their plan, by the wall clock in milliseconds.
    excused_ms: AtomicU64,
    /// Faults that have not been undone.
    open: AtomicU64,
    done: AtomicBool,
    /// The most copies that were seen away from homes that no plan lets sleep.
    away_from_on: AtomicU64,
    /// Programs that have ended.
    finished: Mutex<BTreeSet<String>>,
}

/// Runs a cluster that follows its power under the faults of a seed.
#[must_use]
pub fn run(seed: u64, options: PowerOptions) -> Report {
    let world_options = WorldOptions { panics: Panics::EndTheTask, bug: options.bug, ..WorldOptions::default() };
    World::run(seed, world_options, |world| async move {
        let mut report = Report { seed, ..Report::default() };
        match Scene::set_up(&world, options).await {
            Ok(scene) => {
                let found = scene.drive().await;
                let ledger = scene.ledger.lock();
                (report.writes, report.acked, report.firm, report.reads) =
                    (ledger.writes, ledger.acked, ledger.firm, ledger.reads);
                report.injected.clone_from(&scene.injected.lock());
                report.away_from_on = scene.away_from_on.load(Ordering::Relaxed);
                let complaints = ledger.complaints.iter().take(5);
                report.violations.extend(complaints.map(|complaint| Violation::new("synced", complaint.clone())));
                report.violations.extend(scene.meter.lock().violations().iter().cloned());
                let history = scene.board.history.lock();
                report.names = history.names().len() as u64;
                report.violations.extend(history.complaints().iter().take(5).cloned());
                report.violations.extend(linear::check(&history));
                report.violations.extend(found.err());
            }
            Err(error) => report.violations.push(Violation::new("healthy", format!("does not start: {error}"))),
        }
        report.violations.extend(healthy::check_panics(&world.panics()));
        report.trace_hash = format!("{:016x}", world.trace_hash());
        report.virtual_seconds = world.now().as_secs_f64();
        report.faults = world.faults().into_iter().map(|(kind, count)| (kind.to_owned(), count)).collect();
        report
    })
}

impl Scene {
    /// Starts everything, makes the files at full power, and follows the signal.
    async fn set_up(world: &World, options: PowerOptions) -> Result<Arc<Self>> {
        let mut settings = super::PowerOptions::new(options.nodes, options.policy, options.interval);
        settings.overload_rule = OVERLOADED;
        let cluster = PowerCluster::start_with(world, settings).await?;
        let client = cluster.connect("maker").await?;
        let (directory, path) =
            if options.bursts { (work::make_chain(&client, options.nodes).await?, "/d") } else { (InodeId::ROOT, "") };
        for file in 0..FILES {
            work::make(&client, directory, file).await?;
        }
        let (ledger, mut kept) = (Mutex::new(Ledger::of(FILES)), None);
        if let Some(layout) = options.kept {
            let file = work::make_kept(&client, options.nodes, layout).await?;
            let (mut dice, done) = (world.dice("kept"), AtomicBool::new(false));
            work::keep_on(world, &client, file, &ledger, KEPT_FIRST, &mut dice, &done).await?;
            kept = Some(file);
        }
        let extra_share_percent = Some(options.extra_share_percent);
        let set = SetDataset { dataset: 0, extra_share_percent, ..Default::default() };
        client.meta(&ebb_types::Credentials::root(), Op::SetDataset(set)).await?;
        client.disconnect().await?;
        let ids: Vec<NodeId> = cluster.nodes.ids.lock().keys().copied().collect();
        let power = cluster.settings.node();
        let hardware = Hardware::new(40.0, ids.into_iter().map(|id| (id, power)).collect())?;
        let battery = Battery::full(hardware.full_watts(), 300.0);
        let csv = options.signal.trace(24, options.step, &mut world.dice("signal"));
        cluster.follow(&csv).await?;
        let supply = Supplied::new(Trace::parse("signal", &csv)?, world.now());
        let scene = Arc::new(Self {
            world: world.clone(),
            cluster,
            options,
            directory,
            path,
            kept,
            away_from_on: AtomicU64::new(0),
            ledger,
            board: crate::board(world),
            meter: Mutex::new(Meter::new(hardware.clone(), battery)),
            supply,
            injected: Mutex::default(),
            excused_ms: AtomicU64::new(0),
            open: AtomicU64::new(0),
            done: AtomicBool::new(false),
            finished: Mutex::default(),
        });
        let operator = world.process("meter").runtime();
        operator.spawn("meter", Arc::clone(&scene).measure());
        for writer in 0..WRITERS {
            operator.spawn("writer", Arc::clone(&scene).live(format!("w{writer}"), Program::Writer(writer)));
        }
        operator.spawn("reader", Arc::clone(&scene).live("reader".to_owned(), Program::Reader));
        if scene.options.bursts {
            operator.spawn("burst", Arc::clone(&scene).live("burst".to_owned(), Program::Burst));
        }
        if let Some(file) = scene.kept {
            operator.spawn("filler", Arc::clone(&scene).live("filler".to_owned(), Program::Filler(file)));
        }
        for namer in 0..scene.namers() {
            operator.spawn("namer", Arc::clone(&scene).live(format!("n{namer}"), Program::Namer(namer)));
        }
        Ok(scene)
    }

    fn namers(&self) -> usize {
        if self.options.names { NAMERS } else { 0 }
    }

    fn programs(&self) -> usize {
        WRITERS + 1 + usize::from(self.options.bursts) + usize::from(self.kept.is_some()) + self.namers()
    }

    fn now_ms(&self) -> u64 {
        wall_ms(self.world.process("meter").runtime().wall())
    }

    /// Measures the nodes for as long as the run lasts.
    async fn measure(self: Arc<Self>) {
        for number in 0_u32.. {
            if number.is_multiple_of(ASK_EVERY)
                && let Ok(reply) = self.cluster.describe().await
            {
                self.feed_meter(&reply);
            }
            let at_ms = self.now_ms();
            let is_excused = at_ms < self.excused_ms.load(Ordering::Relaxed);
            let supply_watts = self.supply.nodes_watts(self.world.now(), self.cluster.nodes.blocks.len());
            let look = Look { at_ms, watts: self.cluster.nodes_watts(), supply_watts, is_excused };
            self.meter.lock().on_look(look);
            if number % ASK_EVERY == ASK_EVERY / 2
                && let Ok(status) = self.cluster.status().await
            {
                self.meter.lock().on_charge(status.battery_joules, is_excused);
            }
            self.world.sleep(LOOK).await;
        }
    }

    fn feed_meter(&self, reply: &pb::DescribePowerReply) {
        let (now_ms, mut meter) = (self.now_ms(), self.meter.lock());
        if let Err(error) = meter.on_plans(&reply.plans, now_ms) {
            self.ledger.lock().complaints.push(format!("a plan that cannot be decoded: {error}"));
        }
        let plan = meter.plan(now_ms).cloned();
        let is_on = |away: &&pb::Away| {
            let duty = plan.as_ref().and_then(|plan| plan.nodes.get(&NodeId::new(away.home)));
            duty.is_none_or(|node| node.duty == Duty::On)
        };
        let away = reply.away.iter().filter(is_on).map(|away| away.metablocks).sum();
        self.away_from_on.fetch_max(away, Ordering::Relaxed);
        if let Some(node) = reply.nodes.iter().find(|node| node.gray.is_some()) {
            meter.complain("gray", format!("n{} is called gray, and nothing is slow", node.id));
        }
        let is_dead = |node: &&pb::Node| node.state() == pb::NodeState::NodeDead;
        let dead = reply.nodes.iter().filter(is_dead).map(|node| NodeId::new(node.id)).collect();
        let is_excused = now_ms < self.excused_ms.load(Ordering::Relaxed) + 10_000;
        meter.on_holdings(&reply.holdings.iter().map(holding).collect::<Vec<_>>(), &dead, now_ms, is_excused);
    }

    /// A program that is started again whenever it ends, until work is over.
    async fn live(self: Arc<Self>, host: String, program: Program) {
        let process = self.world.process(&host);
        let mut dice = self.world.dice(&host);
        while !self.done.load(Ordering::Relaxed) {
            if !process.is_alive() {
                process.restart();
            }
            let (own, host) = (Arc::clone(&self), host.clone());
            let dice = Dice::new(dice.below(u64::MAX), "life");
            let life = async move { own.work(&host, program, dice).await };
            if let Err(error) = process.runtime().spawn("main", life).join().await.and_then(|ended| ended) {
                tracing::debug!(%error, "a program ends");
                process.kill();
            }
            self.world.sleep(Duration::from_millis(500)).await;
        }
        self.finished.lock().insert(host);
    }

    async fn work(&self, host: &str, program: Program, mut dice: Dice) -> Result<()> {
        let client = self.cluster.connect(host).await?;
        match program {
            Program::Writer(writer) => {
                let own: Vec<usize> = (0..FILES).filter(|file| file % WRITERS == writer).collect();
                work::write_on(&self.world, &client, self.path, &own, &self.ledger, &mut dice, &self.done).await?;
            }
            Program::Burst => {
                work::burst_on(&self.world, &client, self.directory, &self.ledger, &mut dice, &self.done).await?;
            }
            Program::Filler(file) => {
                work::keep_on(&self.world, &client, file, &self.ledger, u32::MAX, &mut dice, &self.done).await?;
            }
            Program::Namer(number) => {
                let runtime = self.world.process(host).runtime();
                let names = Names::new(self.board.clone(), number, client.clone(), runtime, "/").await?;
                names.run(dice, NAMERS_PAUSE).await;
            }
            Program::Reader => {
                while !self.done.load(Ordering::Relaxed) {
                    let file = dice.below(FILES as u64) as usize;
                    work::read_once(&client, self.path, file, &self.ledger).await?;
                    self.world.sleep(dice.span(Duration::from_millis(1500))).await;
                }
            }
        }
        client.disconnect().await
    }

    async fn drive(self: &Arc<Self>) -> Result<(), Violation> {
        self.make_faults().await;
        self.heal().await;
        self.come_to_rest().await?;
        let reader = self.connect("observer").await?;
        for file in 0..FILES {
            self.timed(READ_MAX, "reach", work::read_once(&reader, self.path, file, &self.ledger)).await?;
        }
        if let Some(file) = self.kept {
            self.timed(READ_MAX, "reach", work::read_kept(&reader, file, &self.ledger)).await?;
        }
        let disconnected = reader.disconnect().await;
        disconnected.map_err(|error| Violation::new("healthy", format!("a reader cannot leave: {error}")))?;
        self.look_at_places().await?;
        self.look_at_level().await
    }

    async fn connect(&self, host: &str) -> Result<Client, Violation> {
        let client = self.cluster.connect(host).await;
        client.map_err(|error| Violation::new("healthy", format!("no session at rest: {error}")))
    }

    /// Does work that must come to an end; returns its duration.
    async fn timed(
        &self,
        longest: Duration,
        invariant: &'static str,
        work: impl Future<Output = Result<()>>,
    ) -> Result<Duration, Violation> {
        let began = self.world.now();
        let done = tokio::select! {
            biased;
            done = work => done.map_err(|error| Violation::new(invariant, format!("fails: {error}"))),
            () = self.world.sleep(longest) => Err(Violation::new(invariant, format!("takes longer than {longest:?}"))),
        };
        done.map(|()| self.world.now() - began)
    }

    async fn make_faults(self: &Arc<Self>) {
        let mut dice = self.world.dice("power faults");
        let end = self.world.now() + self.options.chaos;
        let mut may_lose = true;
        while self.world.now() < end {
            let pause = if self.options.fault_pause.is_zero() {
                self.options.chaos
            } else {
                dice.span(self.options.fault_pause * 2)
            };
            self.world.sleep(pause).await;
            let fault = *dice.pick(&self.options.faults);
            if self.world.now() >= end {
                break;
            }
            if fault == Fault::Disk {
                // One failure in all, and at a moment at which nothing else is wrong.
                if !may_lose || !self.is_well().await {
                    continue;
                }
                may_lose = false;
            }
            *self.injected.lock().entry(fault.name().to_owned()).or_default() += 1;
            self.begin_fault(fault, &mut dice).await;
        }
    }

    /// Whether every copy is where it should be and every process works.
    async fn is_well(&self) -> bool {
        let status = self.cluster.cluster_status().await;
        self.open.load(Ordering::Relaxed) == 0
            && status.is_ok_and(|status| status.serving && status.under_replicated == 0)
    }

    fn excuse(&self, span: Duration) {
        let span = span + self.options.interval * 2 + Duration::from_secs(1);
        let until = self.now_ms() + u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        self.excused_ms.fetch_max(until, Ordering::Relaxed);
    }

    async fn begin_fault(self: &Arc<Self>, fault: Fault, dice: &mut Dice) {
        let span = dice.span_between(Duration::from_millis(100), Duration::from_secs(4));
        let place = dice.below(self.options.nodes as u64) as usize;
        let cluster = &self.cluster;
        self.excuse(span);
        let restart: Box<dyn FnOnce(&PowerCluster) + Send> = match fault {
            Fault::Node => {
                if !cluster.nodes.blocks[place].is_alive() {
                    return;
                }
                cluster.nodes.blocks[place].power_off();
                Box::new(move |cluster| cluster.restart_block(place))
            }
            Fault::Master => {
                cluster.master.crash();
                Box::new(PowerCluster::begin_master)
            }
            Fault::Manager => {
                cluster.manager.kill();
                Box::new(PowerCluster::restart_manager)
            }
            Fault::Keeper => {
                cluster.keeper.kill();
                Box::new(PowerCluster::restart_keeper)
            }
            Fault::Writer => {
                self.world.process(&format!("w{}", dice.below(WRITERS as u64))).kill();
                Box::new(|_| {})
            }
            Fault::AlwaysOnAndWriters => {
                (0..WRITERS).for_each(|writer| self.world.process(&format!("w{writer}")).kill());
                cluster.master.crash();
                Box::new(PowerCluster::begin_master)
            }
            Fault::Skew => {
                self.skew(place, dice);
                Box::new(|_| {})
            }
            Fault::Disk if dice.coin() => {
                cluster.nodes.blocks[place].power_off();
                cluster.nodes.blocks[place].wipe_disk(Path::new("/"));
                cluster.nodes.lost.lock().insert(place);
                Box::new(|_| {})
            }
            Fault::Disk => {
                (0..WRITERS).for_each(|writer| self.world.process(&format!("w{writer}")).kill());
                cluster.master.crash();
                cluster.master.wipe_disk(Path::new(LOG_DIR));
                Box::new(PowerCluster::begin_master)
            }
        };
        self.open.fetch_add(1, Ordering::Relaxed);
        let own = Arc::clone(self);
        self.world.process("meter").runtime().spawn("undo a fault", async move {
            own.world.sleep(span).await;
            restart(&own.cluster);
            own.open.fetch_sub(1, Ordering::Relaxed);
        });
    }

    fn skew(&self, place: usize, dice: &mut Dice) {
        let small = dice.between(0, 40_000_000).cast_signed() - 20_000_000;
        let hour = dice.between(0, 7_200_000_000_000).cast_signed() - 3_600_000_000_000;
        match dice.below(4) {
            0 => self.world.process("reader").skew(hour),
            1 => self.world.process("w0").skew(small),
            2 => self.cluster.manager.skew(small),
            _ => self.cluster.nodes.blocks[place].skew(small),
        }
    }

    /// Undoes every fault that is left, and gives all the power that there is.
    async fn heal(&self) {
        while self.open.load(Ordering::Relaxed) > 0 {
            self.world.sleep(Duration::from_millis(100)).await;
        }
        let programs = ["reader", "w0", "w1"].map(|host| self.world.process(host));
        let all = self.cluster.nodes.blocks.iter().chain(&programs).chain([&self.cluster.manager]);
        all.for_each(|process: &Process| process.skew(0));
        self.excuse(Duration::ZERO);
        self.done.store(true, Ordering::Relaxed);
        self.board.done.store(true, Ordering::Relaxed);
    }

    async fn come_to_rest(&self) -> Result<(), Violation> {
        let end = self.world.now() + REST_MAX;
        let (mut last, mut waits_for) = (String::new(), "converge");
        let mut full_since = None;
        while self.world.now() < end {
            let set = self.supply.force(&self.cluster, 1.0).await;
            if set.is_ok() {
                full_since.get_or_insert(self.world.now());
            }
            let plan = self.cluster.status().await.map(|reply| (reply.plan_version, reply.why));
            match self.cluster.cluster_status().await {
                Ok(status) => {
                    let ended = self.finished.lock().clone();
                    // The copies of a lost node are missed when it counts as dead, and not while it is only late.
                    let known = status.nodes.iter().all(|node| !node.late || node.state() == pb::NodeState::NodeDead)
                        && full_since.is_some_and(|since| self.world.now() >= since + MISSED_AFTER);
                    let whole = known && status.serving && status.under_replicated == 0 && status.repairs_running == 0;
                    // At full power the layout is that of full power.
                    let away = self.cluster.describe().await.map(|reply| reply.away);
                    let home = away.as_ref().is_ok_and(Vec::is_empty);
                    if ended.len() == self.programs() && whole && home {
                        return Ok(());
                    }
                    last = format!(
                        "ended: {ended:?}, under-replicated: {}, away: {away:?}, full power: {set:?}, plan: {plan:?}",
                        status.under_replicated
                    );
                    if whole && !home {
                        waits_for = "home";
                    }
                }
                Err(error) => last = error.to_string(),
            }
            self.world.sleep(Duration::from_secs(1)).await;
        }
        Err(Violation::new(waits_for, format!("no rest within {REST_MAX:?}: {last}")))
    }

    /// With all power every copy comes to lie as its layout wants it. Where a node is lost for good no other has its
    /// place.
    async fn look_at_places(&self) -> Result<(), Violation> {
        let Some(file) = self.kept.filter(|_| self.cluster.nodes.lost.lock().is_empty()) else { return Ok(()) };
        let end = self.world.now() + REST_MAX;
        let looker = self.connect("places").await?;
        loop {
            let found = self.check_places(&looker, file).await;
            let found = found.unwrap_or_else(|error| vec![Violation::new("placed", format!("not known: {error}"))]);
            let Some(first) = found.into_iter().next() else { break };
            if self.world.now() >= end {
                return Err(first);
            }
            self.world.sleep(Duration::from_secs(2)).await;
        }
        let disconnected = looker.disconnect().await;
        disconnected
            .map_err(|error| Violation::new("healthy", format!("the reader of places cannot disconnect: {error}")))
    }

    async fn check_places(&self, looker: &Client, file: InodeId) -> Result<Vec<Violation>> {
        let reply = self.cluster.describe().await?.datasets;
        let Some(dataset) = reply.into_iter().find(|dataset| dataset.path == work::KEPT) else {
            bail!(NotFound, "there is no {}", work::KEPT);
        };
        let (nodes, shape) = (dataset.chain.into_iter().map(NodeId::new), dataset.layout.parse::<LayoutKind>()?);
        let shape = ChainShape::of(shape, dataset.gear_size);
        let id = DatasetId::new(dataset.id);
        let chain = DatasetChain::new(id, nodes.collect(), shape, dataset.primaries, dataset.replicas)?;
        let map = looker.locations(file).await?;
        let members =
            |location: &Location| location.metablock.members.iter().map(pb::Member::node_id).collect::<Vec<_>>();
        Ok(placed::check(&chain, &map.iter().map(members).collect::<Vec<_>>()))
    }

    /// At a steady level of power: reads that the plan makes possible return within an interval, and so long after a write
    /// all members have it.
    async fn look_at_level(&self) -> Result<(), Violation> {
        let mut places = Vec::new();
        let failed = |error: ebb_types::Error| Violation::new("healthy", format!("at rest: {error}"));
        let reader = self.connect("level-reader").await?;
        for file in 0..FILES {
            let inode =
                reader.resolve(&ebb_types::Credentials::root(), format!("{}/f{file}", self.path).as_bytes()).await;
            // An extra copy may go at any time: the promises are about the set.
            let map = reader.locations(inode.map_err(failed)?.inode).await.map_err(failed)?;
            let members = map.iter().flat_map(|location| &location.metablock.members);
            places.push(members.map(pb::Member::node_id).collect::<Vec<_>>());
        }
        self.supply.force(&self.cluster, self.options.level).await.map_err(failed)?;
        // A stretched interval may be up to some times as long.
        self.world.sleep(self.options.interval * 8 + Duration::from_secs(6)).await;
        let Some(plan) = self.meter.lock().plan(self.now_ms()).cloned() else { return Ok(()) };
        let interval = Duration::from_millis(plan.interval_ms);
        let wakes =
            |node: &NodeId| plan.nodes.get(node).is_none_or(|duty| duty.is_reachable(plan.interval_ms, plan.guard_ms));
        for (file, _) in places.iter().enumerate().filter(|(_, nodes)| nodes.iter().any(wakes)) {
            let took = self.timed(READ_MAX, "reads", work::read_once(&reader, self.path, file, &self.ledger)).await?;
            if took > interval + SLACK {
                let detail =
                    format!("f{file} took {took:?} under {} ({}), every {interval:?}", plan.version, plan.sentence());
                return Err(Violation::new("reads", detail));
            }
        }
        reader.disconnect().await.map_err(failed)?;
        let whole = |nodes: &[NodeId]| !nodes.is_empty() && nodes.iter().all(wakes);
        for (file, _) in places.iter().enumerate().filter(|(_, nodes)| whole(nodes)).take(2) {
            let writer = self.connect("level-writer").await?;
            let write = async {
                let handle = work::open(&writer, self.path, file, Access::ReadWrite).await?;
                let value = {
                    let mut ledger = self.ledger.lock();
                    ledger.files[file].begun += 1;
                    ledger.files[file].begun
                };
                writer.write(handle, 0, work::content(value)).await
            };
            self.timed(READ_MAX, "equal", async { write.await.map(|_| ()) }).await?;
            // The lease goes back when every member has everything.
            let took = self.timed(READ_MAX, "equal", writer.disconnect()).await?;
            if took > interval + SLACK {
                let detail = format!("f{file}: members were equal {took:?} after a write, under {}", plan.version);
                return Err(Violation::new("equal", detail));
            }
        }
        Ok(())
    }
}
