//! Tasks and virtual time.
//!
//! A task belongs to a group (one life of one process). Runnable tasks wait in `ready`; one of them, drawn from the
//! seed, is polled at a time. When none is left, time jumps to the first timer.
//!
//! ```text
//!   spawn, wake ──▶ ready ──draw──▶ poll ──▶ Ready: gone      Pending: waits for its waker
//!                     ▲ thaw
//!                   parked (the group is frozen)
//! ```
//!
//! Ordering: no lock is held while a future is polled or dropped, or a waker is called: either may come back here.

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;

use super::dice::Dice;
use super::options::Panics;
use super::turn::Turn;
use crate::backend::Work;

/// One life of one process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct GroupId(usize);

/// The group of the body that [`super::World::run`] was given; it is never frozen and never crashes.
pub(super) const ROOT: GroupId = GroupId(0);

pub(super) struct Executor {
    now_ns: AtomicU64,
    state: Mutex<State>,
    panics: Panics,
    panicked: Mutex<Vec<String>>,
    polls_per_moment_max: u64,
}

struct State {
    /// By number, so that the order in which they were woken has no say: tokio's `watch`, for one, wakes its receivers
    /// in an order drawn from a generator of its own.
    ready: Vec<Arc<TaskCell>>,
    timers: BTreeMap<TimerKey, Timer>,
    groups: Vec<Group>,
    next_number: u64,
    dice: Dice,
    /// Polls since time last moved.
    polls: u64,
}

/// When, and in which order among those of the same time.
type TimerKey = (u64, u64);

enum Timer {
    Wake(Waker),
    Call(Box<dyn FnOnce() + Send>),
}

struct Group {
    name: Arc<str>,
    life: Life,
    tasks: BTreeMap<u64, Arc<TaskCell>>,
    /// Woken while frozen.
    parked: Vec<Arc<TaskCell>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    Running,
    Frozen,
    Dead,
}

pub(super) struct TaskCell {
    executor: Arc<Executor>,
    group: GroupId,
    /// The group's name.
    process: Arc<str>,
    number: u64,
    name: &'static str,
    /// In `ready` or `parked`.
    queued: AtomicBool,
    /// To be dropped instead of polled.
    stopped: AtomicBool,
    /// `None`: being polled, ended, or the root, which lives on the stack of `run`.
    future: Mutex<Option<Work<'static, ()>>>,
}

impl Wake for TaskCell {
    fn wake(self: Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            let executor = self.executor.clone();
            executor.enqueue(self);
        }
    }
}

impl Executor {
    pub(super) fn new(dice: Dice, panics: Panics, polls_per_moment_max: u64) -> Arc<Self> {
        let executor = Self {
            now_ns: AtomicU64::new(0),
            state: Mutex::new(State {
                ready: Vec::new(),
                timers: BTreeMap::new(),
                groups: Vec::new(),
                next_number: 0,
                dice,
                polls: 0,
            }),
            panics,
            panicked: Mutex::default(),
            polls_per_moment_max,
        };
        assert_eq!(executor.add_group("world".to_owned()), ROOT, "the first group is the root's");
        Arc::new(executor)
    }

    /// Virtual nanoseconds since the start.
    pub(super) fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed)
    }

    pub(super) fn panicked(&self) -> Vec<String> {
        self.panicked.lock().clone()
    }

    /// A new life.
    pub(super) fn add_group(&self, name: String) -> GroupId {
        let mut state = self.state.lock();
        state.groups.push(Group { name: name.into(), life: Life::Running, tasks: BTreeMap::new(), parked: Vec::new() });
        GroupId(state.groups.len() - 1)
    }

    /// Whether this life goes on, frozen or not.
    pub(super) fn is_alive(&self, group: GroupId) -> bool {
        self.state.lock().groups[group.0].life != Life::Dead
    }

    /// Leaves the group's tasks unpolled; false if it was not running.
    pub(super) fn freeze(&self, group: GroupId) -> bool {
        let mut state = self.state.lock();
        if state.groups[group.0].life != Life::Running {
            return false;
        }
        let (stay, park) = std::mem::take(&mut state.ready).into_iter().partition(|task| task.group != group);
        state.ready = stay;
        state.groups[group.0].life = Life::Frozen;
        state.groups[group.0].parked = park;
        true
    }

    /// Lets a frozen group go on; false if it was not frozen.
    pub(super) fn thaw(&self, group: GroupId) -> bool {
        let mut state = self.state.lock();
        if state.groups[group.0].life != Life::Frozen {
            return false;
        }
        state.groups[group.0].life = Life::Running;
        for task in std::mem::take(&mut state.groups[group.0].parked) {
            state.make_ready(task);
        }
        true
    }

    /// Ends the group: its tasks are dropped, in the order in which they were started.
    pub(super) fn kill(&self, group: GroupId) {
        let (tasks, queued) = {
            let mut state = self.state.lock();
            let (stay, queued): (Vec<_>, Vec<_>) =
                std::mem::take(&mut state.ready).into_iter().partition(|task| task.group != group);
            state.ready = stay;
            let group = &mut state.groups[group.0];
            group.life = Life::Dead;
            (std::mem::take(&mut group.tasks), (queued, std::mem::take(&mut group.parked)))
        };
        for task in tasks.values() {
            task.stopped.store(true, Ordering::Relaxed);
            let future = task.future.lock().take();
            drop(future);
        }
        drop(queued);
    }

    /// Starts a task. In a dead group it is dropped at once.
    pub(super) fn spawn(
        self: &Arc<Self>,
        group: GroupId,
        name: &'static str,
        work: Work<'static, ()>,
    ) -> Arc<TaskCell> {
        let task = {
            let mut state = self.state.lock();
            let number = state.number();
            let process = Arc::clone(&state.groups[group.0].name);
            let task = Arc::new(self.cell(group, process, number, name));
            let group = &mut state.groups[group.0];
            if group.life == Life::Dead {
                return task;
            }
            *task.future.lock() = Some(work);
            group.tasks.insert(number, task.clone());
            task
        };
        task.clone().wake();
        task
    }

    /// Drops the task's future when it is next its turn, as tokio does.
    pub(super) fn stop(task: &Arc<TaskCell>) {
        task.stopped.store(true, Ordering::Relaxed);
        task.clone().wake();
    }

    /// Calls `call` at a virtual time (at once if it is past), outside of any task.
    pub(super) fn call_at(&self, at_ns: u64, call: impl FnOnce() + Send + 'static) {
        let mut state = self.state.lock();
        let key = (at_ns.max(self.now_ns()), state.number());
        state.timers.insert(key, Timer::Call(Box::new(call)));
    }

    /// Completes at a virtual time.
    pub(super) fn sleep_until(self: &Arc<Self>, at_ns: u64) -> Sleep {
        Sleep { executor: self.clone(), at_ns, key: None }
    }

    /// Runs `root` and all tasks until `root` completes.
    pub(super) fn run<F: Future>(self: &Arc<Self>, root: F) -> F::Output {
        let mut root = pin!(root);
        let root_cell = {
            let mut state = self.state.lock();
            let (number, process) = (state.number(), Arc::clone(&state.groups[ROOT.0].name));
            Arc::new(self.cell(ROOT, process, number, "root"))
        };
        root_cell.clone().wake();
        let root_waker = Waker::from(root_cell.clone());
        loop {
            while let Some(task) = self.pick() {
                task.queued.store(false, Ordering::Relaxed);
                Turn::set_current(self.now_ns(), &task.process);
                if !Arc::ptr_eq(&task, &root_cell) {
                    self.poll(&task);
                } else if let Poll::Ready(output) = root.as_mut().poll(&mut Context::from_waker(&root_waker)) {
                    return output;
                }
            }
            self.advance();
        }
    }

    /// Drops every task and timer: for the end of the world. Breaks the circle between tasks and executor.
    pub(super) fn clear(&self) {
        let count = self.state.lock().groups.len();
        for group in 0..count {
            self.kill(GroupId(group));
        }
        let (timers, ready) = {
            let mut state = self.state.lock();
            (std::mem::take(&mut state.timers), std::mem::take(&mut state.ready))
        };
        drop((timers, ready));
        Turn::end();
    }

    fn cell(self: &Arc<Self>, group: GroupId, process: Arc<str>, number: u64, name: &'static str) -> TaskCell {
        TaskCell {
            executor: self.clone(),
            group,
            process,
            number,
            name,
            queued: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            future: Mutex::new(None),
        }
    }

    fn enqueue(&self, task: Arc<TaskCell>) {
        let mut state = self.state.lock();
        match state.groups[task.group.0].life {
            Life::Running => state.make_ready(task),
            Life::Frozen => state.groups[task.group.0].parked.push(task),
            Life::Dead => {
                drop(state);
                drop(task);
            }
        }
    }

    fn pick(&self) -> Option<Arc<TaskCell>> {
        let mut state = self.state.lock();
        let index = match state.ready.len() {
            0 => return None,
            1 => 0,
            len => state.dice.index(len),
        };
        let task = state.ready.remove(index);
        state.polls += 1;
        assert!(
            state.polls <= self.polls_per_moment_max,
            "the world runs in circles: {} polls at {} ns; the last task is {} of {}",
            state.polls,
            self.now_ns(),
            task.name,
            state.groups[task.group.0].name
        );
        Some(task)
    }

    fn poll(&self, task: &Arc<TaskCell>) {
        let Some(mut future) = task.future.lock().take() else { return };
        let mut done = task.stopped.load(Ordering::Relaxed);
        if !done {
            let waker = Waker::from(task.clone());
            let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut Context::from_waker(&waker))));
            done = match polled {
                Ok(poll) => poll.is_ready(),
                Err(panic) => {
                    self.on_panic(task, panic);
                    true
                }
            };
        }
        // A group that was killed while its task ran has forgotten the task already.
        let killed = || task.stopped.load(Ordering::Relaxed) && !self.is_alive(task.group);
        if done || killed() {
            drop(future);
            let gone = self.state.lock().groups[task.group.0].tasks.remove(&task.number);
            drop(gone);
        } else {
            *task.future.lock() = Some(future);
        }
    }

    fn on_panic(&self, task: &TaskCell, panic: Box<dyn std::any::Any + Send>) {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_else(|| "a panic without text".to_owned());
        let group = self.state.lock().groups[task.group.0].name.clone();
        let sentence = format!("task {} of {group} panicked at {} ns: {text}", task.name, self.now_ns());
        tracing::error!("{sentence}");
        self.panicked.lock().push(sentence);
        if self.panics == Panics::EndTheWorld {
            resume_unwind(panic);
        }
    }

    /// Moves time to the first timer and lets everything happen that is due then.
    fn advance(&self) {
        let mut due = Vec::new();
        {
            let mut state = self.state.lock();
            let Some(&(at_ns, _)) = state.timers.keys().next() else {
                let stuck = state.describe();
                drop(state);
                panic!("the world is stuck at {} ns: nothing is left that could wake a task of {stuck}", self.now_ns());
            };
            while let Some(entry) = state.timers.first_entry().filter(|entry| entry.key().0 == at_ns) {
                due.push(entry.remove());
            }
            if at_ns > self.now_ns() {
                state.polls = 0;
            }
            self.now_ns.store(at_ns, Ordering::Relaxed);
        }
        for timer in due {
            match timer {
                Timer::Wake(waker) => waker.wake(),
                Timer::Call(call) => call(),
            }
        }
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn make_ready(&mut self, task: Arc<TaskCell>) {
        let place = self.ready.partition_point(|other| other.number < task.number);
        self.ready.insert(place, task);
    }

    fn describe(&self) -> String {
        let of_group = |group: &Group| {
            let mut names: Vec<&str> = group.tasks.values().map(|task| task.name).collect();
            names.dedup();
            format!("{} ({})", group.name, names.join(", "))
        };
        self.groups.iter().filter(|group| group.life != Life::Dead).map(of_group).collect::<Vec<_>>().join("; ")
    }
}

/// Waits for a virtual time.
pub(super) struct Sleep {
    executor: Arc<Executor>,
    at_ns: u64,
    key: Option<TimerKey>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let executor = self.executor.clone();
        if executor.now_ns() >= self.at_ns {
            return Poll::Ready(());
        }
        let replaced = {
            let mut state = executor.state.lock();
            let at_ns = self.at_ns;
            let key = *self.key.get_or_insert_with(|| (at_ns, state.number()));
            state.timers.insert(key, Timer::Wake(cx.waker().clone()))
        };
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let timer = self.executor.state.lock().timers.remove(&key);
            drop(timer);
        }
    }
}
