//! Whose operations are carried out: those of sessions that the master has not ended.
//!
//! With its session a client loses its locks, and what it has sent before may still be on its way. Under a lease of its
//! own an epoch fences that off. Here the lease is the proxy's and stands, so the proxy looks, when an operation's turn
//! has come, whether its session lives. In the master's process it asks the master itself. In a process of its own it goes
//! by what the master has told it lately ([`crate::beliefs`]), and asks if that is too old; the master lets a session end
//! only when no proxy can believe in it any more.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ebb_client::Client;
use ebb_runtime::Runtime;
use ebb_types::{Result, SessionId, bail, err};
use ebb_wire::pb;
use parking_lot::Mutex;

use crate::beliefs::{Beliefs, Verdict};

/// One question to a master.
const ASK: Duration = Duration::from_secs(1);
/// Between attempts to ask.
const PAUSE: Duration = Duration::from_millis(100);
/// An operation waits no longer for the master's word.
const WAIT_MAX: Duration = Duration::from_secs(15);
/// Who is in use is asked about so long before the master's word is too old.
const AHEAD: Duration = Duration::from_secs(1);
/// Between looks at what will be too old.
const LOOK: Duration = Duration::from_millis(250);
/// Sessions in one question.
const ASKED_MAX: usize = 1000;

/// Tells whether a session lives.
#[derive(Clone)]
pub struct Sessions(Source);

#[derive(Clone)]
enum Source {
    Here(Arc<dyn Fn(SessionId) -> bool + Send + Sync>),
    Told(Arc<Told>),
}

impl Sessions {
    /// As `lives` has it, which is asked for each operation and must answer at once. It must say "no" before anybody can
    /// be given what the session had: so it is the master's own word, not an answer that was sent.
    #[must_use]
    pub fn new(lives: impl Fn(SessionId) -> bool + Send + Sync + 'static) -> Self {
        Self(Source::Here(Arc::new(lives)))
    }

    /// As the masters tell it over the network.
    pub(crate) fn told(runtime: Runtime, client: Client, masters: Vec<String>) -> Self {
        let told = Told { runtime, client, masters, beliefs: Mutex::default(), asking: tokio::sync::Mutex::default() };
        Self(Source::Told(Arc::new(told)))
    }

    /// Errors: `SessionExpired`; `Unavailable` if no master says anything for long.
    pub async fn check(&self, session: SessionId) -> Result<()> {
        let lives = match &self.0 {
            Source::Here(lives) => lives(session),
            Source::Told(told) => told.lives(session).await?,
        };
        if lives {
            return Ok(());
        }
        bail!(SessionExpired, "session {session} is over, and its locks with it; nothing was done")
    }

    /// Whether it may live, as far as is known here: nobody is asked.
    #[must_use]
    pub fn may_live(&self, session: SessionId) -> bool {
        match &self.0 {
            Source::Here(lives) => lives(session),
            Source::Told(told) => !told.beliefs.lock().is_over(session),
        }
    }

    /// Asks about those in use before they have to wait for it. Runs as long as the proxy; where the master is asked
    /// itself there is nothing to do.
    pub(crate) async fn keep(self) {
        let Source::Told(told) = self.0 else { return };
        loop {
            told.runtime.sleep(LOOK).await;
            let due = {
                let (mut beliefs, now) = (told.beliefs.lock(), told.runtime.now());
                beliefs.sweep(now);
                beliefs.due(now, AHEAD)
            };
            for sessions in due.chunks(ASKED_MAX) {
                if let Err(error) = told.ask(sessions).await {
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

/// What the masters have told.
struct Told {
    runtime: Runtime,
    client: Client,
    masters: Vec<String>,
    beliefs: Mutex<Beliefs>,
    /// One question at a time: who waits for it finds the answer.
    asking: tokio::sync::Mutex<()>,
}

impl Told {
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

    /// Asks the first master that answers. One that does not know this proxy's own session says nothing.
    async fn ask(&self, sessions: &[SessionId]) -> Result<()> {
        let call = pb::VouchSessions {
            proxy: self.client.session().raw(),
            sessions: sessions.iter().map(|session| session.raw()).collect(),
        };
        let mut last = err!(Unreachable, "no master is known");
        for master in &self.masters {
            let sent = self.runtime.now();
            match self.client.connector().channel(master).call(&call, ASK).await {
                Ok(told) => {
                    let over: Vec<SessionId> = told.over.into_iter().map(SessionId::new).collect();
                    let span = Duration::from_millis(told.vouched_ms.into());
                    self.beliefs.lock().on_told(sessions, &over, sent, span);
                    return Ok(());
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}
