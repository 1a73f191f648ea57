//! The world: its time, its processes, its links, its record of events.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::dice::{Dice, nanos};
use super::executor::Executor;
use super::net::Network;
use super::options::{LinkOptions, WorldOptions};
use super::process::Process;
use super::trace::{Event, Fault, Trace};

/// A virtual world. Cheap to clone; valid within the body that [`World::run`] was given.
#[derive(Clone)]
pub struct World(Arc<Inner>);

struct Inner {
    seed: u64,
    options: WorldOptions,
    executor: Arc<Executor>,
    network: Arc<Network>,
    trace: Arc<Trace>,
    processes: Mutex<BTreeMap<String, Process>>,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "World({} at {:?})", self.0.seed, self.now())
    }
}

/// Takes the world apart when the body has ended, however it ended.
struct Undo(World);

impl Drop for Undo {
    fn drop(&mut self) {
        self.0.0.executor.clear();
        let processes = std::mem::take(&mut *self.0.0.processes.lock());
        drop(processes);
    }
}

impl World {
    /// Runs `body` in a new world until it completes; tasks that still run then are dropped. Panics with the names of
    /// the waiting tasks, if the body waits for something that nothing left in the world can bring about.
    pub fn run<F: Future>(seed: u64, options: WorldOptions, body: impl FnOnce(Self) -> F) -> F::Output {
        let trace = Arc::new(Trace::new(options.kept_events_max));
        let executor = Executor::new(Dice::new(seed, "schedule"), options.panics, options.polls_per_moment_max);
        let network = Network::new(seed, options.clone(), executor.clone(), trace.clone());
        let world = Self(Arc::new(Inner { seed, options, executor, network, trace, processes: Mutex::default() }));
        let undo = Undo(world.clone());
        let output = world.0.executor.run(body(world.clone()));
        drop(undo);
        output
    }

    /// The process of this name on the host of the same name; the first call makes both.
    pub fn process(&self, host: &str) -> Process {
        self.process_on(host, host)
    }

    /// The process of this name, on this host; the first call makes it. Names are unique in the world.
    pub fn process_on(&self, host: &str, name: &str) -> Process {
        if let Some(process) = self.0.processes.lock().get(name) {
            assert_eq!(process.host(), host, "process {name} lives on another host");
            return process.clone();
        }
        let process = Process::new(self, host, name);
        self.0.processes.lock().insert(name.to_owned(), process.clone());
        process
    }

    /// Virtual time since the start.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.0.executor.now_ns())
    }

    /// Waits, in virtual time and outside of any process.
    pub async fn sleep(&self, span: Duration) {
        let at_ns = self.0.executor.now_ns().saturating_add(nanos(span));
        self.0.executor.sleep_until(at_ns).await;
    }

    /// The seed.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.0.seed
    }

    /// Randomness for a purpose of the caller's, apart from all others.
    #[must_use]
    pub fn dice(&self, purpose: &str) -> Dice {
        Dice::new(self.0.seed, &format!("caller {purpose}"))
    }

    /// Cuts the link between two hosts, both ways. Bytes are held back, and connections break after a long time.
    pub fn partition(&self, one: &str, other: &str) {
        self.partition_one_way(one, other);
        self.partition_one_way(other, one);
    }

    /// Cuts the link from one host to another; the way back stays open.
    pub fn partition_one_way(&self, source: &str, target: &str) {
        let (from, to) = (self.0.network.host(source), self.0.network.host(target));
        if self.0.network.cut(from, to) {
            self.0.trace.fault(self.0.executor.now_ns(), "partition", format!("{source} to {target}"));
        }
    }

    /// Undoes one [`World::partition`]; a link that another one has cut as well stays cut.
    pub fn mend(&self, one: &str, other: &str) {
        self.mend_one_way(one, other);
        self.mend_one_way(other, one);
    }

    /// Undoes one [`World::partition_one_way`]; a link that is cut twice stays cut.
    pub fn mend_one_way(&self, source: &str, target: &str) {
        let (from, to) = (self.0.network.host(source), self.0.network.host(target));
        if self.0.network.mend(from, to) {
            self.0.trace.event(self.0.executor.now_ns(), "mend", &[from.0 as u64, to.0 as u64], &[]);
        }
    }

    /// Mends every link. Bytes that were held back arrive, in order, when the sender's kernel next tries.
    pub fn heal(&self) {
        if self.0.network.heal() > 0 {
            self.0.trace.event(self.0.executor.now_ns(), "heal", &[], &[]);
        }
    }

    /// Sets how the link from one host to another behaves from now on.
    pub fn link(&self, source: &str, target: &str, options: LinkOptions) {
        let (from, to) = (self.0.network.host(source), self.0.network.host(target));
        self.0.network.set_link(from, to, options);
    }

    /// Sets the bandwidth of a host's port, in bytes a second each way, from now on. Without it a port has that of the link
    /// of each segment, so a host with a fast port and many slow peers would receive no faster than one of them sends.
    pub fn port(&self, host: &str, bytes_per_sec: u64) {
        let host = self.0.network.host(host);
        self.0.network.set_port(host, bytes_per_sec);
    }

    /// A hash over everything that happened: equal for two runs of one seed, or something escapes from the world.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        self.0.trace.hash()
    }

    /// Faults that took effect, by kind.
    #[must_use]
    pub fn faults(&self) -> BTreeMap<&'static str, u64> {
        self.0.trace.faults()
    }

    /// The first ten thousand faults that took effect, in order.
    #[must_use]
    pub fn fault_log(&self) -> Vec<Fault> {
        self.0.trace.log()
    }

    /// The first events, as many as [`WorldOptions::kept_events_max`] says: where two runs of one seed first differ,
    /// something has escaped from the world.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.0.trace.kept()
    }

    /// Panics of tasks so far, where they do not end the world.
    #[must_use]
    pub fn panics(&self) -> Vec<String> {
        self.0.executor.panicked()
    }

    /// Adds an event of the caller's to the trace.
    pub fn add_event(&self, kind: &'static str, numbers: &[u64]) {
        self.0.trace.event(self.0.executor.now_ns(), kind, numbers, &[]);
    }

    pub(super) fn options(&self) -> &WorldOptions {
        &self.0.options
    }

    pub(super) fn executor(&self) -> &Arc<Executor> {
        &self.0.executor
    }

    pub(super) fn network(&self) -> &Arc<Network> {
        &self.0.network
    }

    pub(super) fn trace(&self) -> &Arc<Trace> {
        &self.0.trace
    }
}
