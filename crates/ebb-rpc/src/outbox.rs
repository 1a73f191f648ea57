//! The outgoing frames of a connection: each caller writes its own, while that takes no waiting.
//!
//! Handing a frame to a writing task costs a change of thread, 8 to 27 us, and nearly every frame fits into the socket
//! at once. So a caller with a frame writes it, and frames that others put in meanwhile. Two kinds go to the
//! connection's own task: writes that would have to wait, and large frames, whose copying is better done beside other
//! work.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use ebb_types::{Error, Result};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::writer::{Frame, FrameWriter};

/// Frames taken for one system call.
const BATCH_LEN: usize = 32;
/// Frames of so many bytes are written by the connection's task.
const LARGE: u64 = 64 << 10;

/// Something to write.
pub(crate) trait Outgoing: Send + 'static {
    /// Resources that are held until the frame has been written, or given up.
    type Resources: Send;

    /// Bytes of the frame.
    fn len(&self) -> u64;

    /// The frame, now that its turn has come. `None`: its caller does not wait for it any more.
    fn unpack(self) -> Option<(Frame, Self::Resources)>;
}

/// The writing side of a connection. Cheap to clone; all clones write to the same connection.
pub(crate) struct Outbox<T>(Arc<Shared<T>>);

struct Shared<T> {
    state: Mutex<State<T>>,
    /// There is a job, or the connection is over.
    news: Notify,
}

struct State<T> {
    /// In the order in which they go out.
    waiting: VecDeque<T>,
    /// The writer, while no caller writes.
    idle: Option<FrameWriter>,
    /// More is about to come.
    is_held: bool,
    /// For the connection's task.
    job: Option<Job>,
    over: Option<Error>,
}

type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

impl<T> Clone for Outbox<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> fmt::Debug for Outbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outbox({} waiting)", self.0.state.lock().waiting.len())
    }
}

impl<T: Outgoing> Outbox<T> {
    /// An outbox, whose [`Outbox::run`] has to run beside it.
    pub fn new(writer: FrameWriter) -> Self {
        let state = State { waiting: VecDeque::new(), idle: Some(writer), is_held: false, job: None, over: None };
        Self(Arc::new(Shared { state: Mutex::new(state), news: Notify::new() }))
    }

    /// Sends a frame as soon as earlier ones have gone out. An error: the connection is over.
    ///
    /// Does not wait, and has no bound of its own: each caller holds a place of a bounded number.
    pub fn put(&self, outgoing: T) -> Result<()> {
        let is_large = outgoing.len() >= LARGE;
        let writer = {
            let mut state = self.0.state.lock();
            if let Some(error) = &state.over {
                return Err(error.clone());
            }
            state.waiting.push_back(outgoing);
            if state.is_held && !is_large && state.waiting.len() < BATCH_LEN {
                return Ok(());
            }
            state.idle.take()
        };
        // Otherwise the present writer comes to it.
        if let Some(writer) = writer {
            self.write(writer, is_large);
        }
        Ok(())
    }

    /// Holds frames back during one poll of `work`, so that answers to requests that came together go out together.
    pub fn gather<R>(&self, work: impl FnOnce() -> R) -> R {
        self.0.state.lock().is_held = true;
        let done = work();
        let writer = {
            let mut state = self.0.state.lock();
            state.is_held = false;
            if state.waiting.is_empty() { None } else { state.idle.take() }
        };
        if let Some(writer) = writer {
            self.write(writer, false);
        }
        done
    }

    /// Writes the waiting frames, here as far as that takes no waiting.
    fn write(&self, writer: FrameWriter, is_large: bool) {
        let mut job: Job = Box::pin(write_waiting(self.0.clone(), writer));
        // The task polls again at once, so nothing that this poll did not wait to hear of is lost.
        if is_large || job.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            self.0.state.lock().job = Some(job);
            self.0.news.notify_one();
        }
    }

    /// Ends the connection; the first error stays.
    pub fn close(&self, error: &Error) {
        self.0.close(error);
    }

    /// Does the writes that wait. Returns the error when the connection is over.
    ///
    /// Cancel-safety: dropping the future may leave a frame half written; the connection is only good for dropping then.
    pub async fn run(self) -> Error {
        loop {
            let (job, over) = {
                let mut state = self.0.state.lock();
                (state.job.take(), state.over.clone())
            };
            match (job, over) {
                (_, Some(error)) => return error,
                (Some(job), None) => job.await,
                (None, None) => self.0.news.notified().await,
            }
        }
    }
}

impl<T> Shared<T> {
    fn close(&self, error: &Error) {
        let dropped = {
            let mut state = self.state.lock();
            state.over.get_or_insert_with(|| error.clone());
            // Without its writer the connection is closed. A job that is under way has it, and ends by itself.
            (state.idle.take(), state.job.take(), std::mem::take(&mut state.waiting))
        };
        drop(dropped);
        self.news.notify_one();
    }
}

/// Writes until nothing waits.
async fn write_waiting<T: Outgoing>(shared: Arc<Shared<T>>, mut writer: FrameWriter) {
    loop {
        let batch: Vec<T> = {
            let mut state = shared.state.lock();
            if state.over.is_some() {
                return;
            }
            if state.waiting.is_empty() {
                state.idle = Some(writer);
                return;
            }
            let count = batch_len(&state.waiting);
            state.waiting.drain(..count).collect()
        };
        let (frames, held): (Vec<_>, Vec<_>) = batch.into_iter().filter_map(T::unpack).unzip();
        let written = if frames.is_empty() { Ok(()) } else { writer.write(frames).await };
        drop(held);
        if let Err(error) = written {
            return shared.close(&error);
        }
    }
}

/// How many frames go out together: those up to the first large one, so that its caller soon hears that it has left.
fn batch_len<T: Outgoing>(waiting: &VecDeque<T>) -> usize {
    let before = waiting.iter().take(BATCH_LEN).take_while(|outgoing| outgoing.len() < LARGE).count();
    (before + 1).min(BATCH_LEN).min(waiting.len())
}
