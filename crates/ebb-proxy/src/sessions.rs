//! Sessions whose operations are executed: those that the master has not ended.
//!
//! With its session a client loses its locks, and its earlier requests may still be on their way. Under the client's
//! own lease, the epoch fences them off. Here the lease is the proxy's and goes on. So the proxy checks, when an
//! operation has its turn, whether its session lives. A proxy in the master's process asks the master itself. A proxy
//! in a process of its own uses the master's last answers ([`crate::beliefs`]), and asks if they are too old. The
//! master ends a session only when no proxy can believe in it any more.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ebb_client::Client;
use ebb_runtime::Runtime;
use ebb_types::{Result, SessionId, bail, err};
use ebb_wire::pb;
use parking_lot::Mutex;

use crate::beliefs::{Beliefs, Verdict};

/// Deadline of one question to a master.
const ASK: Duration = Duration::from_secs(1);
/// Pause between attempts to ask.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest time that an operation waits for a master's answer.
const WAIT_MAX: Duration = Duration::from_secs(15);
/// A session in use is asked about this long before the master's answer is too old.
const AHEAD: Duration = Duration::from_secs(1);
/// Interval at which the proxy looks for answers that will be too old.
const LOOK: Duration = Duration::from_millis(250);
/// Most sessions of one question.
const ASKED_MAX: usize = 1000;

/// The source of the answer whether a session lives.
#[derive(Clone)]
pub struct Sessions(Source);

#[derive(Clone)]
enum Source {
    Here(Arc<dyn Fn(SessionId) -> bool + Send + Sync>),
    Masters(Arc<FromMasters>),
}

impl Sessions {
    /// Asks `lives`, for each operation. It has to answer at once. It has to say "no" before any other session can get
    /// what the session had. So it is the master's own state, not an answer that was sent.
    #[must_use]
    pub fn new(lives: impl Fn(SessionId) -> bool + Send + Sync + 'static) -> Self {
        Self(Source::Here(Arc::new(lives)))
    }

    /// Asks the masters over the network.
    pub(crate) fn from_master(runtime: Runtime, client: Client, masters: Vec<String>) -> Self {
        let asked =
            FromMasters { runtime, client, masters, beliefs: Mutex::default(), asking: tokio::sync::Mutex::default() };
        Self(Source::Masters(Arc::new(asked)))
    }

    /// Refuses an operation of a session that is over.
    ///
    /// Errors: `SessionExpired`; `Unavailable` if no master answers for long.
    pub async fn check(&self, session: SessionId) -> Result<()> {
        let lives = match &self.0 {
            Source::Here(lives) => lives(session),
            Source::Masters(asked) => asked.lives(session).await?,
        };
        if lives {
            return Ok(());
        }
        bail!(SessionExpired, "session {session} is over, and its locks with it; nothing was done")
    }

    /// Whether the session may live, as far as is known here. No master is asked.
    #[must_use]
    pub fn may_live(&self, session: SessionId) -> bool {
        match &self.0 {
            Source::Here(lives) => lives(session),
            Source::Masters(asked) => !asked.beliefs.lock().is_over(session),
        }
    }

    /// Asks about sessions in use, before an operation has to wait for the answer. Runs as long as the proxy. In the
    /// master's process it has nothing to do.
    pub(crate) async fn keep(self) {
        let Source::Masters(asked) = self.0 else { return };
        loop {
            asked.runtime.sleep(LOOK).await;
            let due = {
                let (mut beliefs, now) = (asked.beliefs.lock(), asked.runtime.now());
                beliefs.sweep(now);
                beliefs.due(now, AHEAD)
            };
            for sessions in due.chunks(ASKED_MAX) {
                if let Err(error) = asked.ask(sessions).await {
                    tracing::debug!(%error, "which sessions live is not known");
                }
            }
        }
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sessions")
    }
}

/// Answers of the masters.
struct FromMasters {
    runtime: Runtime,
    client: Client,
    masters: Vec<String>,
    beliefs: Mutex<Beliefs>,
    /// One question at a time. An operation that waits for it finds the answer.
    asking: tokio::sync::Mutex<()>,
}

impl FromMasters {
    async fn lives(&self, session: SessionId) -> Result<bool> {
        let until = self.runtime.now().after(WAIT_MAX);
        loop {
            if let Some(lives) = self.known(session) {
                return Ok(lives);
            }
            let asking = self.asking.lock().await;
            if let Some(lives) = self.known(session) {
                return Ok(lives);
            }
            let asked = self.ask(&[session]).await;
            drop(asking);
            if let Err(error) = asked {
                if self.runtime.now() >= until {
                    bail!(Unavailable, "no master says whether session {session} lives, and nothing was done: {error}");
                }
                self.runtime.sleep(PAUSE).await;
            }
        }
    }

    fn known(&self, session: SessionId) -> Option<bool> {
        match self.beliefs.lock().verdict_on(session, self.runtime.now()) {
            Verdict::Lives => Some(true),
            Verdict::Over => Some(false),
            Verdict::Unknown => None,
        }
    }

    /// Asks the first master that answers. A master that does not know this proxy's session refuses.
    async fn ask(&self, sessions: &[SessionId]) -> Result<()> {
        let call = pb::VouchSessions {
            proxy: self.client.session().raw(),
            sessions: sessions.iter().map(|session| session.raw()).collect(),
        };
        let mut last = err!(Unreachable, "no master is known");
        for master in &self.masters {
            let sent = self.runtime.now();
            match self.client.connector().channel(master).call(&call, ASK).await {
                Ok(asked) => {
                    let over: Vec<SessionId> = asked.over.into_iter().map(SessionId::new).collect();
                    let span = Duration::from_millis(asked.vouched_ms.into());
                    self.beliefs.lock().on_vouched(sessions, &over, sent, span);
                    return Ok(());
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}
