//! Whose operations are carried out: those of sessions that the master has not ended.
//!
//! With its session a client loses its locks, and what it has sent before may still be on its way. Under a lease of its
//! own an epoch fences that off. Here the lease is the proxy's and stands, so the proxy asks, when an operation's turn
//! has come, whether its session lives.

use std::fmt;
use std::sync::Arc;

use ebb_types::{Result, SessionId, bail};

/// Tells whether a session lives.
#[derive(Clone)]
pub struct Sessions(Arc<dyn Fn(SessionId) -> bool + Send + Sync>);

impl Sessions {
    /// As `lives` has it, which is asked for each operation and must answer at once. It must say "no" before anybody can
    /// be given what the session had: so it is the master's own word, not an answer that was sent.
    #[must_use]
    pub fn new(lives: impl Fn(SessionId) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(lives))
    }

    /// Errors: `SessionExpired`.
    pub fn check(&self, session: SessionId) -> Result<()> {
        if (self.0)(session) {
            return Ok(());
        }
        bail!(SessionExpired, "session {session} is over, and its locks with it; nothing was done")
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sessions")
    }
}
