//! What a service tells the caller of a request before its answer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ebb_runtime::{Moment, Runtime};
use ebb_wire::FrameKind;

use crate::budget::PeerKey;
use crate::departure::Movement;
use crate::outbox::Outbox;
use crate::reply::Answered;
use crate::served::Common;
use crate::writer::{Body, Draft};

/// The caller of a request. Cheap to clone. The default is a caller within this process, which hears nothing.
#[derive(Clone, Default)]
pub struct Caller(Option<Arc<Remote>>);

struct Remote {
    common: Arc<Common>,
    answers: Outbox<Answered>,
    key: PeerKey,
    method: u16,
    request: u64,
    /// When it was told last.
    told: Movement,
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Caller({})", self.0.as_ref().map_or(0, |remote| remote.request))
    }
}

impl Caller {
    pub(crate) fn new(
        common: &Arc<Common>,
        answers: &Outbox<Answered>,
        key: &PeerKey,
        (method, request): (u16, u64),
    ) -> Self {
        let (common, answers, key) = (common.clone(), answers.clone(), key.clone());
        Self(Some(Arc::new(Remote { common, answers, key, method, request, told: Movement::default() })))
    }

    /// Tells the caller that what the service waits for is held up in front of a link: its deadline begins anew. Only for
    /// callers that have said that they understand it: others take it for a violation of the protocol.
    pub fn tell_held_up(&self) {
        let Some(remote) = &self.0 else { return };
        let runtime = remote.common.runtime.clone();
        remote.told.set_last(runtime.now());
        let draft = Draft::of(Vec::new()).expect("nothing fits in a frame");
        let frame = draft.seal(FrameKind::HeldUp, remote.method, remote.request, 0, Body::Buffers(Vec::new()));
        let memory = remote.common.memory.charge(&remote.key, frame.memory());
        let told = Answered { runtime, frame, expires: Moment::default(), memory, place: None, held: None };
        // On a connection that is gone nobody waits.
        let _ = remote.answers.put(told);
    }

    /// Returns when the caller does not wait any more: `deadline` after it began to, or after it was told last.
    pub(crate) async fn has_given_up(&self, runtime: &Runtime, deadline: Duration) {
        match &self.0 {
            Some(remote) => remote.told.rested(runtime, deadline).await,
            None => runtime.sleep(deadline).await,
        }
    }
}
