//! Disks of virtual processes.
//!
//! An operation takes modelled time and has its effect at the end of it; dropping its future does not stop it. Reads
//! and syncs queue for the one disk; writes go to the page cache and cost little until they are synced.
//!
//! ```text
//!   write ──▶ current (page cache) ──sync_data──▶ durable (platter)
//!                  │ crash: each unsynced change is lost, kept or torn
//! ```
//!
//! A disk may have several spindles, each with the files of a directory, which do their work side by side. Queue, arm,
//! space and slowness are those of a spindle, and it can fail alone; a crash befalls them all.
//!
//! A sync covers changes that had their effect before the sync was asked for. A write in progress at a crash is lost,
//! or in the page cache and then lost, kept or torn like any other.

mod ahead;
mod content;
mod cut;
mod door;
mod file;
mod inode;
mod medium;
mod mount;
mod names;
mod references;
mod spindles;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ebb_types::{Error, Result, bail, err};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use self::ahead::Ahead;
pub use self::cut::PowerCut;
use self::door::Door;
use self::inode::{Change, Inode};
use self::medium::Access;
use self::mount::Mount;
pub use self::mount::Restored;
use self::names::{InodeNumber, Names};
use self::spindles::Spindles;
use super::dice::Dice;
use super::executor::Executor;
use super::options::{DiskFaults, DiskOptions, PlannedFault};
use super::trace::Trace;

/// The disk of one process: one device, or several that hold a directory each. It outlives the process's lives.
pub(super) struct VirtualDisk {
    /// Of the process, for the log of faults.
    name: String,
    executor: Arc<Executor>,
    trace: Arc<Trace>,
    state: Mutex<State>,
}

struct State {
    spindles: Spindles,
    faults: DiskFaults,
    planned: Vec<PlannedFault>,
    /// The next write to a path with this in it goes astray.
    misdirected: Option<String>,
    dice: Dice,
    names: Names,
    inodes: BTreeMap<InodeNumber, Inode>,
    locks: BTreeSet<PathBuf>,
    /// Changes on their way into the page cache, by the number of their operation.
    in_flight: BTreeMap<u64, (InodeNumber, Change)>,
    next_number: u64,
    /// Grows with each crash: operations and files of an older life have no effect.
    life: u64,
    /// What was asked for ahead of its reads.
    ahead: Ahead,
}

impl State {
    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Has the disk read a range, without going elsewhere in between.
    fn read_ahead(&mut self, now_ns: u64, file: InodeNumber, offset: u64, len: u64) {
        let len = len.min(self.inode(file).current.len().saturating_sub(offset));
        if len == 0 || self.ahead.has(file, offset, len) {
            return;
        }
        let spindle = self.inode(file).spindle;
        let Self { spindles, dice, .. } = &mut *self;
        let medium = &mut spindles[spindle];
        let access = Access { bytes: len, at: Some((file, offset)) };
        let cost = medium.cost(dice, medium.options.read_latency, len) + medium.seek(access);
        let done_ns = medium.queue(now_ns, cost);
        let flow_ns = medium.flow_ns(len);
        self.ahead.add(file, offset..offset + len, done_ns - flow_ns.min(cost)..done_ns);
    }

    fn inode(&mut self, number: InodeNumber) -> &mut Inode {
        self.inodes.get_mut(&number).expect("an inode lives for as long as it has names or is open")
    }

    /// The space of all files on a spindle.
    fn files_bytes(&self, spindle: usize) -> u64 {
        self.inodes.values().filter(|inode| inode.spindle == spindle).map(Inode::used_bytes).sum()
    }

    fn used_bytes(&self, spindle: usize) -> u64 {
        self.spindles[spindle].ballast_bytes + self.files_bytes(spindle)
    }

    /// The error that was planned for this operation, if one was.
    fn planned_fault(&mut self, kind: &str, path: &Path) -> Option<Error> {
        let path = path.to_string_lossy();
        let hit = |fault: &PlannedFault| fault.work.kind() == kind && path.contains(&fault.path_part);
        let at = self.planned.iter().position(hit)?;
        let fault = &mut self.planned[at];
        if fault.skip > 0 {
            fault.skip -= 1;
            return None;
        }
        let error = Error::new(fault.error, format!("cannot {kind} {path}: a planned fault"));
        fault.count = fault.count.saturating_sub(1);
        if fault.count == 0 {
            self.planned.remove(at);
        }
        Some(error)
    }

    /// Forgets all files that nothing leads to any more.
    fn collect(&mut self) {
        let Self { names, inodes, .. } = self;
        names.take_unnamed();
        inodes.retain(|number, inode| inode.open_count > 0 || names.lead_to(*number));
    }

    /// A file has been closed: forgets it, and those that have lost their last name, if nothing leads there any more.
    fn collect_closed(&mut self, closed: InodeNumber) {
        let Self { names, inodes, .. } = self;
        for number in names.take_unnamed().into_iter().chain([closed]) {
            if !names.lead_to(number) && inodes.get(&number).is_some_and(|inode| inode.open_count == 0) {
                inodes.remove(&number);
            }
        }
    }

    /// Puts a change into the page cache if it has room. A write without enough room leaves the part that fits, as
    /// Linux does.
    fn change(&mut self, file: InodeNumber, change: Change, path: &Path) -> Result<()> {
        let spindle = self.inode(file).spindle;
        let capacity = self.spindles[spindle].options.capacity_bytes;
        let missing = change.missing_bytes(&self.inode(file).current);
        self.spindles[spindle].used_bytes_bound += missing;
        if self.spindles[spindle].used_bytes_bound > capacity {
            self.spindles[spindle].used_bytes_bound = self.used_bytes(spindle) + missing;
        }
        let number = self.number();
        if missing == 0 || self.spindles[spindle].used_bytes_bound <= capacity {
            self.inode(file).change(number, change);
            return Ok(());
        }
        if let Change::Write { offset, data } = change {
            // Counted without the holes that the write would have filled within it: less fits, never more.
            let fits = capacity.saturating_sub(self.used_bytes(spindle)) / content::PAGE * content::PAGE;
            let prefix = prefix(&data, fits);
            self.inode(file).change(number, Change::Write { offset, data: prefix });
        }
        bail!(NoSpace, "cannot write {}: the disk of {capacity} bytes is full", path.display())
    }
}

/// The first `len` bytes of some buffers.
fn prefix(data: &[Bytes], len: u64) -> Vec<Bytes> {
    let mut rest = len;
    let mut taken = Vec::new();
    for buffer in data {
        let count = rest.min(buffer.len() as u64);
        taken.push(buffer.slice(..count as usize));
        rest -= count;
    }
    taken
}

/// The part of the disk that a file operation needs.
enum Need {
    /// Nothing but the page cache and the processor.
    Memory(Duration),
    /// The disk itself, in turn.
    Medium(Duration, Access),
    /// Bytes that the disk is reading ahead, which arrive at this time.
    Arrival(u64),
}

impl VirtualDisk {
    pub(super) fn new(
        name: &str,
        options: DiskOptions,
        dice: Dice,
        executor: Arc<Executor>,
        trace: Arc<Trace>,
    ) -> Arc<Self> {
        let state = State {
            spindles: Spindles::one(options),
            faults: DiskFaults::default(),
            planned: Vec::new(),
            misdirected: None,
            dice,
            names: Names::default(),
            inodes: BTreeMap::new(),
            locks: BTreeSet::new(),
            in_flight: BTreeMap::new(),
            next_number: 0,
            life: 0,
            ahead: Ahead::default(),
        };
        Arc::new(Self { name: name.to_owned(), executor, trace, state: Mutex::new(state) })
    }

    pub(super) fn set_faults(&self, faults: DiskFaults) {
        self.state.lock().faults = faults;
    }

    pub(super) fn plan_fault(&self, fault: PlannedFault) {
        self.state.lock().planned.push(fault);
    }

    pub(super) fn cancel_faults(&self) {
        self.state.lock().planned.clear();
    }

    pub(super) fn misdirect(&self, path_part: &str) {
        self.state.lock().misdirected = Some(path_part.to_owned());
    }

    pub(super) fn cancel_misdirection(&self) {
        self.state.lock().misdirected = None;
    }

    /// Everything below a directory is gone.
    pub(super) fn wipe(&self, directory: &Path) {
        let mut state = self.state.lock();
        state.names.wipe(directory);
        state.collect();
    }

    pub(super) fn files(&self) -> Vec<(PathBuf, u64)> {
        let state = self.state.lock();
        let len = |file: &InodeNumber| state.inodes.get(file).map_or(0, |inode| inode.current.len());
        state.names.all().map(|(path, file)| (path.to_owned(), len(&file))).collect()
    }

    pub(super) fn content(&self, path: &Path) -> Option<Bytes> {
        let mut state = self.state.lock();
        let file = state.names.file(path).ok()?;
        let current = &state.inode(file).current;
        Some(current.read(0, usize::try_from(current.len()).ok()?))
    }

    /// The process is killed and its kernel lives: each operation that it had asked for is done or was never begun.
    pub(super) fn kill(&self) {
        let mut state = self.state.lock();
        state.life += 1;
        state.locks.clear();
        state.ahead = Ahead::default();
        for (number, (file, change)) in std::mem::take(&mut state.in_flight) {
            if state.dice.coin() {
                state.inode(file).change(number, change);
            }
        }
        state.close_all();
    }

    /// Power is lost.
    pub(super) fn crash(&self) {
        let mut state = self.state.lock();
        let state = &mut *state;
        state.life += 1;
        state.locks.clear();
        let losses = state.lose_memory(|_| true);
        state.close_all();
        self.count_losses(losses);
    }

    fn count_losses(&self, losses: [(&'static str, u64); 3]) {
        for (kind, count) in losses {
            for _ in 0..count {
                self.fault(kind, String::new());
            }
        }
    }

    /// The possible outcomes of a power failure now.
    pub(super) fn power_cut(&self) -> PowerCut {
        PowerCut::of(&self.state.lock())
    }

    /// Gives the disk one of the outcomes of the power failure.
    pub(super) fn restore(&self, cut: &PowerCut, keeps: impl Fn(usize) -> bool) {
        let mut state = self.state.lock();
        state.life += 1;
        cut.restore(&mut state, keeps);
        for spindle in 0..state.spindles.count() {
            state.spindles[spindle].used_bytes_bound = state.used_bytes(spindle);
        }
    }

    /// Flips a bit in each stored byte of a range, out of sight of the process. Returns how many were flipped.
    pub(super) fn flip(&self, path: &Path, offset: u64, len: u64) -> Result<u64> {
        let mut state = self.state.lock();
        let file = state.names.file(path)?;
        let flipped = state.inode(file).flip(offset, len);
        if flipped > 0 {
            self.fault("bit_flip", format!("{} bytes {offset}+{flipped}", path.display()));
        }
        Ok(flipped)
    }

    fn fault(&self, kind: &'static str, detail: String) {
        self.trace.fault(self.executor.now_ns(), kind, format!("{} {detail}", self.name));
    }

    /// A write that the disk puts elsewhere in its file, if one was ordered.
    fn go_astray(&self, state: &mut State, path: &Path, file: InodeNumber, change: Change) -> Change {
        let Change::Write { offset, data } = change else { return change };
        let len = state.inode(file).current.len();
        let is_meant = state.misdirected.as_ref().is_some_and(|part| path.to_string_lossy().contains(part));
        if !is_meant || len < 2 * content::PAGE {
            return Change::Write { offset, data };
        }
        state.misdirected = None;
        let pages = len / content::PAGE;
        let elsewhere = (offset / content::PAGE + 1 + state.dice.below(pages - 1)) % pages * content::PAGE;
        self.fault("misdirected_write", format!("{} {offset} to {elsewhere}", path.display()));
        Change::Write { offset: elsewhere, data }
    }

    /// Carries `work` out when its time has passed, whether or not the caller still waits, unless a crash or kill comes
    /// before.
    async fn submit<T: Send + 'static>(
        self: &Arc<Self>,
        kind: &'static str,
        mount: Mount,
        need: Need,
        change: Option<(InodeNumber, Change)>,
        work: impl FnOnce(&Self, &mut State, Option<(InodeNumber, Change)>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (send, done) = oneshot::channel();
        {
            let mut state = self.state.lock();
            if state.life != mount.life {
                return Err(gone());
            }
            let now_ns = self.executor.now_ns();
            let is_mounted = state.is_mounted(mount);
            let State { spindles, dice, .. } = &mut *state;
            let medium = &mut spindles[mount.spindle];
            let at_ns = match need {
                // Nothing waits for a spindle that is not there.
                _ if !is_mounted => now_ns + medium.cost(dice, medium.options.name_latency, 0),
                Need::Memory(latency) => now_ns + medium.cost(dice, latency, 0),
                Need::Medium(latency, access) => {
                    let cost = medium.cost(dice, latency, access.bytes) + medium.seek(access);
                    medium.queue(now_ns, cost)
                }
                Need::Arrival(at_ns) => at_ns.max(now_ns),
            };
            let number = state.number();
            if let Some(change) = change.filter(|_| is_mounted) {
                state.in_flight.insert(number, change);
            }
            let disk = self.clone();
            self.executor.call_at(at_ns, move || {
                let mut state = disk.state.lock();
                if state.life == mount.life {
                    let change = state.in_flight.remove(&number);
                    let result = work(&disk, &mut state, change);
                    let outcome = [number, u64::from(result.is_ok())];
                    disk.trace.event(disk.executor.now_ns(), kind, &outcome, disk.name.as_bytes());
                    drop(state);
                    // The caller may have gone: the work is done all the same.
                    let _ = send.send(result);
                }
            });
        }
        done.await.unwrap_or_else(|_| Err(gone()))
    }

    /// A door for one life of the process.
    pub(super) fn door(self: &Arc<Self>) -> Door {
        Door { disk: self.clone(), life: self.state.lock().life }
    }
}

impl State {
    /// Every file of the life that ended is closed.
    fn close_all(&mut self) {
        for inode in self.inodes.values_mut() {
            inode.open_count = 0;
        }
        self.collect();
    }
}

fn gone() -> ebb_types::Error {
    err!(ShuttingDown, "the process that asked the disk has crashed")
}

impl State {
    fn is_drawn(&mut self, probability: f64) -> bool {
        // No draw where there is nothing to decide: so faults that are switched on later do not shift earlier draws.
        probability > 0.0 && self.dice.chance(probability)
    }
}
