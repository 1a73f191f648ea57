//! The power manager: the shell around `ebb_power::manager::Manager`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ebb_power::account::{Meter, Seen};
use ebb_power::manager::absence::Absence;
use ebb_power::manager::{Decision, Manager, Now, Others, Refusal, Wanted};
use ebb_power::reach::{Force, Holding};
use ebb_power::signal::source::{Reading, Source};
use ebb_power::{PolicyKind, PowerPlan, Rotational, Supply, Timetable, wall_ms};
use ebb_rpc::{Answer, Connector, Counters, Identity, Request, Server, ServerOptions, Service, ServiceFuture};
use ebb_runtime::{Listener, Moment, Runtime};
use ebb_types::{ErrorKind, NodeId, PlanVersion, Result, bail, err};
use ebb_wire::{Method, pb};
use parking_lot::Mutex;

use crate::books::{self, Kept};
use crate::feed::{Feed, Reader};
use crate::forecast::{Forecaster, Foreseen, Present};
use crate::known::{self, Known, Silent};
use crate::settings::{Override, Settings};
use crate::status;

/// How often readings are taken, energy is counted and the policy is asked.
const TICK: Duration = Duration::from_millis(100);
/// How often the master is asked for nodes, datasets and the places of copies.
const LEARN: Duration = Duration::from_secs(5);
/// How often it is asked which nodes are silent: their copies need other nodes to be on.
const WATCH: Duration = Duration::from_millis(500);
/// How often a forecast is made, unless the supply changes.
const FORESEE: Duration = Duration::from_secs(1);
/// Plans that a lost history may have had beyond those of the log: one a minute for two weeks. Up to as many more are
/// passed over by chance, so that two masters that begin from one copy give different versions.
const LOST_PLANS: u64 = 20_000;
/// A decision is made again if it took longer than this to look at its grounds.
const FRESH_MS: u64 = 100;
/// Names of files are looked for again after this: files are renamed, and removed.
const NAMED_FOR: Duration = Duration::from_secs(60);
/// A call to the master or the power client.
const CALL: Duration = Duration::from_secs(2);
/// A call for which the master looks at much.
const LONG_CALL: Duration = Duration::from_secs(10);

/// Options of a power manager's start.
#[derive(Clone)]
pub struct ManagerOptions {
    /// Where its settings are.
    pub dir: PathBuf,
    /// Settings of a cluster that has none yet.
    pub fresh: Settings,
    /// The master's address.
    pub master: String,
    /// Where the power client is reached now, if it runs.
    pub power_client: Arc<dyn Fn() -> Option<String> + Send + Sync>,
}

/// Core, settings and the last readings.
pub(crate) struct State {
    pub settings: Settings,
    pub core: Option<Manager>,
    pub known: Option<Known>,
    pub seen: pb::NodesPowerReply,
    /// Of the manager before, or of a core that was given up: the next core goes on with it.
    kept: Kept,
    /// Bytes served, as the master counts them.
    meter: Meter,
    /// When names of files were looked for last.
    named: Option<Moment>,
    pub held_back: Option<ebb_types::Error>,
    /// The coming supply, by the last reading and the forecast that the operator wants. None: nothing is known yet.
    pub foreseen: Option<Foreseen>,
    /// Absences that the forecast foretells, and when they were last looked for (since the start).
    pub absences: Option<(Duration, BTreeMap<NodeId, Absence>)>,
}

/// The state that a core leaves to the next one.
fn keep(core: &Manager) -> Kept {
    Kept { account: core.account().clone(), charge_joules: Some(core.battery().charge_joules) }
}

impl State {
    /// The master has reported the bytes that programs were served. Bytes from before this manager's first look cost
    /// joules that it did not count either.
    fn on_served(&mut self, reply: Option<pb::Served>) {
        if let (Some(core), Some(reply)) = (&mut self.core, reply) {
            core.count_served(self.meter.on_reading(reply.boot, reply.bytes));
        }
    }
}

/// A running power manager.
pub struct PowerManager {
    runtime: Runtime,
    options: ManagerOptions,
    connector: Connector,
    started: Moment,
    pub(crate) state: Mutex<State>,
    /// Where the supply is read from; none: from nowhere.
    reader: tokio::sync::Mutex<Option<Reader>>,
    /// Makes the forecast. Ordering: locked before the reader.
    forecaster: tokio::sync::Mutex<Forecaster>,
    /// Operators' changes one after the other, and none while a plan is on its way into the log.
    changing: tokio::sync::Mutex<()>,
}

/// Serves on `listener` and manages until the process ends.
pub async fn run(runtime: Runtime, listener: Listener, identity: Identity, options: ManagerOptions) -> Result<()> {
    let counters = Counters::default();
    let connector = Connector::new(runtime.clone(), identity.clone(), counters.clone());
    let settings = Settings::read_or(&runtime, &options.dir, options.fresh.clone()).await?;
    let reader = settings.feed.as_ref().map(|feed| feed.open(&runtime)).transpose()?;
    let forecaster = Forecaster::new(settings.forecast()?);
    let kept = books::read(&runtime, &options.dir).await;
    let state = State {
        settings,
        core: None,
        known: None,
        seen: Default::default(),
        kept,
        meter: Meter::default(),
        named: None,
        held_back: None,
        foreseen: None,
        absences: None,
    };
    let manager = Arc::new(PowerManager {
        started: runtime.now(),
        runtime: runtime.clone(),
        options,
        connector,
        state: Mutex::new(state),
        reader: tokio::sync::Mutex::new(reader),
        forecaster: tokio::sync::Mutex::new(forecaster),
        changing: tokio::sync::Mutex::default(),
    });
    let managing = runtime.spawn("power-manager", manage(Arc::clone(&manager)));
    let served = Server::run(runtime, listener, identity, counters, ServerOptions::default(), manager).await;
    managing.abort();
    served
}

async fn manage(manager: Arc<PowerManager>) {
    let (mut looked, mut watched): (Option<Moment>, Option<Moment>) = (None, None);
    let mut foreseen: Option<(Moment, Supply)> = None;
    loop {
        let now = manager.runtime.now();
        if looked.is_none_or(|looked| now.since(looked) >= LEARN) {
            match manager.learn_cluster().await {
                Ok(_) => {
                    (looked, watched) = (Some(now), Some(now));
                    manager.write_account().await;
                }
                Err(error) => tracing::info!(%error, "the master does not describe the cluster now"),
            }
        } else if watched.is_none_or(|watched| now.since(watched) >= WATCH) {
            watched = Some(now);
            if let Err(error) = manager.watch().await {
                tracing::debug!(%error, "the master does not list its nodes now");
            }
        }
        manager.ask_power_client().await;
        manager.read_supply().await;
        let supply = manager.supply();
        if foreseen.is_none_or(|(at, of)| now.since(at) >= FORESEE || Some(of) != supply) {
            manager.foresee().await;
            foreseen = supply.map(|supply| (now, supply));
        }
        match manager.tick().await {
            Ok(spoken_of) if manager.is_naming_due(&spoken_of) => {
                let manager = Arc::clone(&manager);
                let runtime = manager.runtime.clone();
                runtime.spawn("names of files", async move { manager.name(&spoken_of).await });
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, "no power plan");
                manager.state.lock().held_back = Some(error);
            }
        }
        manager.runtime.sleep(TICK).await;
    }
}

impl PowerManager {
    pub(crate) fn now(&self) -> Now {
        Now { moment: self.runtime.now().since(self.started), wall_ms: wall_ms(self.runtime.wall()) }
    }

    /// Learns the cluster anew. True: a decision may be another one for that.
    async fn learn_cluster(&self) -> Result<bool> {
        let channel = self.connector.channel(&self.options.master);
        let reply = channel.call(&pb::DescribePower::default(), LONG_CALL).await?;
        let mut state = self.state.lock();
        if reply.nodes.is_empty() {
            bail!(Unavailable, "no node has registered yet");
        }
        let mut known = Known::of(&state.settings, &reply, state.known.as_ref())?;
        if let Some(before) = &state.known {
            known.keep_names(before);
        }
        let now = self.now();
        if state.core.is_none() {
            let mut plans = Timetable::default();
            for plan in &reply.plans {
                plans.accept(PowerPlan::decode(plan)?, now.wall_ms)?;
            }
            let mut core = make_core(&state.settings, &known, plans)?;
            core.resume_account(state.kept.account.clone());
            if let Some(joules) = state.kept.charge_joules {
                core.set_charge(joules);
            }
            if state.settings.force {
                core.set_policy(wanted(state.settings.policy()?, true));
            }
            state.core = Some(core);
        }
        let mut is_news = state.known.as_ref().is_none_or(|before| before.ground() != known.ground());
        state.known = Some(known);
        if let Some(core) = &mut state.core {
            // A plan whose answer was lost.
            for plan in &reply.plans {
                let plan = PowerPlan::decode(plan)?;
                if plan.version > core.plans().version() {
                    core.on_logged(plan, now)?;
                    is_news = true;
                }
            }
            let newest = core.plans().version().raw();
            let chance = LOST_PLANS + self.runtime.random_u64() % LOST_PLANS;
            let doubtful = PlanVersion::new(if reply.hearing { newest.saturating_add(chance) } else { 0 });
            is_news |= core.on_others(Others { followed: PlanVersion::new(reply.followed), doubtful });
        }
        state.on_served(reply.served);
        Ok(is_news)
    }

    /// Whether names of files are to be looked for. An attempt counts even if it fails.
    fn is_naming_due(&self, spoken_of: &[Holding]) -> bool {
        let now = self.runtime.now();
        let mut state = self.state.lock();
        let is_due = !spoken_of.is_empty() && state.named.is_none_or(|named| now.since(named) >= NAMED_FOR);
        if is_due {
            state.named = Some(now);
        }
        is_due
    }

    /// Has the master look for files that sentences can name. Without them they name nodes.
    async fn name(&self, spoken_of: &[Holding]) {
        if spoken_of.is_empty() {
            return;
        }
        let named = spoken_of.iter().map(known::to_message).collect();
        let question = pb::DescribePower { named, ..Default::default() };
        match self.connector.channel(&self.options.master).call(&question, LONG_CALL).await {
            Ok(reply) => {
                if let Some(known) = &mut self.state.lock().known {
                    known.name(spoken_of, &reply.holdings);
                }
            }
            Err(error) => tracing::debug!(%error, "the master names no files"),
        }
    }

    /// Writes the account, and the charge of the battery, to the file that the next manager reads.
    async fn write_account(&self) {
        let Some(kept) = self.state.lock().core.as_ref().map(keep) else { return };
        if let Err(error) = books::write(&self.runtime, &self.options.dir, &kept).await {
            tracing::warn!(%error, "the energy account is not written");
        }
    }

    /// Learns which nodes are silent now, and how many bytes were served.
    async fn watch(&self) -> Result<()> {
        let channel = self.connector.channel(&self.options.master);
        let reply = channel.call(&pb::DescribePower { nodes_only: true, ..Default::default() }, CALL).await?;
        let mut state = self.state.lock();
        if let Some(known) = &mut state.known {
            known.silent = Silent::of(&reply.nodes);
            known.away = reply.away;
        }
        state.on_served(reply.served);
        Ok(())
    }

    /// Asks the power client for the states of the nodes.
    async fn ask_power_client(&self) {
        let Some(address) = (self.options.power_client)() else { return };
        match self.connector.channel(&address).call(&pb::NodesPower {}, CALL).await {
            Ok(seen) => self.state.lock().seen = seen,
            Err(error) => tracing::debug!(%error, "the power client does not answer"),
        }
    }

    /// All that the cluster can draw, once it is known.
    fn most_watts(&self) -> Option<f64> {
        self.state.lock().known.as_ref().map(|known| known.hardware.cluster_watts(Supply::Fraction(1.0)))
    }

    /// Reads the source. Without a source the supply is all that the nodes can draw.
    async fn read_supply(&self) {
        let Some(most_watts) = self.most_watts() else { return };
        let outcome = match &mut *self.reader.lock().await {
            Some(reader) => reader.read(&self.runtime, most_watts).await,
            None => Ok(Some(Reading { supply: Supply::Fraction(1.0), stamp_ms: Some(self.now().wall_ms) })),
        };
        let reading = match outcome {
            Ok(Some(reading)) => reading,
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(%error, "the source of power says nothing");
                return;
            }
        };
        let now = self.now();
        let doubt = self.state.lock().core.as_mut().and_then(|core| core.on_reading(now, reading));
        if let Some(doubt) = doubt {
            tracing::debug!(%doubt, "reading");
        }
    }

    /// The supply that counts now, once the cluster is known.
    fn supply(&self) -> Option<Supply> {
        let now = self.now();
        self.state.lock().core.as_ref().map(|core| core.sample(now).supply)
    }

    /// Makes the forecast from the last reading on.
    async fn foresee(&self) {
        let mut forecaster = self.forecaster.lock().await;
        forecaster.refresh(&self.runtime).await;
        let reader = self.reader.lock().await;
        let (now, mut state) = (self.now(), self.state.lock());
        let state = &mut *state;
        if let (Some(core), Some(known)) = (&state.core, &state.known) {
            let present = Present {
                wall_ms: now.wall_ms,
                sample: core.sample(now),
                hardware: &known.hardware,
                plausible_watts: state.settings.trust(known.hardware.full_watts()).most_watts,
            };
            state.foreseen = Some(forecaster.forecast(&present, reader.as_ref()));
        }
    }

    /// Counts the nodes' energy, decides, and publishes the decision. Returns the holdings that its sentences speak of.
    async fn tick(&self) -> Result<Vec<Holding>> {
        let _changing = self.changing.lock().await;
        self.count();
        let now = self.now();
        let Some(mut decision) = self.decide(now)? else { return Ok(Vec::new()) };
        // The check of a plan that puts copies out of reach needs the places of now, not those of some seconds ago.
        if decision.publish.is_some() {
            let is_news = self.learn_cluster().await?;
            let later = self.now();
            if is_news || later.wall_ms.saturating_sub(now.wall_ms) > FRESH_MS {
                let Some(again) = self.decide(later)? else { return Ok(Vec::new()) };
                decision = again;
            }
        }
        self.state.lock().held_back = decision.held_back;
        let Some(plan) = decision.publish else { return Ok(decision.spoken_of) };
        let call = pb::PublishPlan { plan: plan.encode() };
        if let Err(error) = self.connector.channel(&self.options.master).call(&call, CALL).await {
            // If it was logged after all, the next answer of the master has it. If the next attempt comes first, it is
            // stale, and the core begins anew from the logged plan.
            if error.kind() == ErrorKind::Stale {
                let mut state = self.state.lock();
                if let Some(core) = state.core.take() {
                    state.kept = keep(&core);
                }
            }
            return Err(error.context(format_args!("publishing {}", plan.version)));
        }
        tracing::info!(version = %plan.version, why = plan.sentence(), "published");
        // Ordering: only now. A plan that is not logged is not followed by any node.
        let (now, mut state) = (self.now(), self.state.lock());
        if let Some(core) = &mut state.core {
            core.on_logged(plan, now)?;
        }
        Ok(decision.spoken_of)
    }

    fn count(&self) {
        let now = self.now();
        let mut state = self.state.lock();
        let state = &mut *state;
        if let (Some(core), Some(known)) = (&mut state.core, &state.known) {
            core.count(now, &known.core(state.foreseen.as_ref()), &seen(&state.seen));
        }
    }

    /// The core's decision for now. `None`: the cluster is not known yet.
    fn decide(&self, now: Now) -> Result<Option<Decision>> {
        let state = self.state.lock();
        let (Some(core), Some(known)) = (&state.core, &state.known) else { return Ok(None) };
        core.decide(now, &known.core(state.foreseen.as_ref())).map(Some)
    }

    /// Makes a change of settings durable, then does it.
    async fn change(&self, change: impl FnOnce(&mut Settings) -> Result<()>) -> Result<()> {
        let mut settings = self.state.lock().settings.clone();
        change(&mut settings)?;
        settings.check()?;
        settings.write(&self.runtime, &self.options.dir).await?;
        let mut state = self.state.lock();
        if let Some(core) = &mut state.core {
            core.force_supply(settings.forced.map(Into::into))?;
        }
        state.settings = settings;
        Ok(())
    }

    async fn set_power(&self, call: pb::SetPower) -> Result<()> {
        let forced = match (call.watts, call.fraction) {
            (Some(watts), None) => Some(Override::Watts(watts)),
            (None, Some(share)) => Some(Override::Fraction(share)),
            (None, None) => None,
            (Some(_), Some(_)) => bail!(Invalid, "watts or a fraction, not both"),
        };
        let _changing = self.changing.lock().await;
        self.change(|settings| {
            settings.forced = forced;
            Ok(())
        })
        .await
    }

    async fn follow(&self, call: pb::FollowSource) -> Result<()> {
        let named = (!call.forecast.is_empty()).then(|| call.forecast.parse()).transpose()?;
        let feed = Feed::from_call(call, self.now().wall_ms)?;
        let mut reader = feed.open(&self.runtime)?;
        reader.try_once(&self.runtime).await?;
        let mut forecaster = named.map(Forecaster::new);
        if let Some(forecaster) = &mut forecaster {
            forecaster.try_once(&self.runtime).await?;
        }
        let forecast = forecaster.as_ref().map(|forecaster| forecaster.kind().to_string());
        let _changing = self.changing.lock().await;
        let changed = self.change(|settings| {
            (settings.feed, settings.forced) = (Some(feed), None);
            settings.forecast = forecast.unwrap_or_else(|| settings.forecast.clone());
            Ok(())
        });
        changed.await?;
        if let Some(forecaster) = forecaster {
            *self.forecaster.lock().await = forecaster;
        }
        *self.reader.lock().await = Some(reader);
        Ok(())
    }

    fn check_policy(&self, wanted: Wanted) -> Result<(), Refusal> {
        let (now, state) = (self.now(), self.state.lock());
        let (Some(core), Some(known)) = (&state.core, &state.known) else {
            return Err(
                err!(Unavailable, "the power manager does not know the cluster yet: ask again in a moment").into()
            );
        };
        core.check_policy(now, &known.core(state.foreseen.as_ref()), wanted)
    }

    async fn set_policy(&self, call: pb::SetPolicy) -> Result<()> {
        let policy = call.policy.parse()?;
        let changing = self.changing.lock().await;
        // The check of a plan that would put copies out of reach needs the places of now.
        self.learn_cluster().await?;
        let wanted = wanted(policy, call.force);
        if let Err(refusal) = self.check_policy(wanted) {
            // Plans are made while the master looks for files that the refusal can name.
            drop(changing);
            self.name(&refusal.spoken_of).await;
            return Err(self.check_policy(wanted).err().unwrap_or(refusal).error);
        }
        let changed = self.change(|settings| {
            (settings.policy, settings.force) = (policy.name().to_owned(), call.force);
            Ok(())
        });
        changed.await?;
        // Ordering: once it is durable. A manager that starts anew goes by its settings.
        if let Some(core) = &mut self.state.lock().core {
            core.set_policy(wanted);
        }
        Ok(())
    }
}

fn wanted(policy: PolicyKind, insists: bool) -> Wanted {
    let (force, rotational) =
        if insists { (Force::Insist, Rotational::Blink) } else { (Force::Refuse, Rotational::Spare) };
    Wanted { policy, rotational, force }
}

/// A core that goes on from the plans that there are.
fn make_core(settings: &Settings, known: &Known, plans: Timetable) -> Result<Manager> {
    let full_watts = known.hardware.full_watts();
    let mut source = Source::new(settings.trust(full_watts), full_watts)?;
    source.force(settings.forced.map(Into::into))?;
    Manager::new(settings.core()?, source, settings.battery(full_watts), plans)
}

/// The state in which each node was seen.
fn seen(reply: &pb::NodesPowerReply) -> BTreeMap<NodeId, Seen> {
    let seen = |node: &pb::NodePowered| Some((NodeId::new(node.node), Seen::from(status::state(node.state())?)));
    reply.nodes.iter().filter_map(seen).collect()
}

impl Service for PowerManager {
    fn handle(&self, request: Request) -> ServiceFuture<'_> {
        Box::pin(async move {
            let done = || Answer::new(&pb::Empty {});
            match request.method {
                Method::SetPower => self.set_power(request.decode()?).await.map(|()| done()),
                Method::FollowSource => self.follow(request.decode()?).await.map(|()| done()),
                Method::SetPolicy => self.set_policy(request.decode()?).await.map(|()| done()),
                Method::PowerStatus => {
                    self.ask_power_client().await;
                    status::status(self).map(|reply| Answer::new(&reply))
                }
                other => Err(err!(Unsupported, "a power manager does not answer {other:?}")),
            }
        })
    }
}
