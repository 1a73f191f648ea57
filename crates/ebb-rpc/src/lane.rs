//! A place for one connection to a peer: dials when a call needs it, dials again after a break, and not too often.

use std::sync::Arc;
use std::time::Duration;

use ebb_runtime::{Moment, Runtime};
use ebb_types::deadlines::DIAL_TIMEOUT;
use ebb_types::{Error, ErrorKind, Result, err};
use parking_lot::Mutex;
use tokio::sync::{MutexGuard, watch};

use crate::connection::Connection;
use crate::counters::Link;
use crate::{Counters, Identity, handshake};

/// Pause after the first failed dial; doubles with each further one.
const BACKOFF_MIN: Duration = Duration::from_millis(20);
/// Longest pause between two dials.
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// The state that all lanes of a process share.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub runtime: Runtime,
    pub identity: Identity,
    pub counters: Counters,
}

/// A place for one connection. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    origin: Arc<Origin>,
    address: Arc<str>,
    state: Arc<Mutex<State>>,
    turn: Arc<tokio::sync::Mutex<()>>,
}

type Dialed = Option<Result<Arc<Connection>>>;

#[derive(Debug)]
enum State {
    /// Never used, or the last connection broke.
    Down,
    /// A task is dialing; all callers that need the connection watch it.
    Dialing(watch::Receiver<Dialed>),
    Up(Arc<Connection>),
    /// The last dials failed.
    Resting {
        failures: u32,
        until: Moment,
        error: Error,
    },
}

impl Lane {
    pub fn new(origin: Arc<Origin>, address: Arc<str>) -> Self {
        Self { origin, address, state: Arc::new(Mutex::new(State::Down)), turn: Arc::default() }
    }

    /// Waits until those that asked before have queued their requests. Those that wait for a connection learn of it in any
    /// order.
    pub async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Calls in progress on its connection.
    pub fn load(&self) -> usize {
        match &*self.state.lock() {
            State::Up(connection) => connection.load(),
            // The caller that dials is about to call.
            State::Dialing(_) => 1,
            State::Down | State::Resting { .. } => 0,
        }
    }

    /// Whether it has no connection and no caller.
    pub fn is_idle(&self) -> bool {
        match &*self.state.lock() {
            State::Up(connection) => connection.load() == 0 || !connection.is_usable(),
            State::Dialing(_) => false,
            State::Down | State::Resting { .. } => true,
        }
    }

    /// The connection, dialed if there is none. Fails at once while the lane rests after a failed dial: the caller may
    /// have another peer to ask.
    ///
    /// Cancel-safety: a dial goes on without the caller that began it, because others may wait for it.
    pub async fn connection(&self) -> Result<Arc<Connection>> {
        let mut dialing = {
            let mut state = self.state.lock();
            match &*state {
                State::Up(connection) if connection.is_usable() => return Ok(connection.clone()),
                State::Dialing(dialing) => dialing.clone(),
                State::Resting { until, error, .. } if self.origin.runtime.now() < *until => return Err(error.clone()),
                State::Up(_) | State::Down => self.start_dial(&mut state, 0),
                State::Resting { failures, .. } => {
                    let failures = *failures;
                    self.start_dial(&mut state, failures)
                }
            }
        };
        match dialing.wait_for(Option::is_some).await {
            Ok(dialed) => dialed.clone().expect("waited for it"),
            Err(_) => Err(err!(ShuttingDown, "connecting to {} was stopped", self.address)),
        }
    }

    fn start_dial(&self, state: &mut State, failures: u32) -> watch::Receiver<Dialed> {
        let (done, dialing) = watch::channel(None);
        *state = State::Dialing(dialing.clone());
        let lane = self.clone();
        self.origin.runtime.spawn("rpc-dial", async move {
            let dialed = lane.dial().await.map(Arc::new);
            let next = match &dialed {
                Ok(connection) => State::Up(connection.clone()),
                Err(error) => lane.rest(failures, error.clone()),
            };
            *lane.state.lock() = next;
            done.send_replace(Some(dialed));
        });
        dialing
    }

    async fn dial(&self) -> Result<Connection> {
        let Origin { runtime, identity, counters } = &*self.origin;
        let dialing = async {
            let stream = runtime.connect(&self.address).await?;
            let (peer, stream) = handshake::greet(runtime, stream, identity, counters).await?;
            let link = Link::new(counters, &identity.host, &peer.host);
            Ok(Connection::start(runtime, stream, &link, peer))
        };
        tokio::select! {
            biased;
            dialed = dialing => dialed.map_err(|error| not_reached(&self.address, error)),
            () = runtime.sleep(DIAL_TIMEOUT) => {
                Err(err!(Unreachable, "{} does not answer within {} ms", self.address, DIAL_TIMEOUT.as_millis()))
            }
        }
    }

    fn rest(&self, failures: u32, error: Error) -> State {
        let longest = BACKOFF_MAX.min(BACKOFF_MIN * 2u32.saturating_pow(failures.min(16)));
        // Half of it by chance, so that many callers that lost one peer do not come back in one moment.
        let millis = u64::try_from(longest.as_millis()).expect("at most a second");
        let pause = Duration::from_millis(millis / 2 + self.origin.runtime.random_u64() % (millis / 2 + 1));
        State::Resting { failures: failures.saturating_add(1), until: self.origin.runtime.now().after(pause), error }
    }
}

/// No request was sent yet, so every failure is safe to repeat, except a refusal.
fn not_reached(address: &str, error: Error) -> Error {
    match error.kind() {
        ErrorKind::Disconnected | ErrorKind::Timeout | ErrorKind::Io => err!(Unreachable, "{address}: {error}"),
        ErrorKind::Protocol => err!(Unauthorized, "{address} is no server of this release of ebb: {error}"),
        _ => error,
    }
}
