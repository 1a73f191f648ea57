//! Processes of the virtual world, and the faults that can befall them.

mod spindle;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ebb_types::{Result, WallTime};
use parking_lot::Mutex;

pub use self::spindle::Spindle;
use super::clock::Clock;
use super::dice::Dice;
use super::disk::{PowerCut, VirtualDisk};
use super::executor::{Executor, GroupId};
use super::local::{VirtualPeer, VirtualWords};
use super::net::{self, End, HostId, Network};
use super::options::{DiskFaults, DiskOptions, PlannedFault};
use super::world::World;
use crate::backend::{Backend, Work};
use crate::{Disk, Listener, LocalListener, LocalStream, Moment, Runtime, SeededBug, Stream, Words};

/// The shortest sleep.
const SLEEP_MIN_NS: u64 = 1_000;

/// A process on a host, over all its lives. Its disk outlives it. Cheap to clone.
#[derive(Clone)]
pub struct Process(Arc<Inner>);

struct Inner {
    world: World,
    name: String,
    host: HostId,
    host_name: String,
    disk: Arc<VirtualDisk>,
    life: Mutex<Life>,
}

struct Life {
    group: GroupId,
    number: u64,
    clock: Arc<Mutex<Clock>>,
    dice: Dice,
    runtime: Runtime,
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Process({})", self.0.name)
    }
}

impl Process {
    pub(super) fn new(world: &World, host_name: &str, name: &str) -> Self {
        let seed = world.seed();
        let mut dice = Dice::new(seed, &format!("process {name}"));
        let clock = Arc::new(Mutex::new(Clock::new(&mut dice, world.options().drift_ppm_max)));
        let host = world.network().host(host_name);
        let disk_dice = Dice::new(seed, &format!("disk {name}"));
        let (executor, trace) = (world.executor().clone(), world.trace().clone());
        let disk = VirtualDisk::new(name, world.options().disk, disk_dice, executor, trace);
        let group = world.executor().add_group(name.to_owned());
        let runtime = VirtualBackend::runtime(world, name, 1, host, group, &clock, &disk);
        Self(Arc::new(Inner {
            world: world.clone(),
            name: name.to_owned(),
            host,
            host_name: host_name.to_owned(),
            disk,
            life: Mutex::new(Life { group, number: 1, clock, dice, runtime }),
        }))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The name of its host.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.0.host_name
    }

    /// The address of its host, without a port.
    #[must_use]
    pub fn ip(&self) -> String {
        Network::ip(self.0.host)
    }

    /// The world as the present life of the process sees it. Tasks started through it live and die with that life.
    #[must_use]
    pub fn runtime(&self) -> Runtime {
        self.0.life.lock().runtime.clone()
    }

    /// Whether its present life goes on, frozen or not.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let group = self.0.life.lock().group;
        self.0.world.executor().is_alive(group)
    }

    /// Power fails and comes back: tasks are gone, peers see resets, the disk loses or tears unsynced changes.
    /// Call [`Process::restart`] to start the process again.
    pub fn crash(&self) {
        if self.end(End::Crashed) {
            self.fault("crash");
            self.0.disk.crash();
        }
    }

    /// Power fails and stays away until [`Process::restart`]: as [`Process::crash`], but peers hear nothing. Other
    /// processes of the same host lose their network with it.
    pub fn power_off(&self) {
        if self.end(End::PowerOff) {
            self.fault("power_off");
            self.0.disk.crash();
            self.0.world.network().set_off(self.0.host, true);
        }
    }

    /// `kill -9`: tasks are gone, the kernel closes connections, the page cache stays.
    pub fn kill(&self) {
        if self.end(End::Killed) {
            self.fault("kill");
            self.0.disk.kill();
        }
    }

    /// A new life; the old one, if it goes on, is killed first.
    pub fn restart(&self) -> Runtime {
        self.kill();
        let world = &self.0.world;
        world.network().set_off(self.0.host, false);
        let mut life = self.0.life.lock();
        life.number += 1;
        life.group = world.executor().add_group(self.0.name.clone());
        let Inner { name, host, disk, .. } = &*self.0;
        life.runtime = VirtualBackend::runtime(world, name, life.number, *host, life.group, &life.clock, disk);
        world.trace().event(world.executor().now_ns(), "restart", &[life.number], name.as_bytes());
        life.runtime.clone()
    }

    /// Its tasks get no processor until [`Process::thaw`]; its kernel goes on accepting connections and bytes.
    pub fn freeze(&self) {
        let group = self.0.life.lock().group;
        if self.0.world.executor().freeze(group) {
            self.fault("freeze");
        }
    }

    /// Lets a frozen process go on. Sleeps that ended meanwhile end now, late.
    pub fn thaw(&self) {
        let group = self.0.life.lock().group;
        if self.0.world.executor().thaw(group) {
            let world = &self.0.world;
            world.trace().event(world.executor().now_ns(), "thaw", &[], self.0.name.as_bytes());
        }
    }

    /// Sets the wall clock wrong by this many nanoseconds from now on.
    pub fn skew(&self, nanoseconds: i64) {
        self.0.life.lock().clock.lock().set_skew(nanoseconds);
        if nanoseconds != 0 {
            self.fault("clock_skew");
        }
    }

    /// Makes everything on its disk take this many times as long; 1 is normal.
    pub fn slow_disk(&self, factor: f64) {
        assert!(factor > 0.0, "time does not go backwards");
        self.0.disk.spindles().for_each(|spindle| self.0.disk.set_slowness(spindle, factor));
        if factor > 1.0 {
            self.fault("slow_disk");
        }
    }

    /// Sets how often its disk fails from now on. Counted when they happen.
    pub fn disk_faults(&self, faults: DiskFaults) {
        self.0.disk.set_faults(faults);
    }

    /// The present numbers of its disk, or of the first spindle of several.
    #[must_use]
    pub fn disk_options(&self) -> DiskOptions {
        self.0.disk.options(0)
    }

    /// Changes the numbers of its disk, and of each spindle if it has several: a capacity below the used space makes every
    /// growing write fail.
    pub fn set_disk_options(&self, options: DiskOptions) {
        self.0.disk.spindles().for_each(|spindle| self.0.disk.set_options(spindle, options));
    }

    /// Adds failures at chosen places to those to come.
    pub fn plan_disk_fault(&self, fault: PlannedFault) {
        self.0.disk.plan_fault(fault);
    }

    /// Forgets failures that were planned and have not come.
    pub fn cancel_disk_faults(&self) {
        self.0.disk.cancel_faults();
    }

    /// Something else fills its disk, so that this many bytes are free on each spindle; `None`: it is gone again. Unlike
    /// with a smaller capacity, space that the process itself frees is free for it.
    pub fn fill_disk(&self, free_bytes: Option<u64>) {
        self.0.disk.spindles().for_each(|spindle| self.0.disk.fill(spindle, free_bytes));
        if free_bytes.is_some() {
            self.fault("disk_filled");
        }
    }

    /// Flips a bit in each stored byte of a range of a file, as a medium does that ages; holes stay. Returns how many
    /// bytes were flipped.
    pub fn flip_bits(&self, path: &Path, offset: u64, len: u64) -> Result<u64> {
        self.0.disk.flip(path, offset, len)
    }

    /// The disk is replaced by an empty one, or loses everything below a directory: the process must have ended.
    pub fn wipe_disk(&self, directory: &Path) {
        assert!(!self.is_alive(), "a disk is not taken out of a running process");
        self.0.disk.wipe(directory);
        self.fault("disk_wiped");
    }

    /// The next write to a file with this in its path goes to another place of the same file, as if the disk's arm or
    /// its firmware had mistaken the address.
    pub fn misdirect_write(&self, path_part: &str) {
        self.0.disk.misdirect(path_part);
    }

    /// Forgets a [`Process::misdirect_write`] that has met no write.
    pub fn cancel_misdirection(&self) {
        self.0.disk.cancel_misdirection();
    }

    /// The files on its disk with their lengths, as the process would see them.
    #[must_use]
    pub fn disk_files(&self) -> Vec<(PathBuf, u64)> {
        self.0.disk.files()
    }

    /// Its disk at this moment, with everything that a power failure now could leave on it.
    #[must_use]
    pub fn power_cut(&self) -> PowerCut {
        self.0.disk.power_cut()
    }

    /// Gives its disk an outcome of a power failure: all synced changes, and of the rest the parts for which `keeps` is
    /// true. The process must have ended.
    pub fn restore_disk(&self, cut: &PowerCut, keeps: impl Fn(usize) -> bool) {
        assert!(!self.is_alive(), "a disk is not changed under a running process");
        self.0.disk.restore(cut, keeps);
    }

    /// The contents of a file, as the process would see them; none if there is no such file.
    #[must_use]
    pub fn disk_content(&self, path: &Path) -> Option<Bytes> {
        self.0.disk.content(path)
    }

    /// Ends the present life; false if it has ended already.
    fn end(&self, end: End) -> bool {
        let world = &self.0.world;
        let group = {
            let mut life = self.0.life.lock();
            if !world.executor().is_alive(life.group) {
                return false;
            }
            // Ordering: peers and disk see the end before the tasks' own clean-up could look like a tidy close.
            let group = life.group;
            world.network().end(group, end, &mut life.dice);
            group
        };
        world.executor().kill(group);
        true
    }

    fn fault(&self, kind: &'static str) {
        let world = &self.0.world;
        world.trace().fault(world.executor().now_ns(), kind, self.0.name.clone());
    }
}

/// The virtual world as one life of one process sees it.
pub(super) struct VirtualBackend {
    name: String,
    host: HostId,
    group: GroupId,
    clock: Arc<Mutex<Clock>>,
    disk: Disk,
    dice: Mutex<Dice>,
    executor: Arc<Executor>,
    network: Arc<Network>,
    bug: Option<SeededBug>,
}

impl VirtualBackend {
    fn runtime(
        world: &World,
        name: &str,
        life: u64,
        host: HostId,
        group: GroupId,
        clock: &Arc<Mutex<Clock>>,
        disk: &Arc<VirtualDisk>,
    ) -> Runtime {
        Runtime::new(Arc::new(Self {
            name: name.to_owned(),
            host,
            group,
            clock: clock.clone(),
            disk: Disk::new(disk.door()),
            dice: Mutex::new(Dice::new(world.seed(), &format!("random {name} {life}"))),
            executor: world.executor().clone(),
            network: world.network().clone(),
            bug: world.options().bug,
        }))
    }

    fn as_peer(&self) -> VirtualPeer {
        VirtualPeer { executor: self.executor.clone(), group: self.group }
    }

    fn check_alive(&self) -> Result<()> {
        if self.executor.is_alive(self.group) {
            return Ok(());
        }
        Err(ebb_types::err!(ShuttingDown, "{} has ended", self.name))
    }
}

impl Backend for VirtualBackend {
    fn is_virtual(&self) -> bool {
        true
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn now(&self) -> Moment {
        self.clock.lock().moment(self.executor.now_ns())
    }

    fn wall(&self) -> WallTime {
        self.clock.lock().wall(self.executor.now_ns())
    }

    fn sleep(&self, span: Duration) -> Work<'static, ()> {
        // No timer is finer than this. A loop that sleeps for no time makes slow progress here as it does in the real
        // world, instead of holding up time for ever.
        let span_ns = self.clock.lock().virtual_ns(span).max(SLEEP_MIN_NS);
        Box::pin(self.executor.sleep_until(self.executor.now_ns().saturating_add(span_ns)))
    }

    fn spawn(&self, name: &'static str, work: Work<'static, ()>) -> Box<dyn Fn() + Send + Sync> {
        let task = self.executor.spawn(self.group, name, work);
        Box::new(move || Executor::stop(&task))
    }

    /// At once and in place: computing takes no virtual time.
    fn compute(&self, work: Box<dyn FnOnce() + Send>) {
        work();
    }

    fn fill_random(&self, out: &mut [u8]) {
        self.dice.lock().fill(out);
    }

    fn bug(&self) -> Option<SeededBug> {
        self.bug
    }

    fn listen<'a>(&'a self, address: &'a str) -> Work<'a, Result<Listener>> {
        Box::pin(async move {
            self.check_alive()?;
            net::listen(&self.network, self.host, self.group, address)
        })
    }

    fn connect<'a>(&'a self, address: &'a str) -> Work<'a, Result<Stream>> {
        Box::pin(async move {
            self.check_alive()?;
            net::connect(self.network.clone(), self.host, self.group, address.to_owned()).await
        })
    }

    fn listen_local<'a>(&'a self, path: &'a Path) -> Work<'a, Result<LocalListener>> {
        Box::pin(async move {
            self.check_alive()?;
            self.network.locals().listen(self.as_peer(), self.host, path)
        })
    }

    fn connect_local<'a>(&'a self, path: &'a Path) -> Work<'a, Result<LocalStream>> {
        Box::pin(async move {
            self.check_alive()?;
            self.network.locals().connect(self.as_peer(), self.host, path)
        })
    }

    fn make_words(&self, count: usize) -> Result<Words> {
        Ok(VirtualWords::make(count))
    }

    fn disk(&self) -> Disk {
        self.disk.clone()
    }
}
