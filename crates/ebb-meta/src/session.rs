//! Sessions, and the replies that are kept for repeated requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use ebb_types::{HostName, RequestId, Result, SessionId, bail};
use ebb_wire::pb;
use imbl::OrdMap;

/// Most requests of one session whose replies have not been acknowledged.
pub const REQUEST_WINDOW: u64 = 4096;

/// Result of a mutation.
pub(crate) type Outcome = Arc<Result<pb::MetaReply>>;

/// One start of a client process.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) host: HostName,
    pub(crate) role: Arc<str>,
    /// The session has the replies to all requests below this one. They are forgotten.
    pub(crate) acknowledged: RequestId,
    /// Replies that the session may ask for again.
    pub(crate) replies: BTreeMap<RequestId, Outcome>,
}

/// All open sessions.
#[derive(Clone, Default)]
pub(crate) struct Sessions {
    open: OrdMap<SessionId, Arc<Session>>,
}

impl Sessions {
    pub(crate) fn get(&self, id: SessionId) -> Result<&Session> {
        match self.open.get(&id) {
            Some(session) => Ok(session),
            None => bail!(SessionExpired, "session {id} has expired or was never opened: open a new one"),
        }
    }

    pub(crate) fn insert(&mut self, id: SessionId, session: Session) {
        self.open.insert(id, Arc::new(session));
    }

    pub(crate) fn remove(&mut self, id: SessionId) -> bool {
        self.open.remove(&id).is_some()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        self.open.iter().map(|(id, session)| (*id, &**session))
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Admits a mutation once. A repeated request gets its recorded reply. Requests may arrive in any order within
    /// [`REQUEST_WINDOW`] of the acknowledged one, as a client has several in flight.
    pub(crate) fn admit(
        &mut self,
        id: SessionId,
        request: RequestId,
        acknowledged: RequestId,
    ) -> Result<Option<Outcome>> {
        let session = self.get(id)?;
        if request.raw() == 0 {
            bail!(Invalid, "a mutation of {id} has no request id");
        }
        // Requests overtake each other: a lower acknowledgement is old news.
        if acknowledged > session.acknowledged {
            let session = self.open.get_mut(&id).map(Arc::make_mut).expect("found above");
            session.acknowledged = acknowledged;
            session.replies = session.replies.split_off(&acknowledged);
        }
        let session = self.get(id)?;
        if request < session.acknowledged {
            bail!(Stale, "{request} of {id} was acknowledged already: its reply is forgotten");
        }
        // I-12: a repeated request is answered from here, and never executed.
        if let Some(outcome) = session.replies.get(&request) {
            return Ok(Some(Arc::clone(outcome)));
        }
        if request.raw() - session.acknowledged.raw() >= REQUEST_WINDOW {
            bail!(
                Overloaded,
                "{request} of {id} is {REQUEST_WINDOW} or more ahead of what is acknowledged ({})",
                session.acknowledged
            );
        }
        Ok(None)
    }

    /// Keeps the reply of an admitted request.
    pub(crate) fn record(&mut self, id: SessionId, request: RequestId, outcome: Outcome) {
        if let Some(session) = self.open.get_mut(&id) {
            let session = Arc::make_mut(session);
            assert!(request >= session.acknowledged, "{request} of {id} is acknowledged and executed again");
            let before = session.replies.insert(request, outcome);
            assert!(before.is_none(), "{request} of {id} is executed twice");
        }
    }
}
