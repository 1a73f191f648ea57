//! The answer to one request, on its way from the service to the connection.

use std::any::Any;
use std::sync::Arc;

use bytes::Bytes;
use ebb_runtime::{Moment, Runtime};
use ebb_types::{Error, Result, err};
use ebb_wire::{FrameKind, Message, pb};
use tokio::sync::OwnedSemaphorePermit;

use crate::budget::{PeerKey, Share};
use crate::counters::Link;
use crate::outbox::{Outbox, Outgoing};
use crate::served::Common;
use crate::server::{Answer, Payload};
use crate::writer::{Body, Draft, Frame, check_payload_len};

/// Longest sentence in a failure.
const DETAIL_LEN_MAX: usize = 4096;

/// The duty to answer a request: if the task that has it ends without doing so, the caller hears that, too.
pub(crate) struct Reply {
    pub common: Arc<Common>,
    pub answers: Outbox<Answered>,
    pub key: PeerKey,
    pub link: Link,
    pub method: u16,
    pub request: u64,
    pub expires: Moment,
    /// Taken when the answer is queued.
    pub place: Option<OwnedSemaphorePermit>,
    /// The service has got the request.
    pub is_begun: bool,
}

impl Reply {
    pub fn send(mut self, answer: Result<Answer>) {
        self.queue(answer);
    }

    fn queue(&mut self, mut answer: Result<Answer>) {
        let Some(place) = self.place.take() else { return };
        let held = answer.as_mut().ok().and_then(|answer| answer.held.take());
        let frame = match answer.and_then(|answer| self.reply_frame(answer)) {
            Ok(frame) => frame,
            Err(error) => failure_frame(self.method, self.request, &error),
        };
        self.link.count_call();
        let memory = self.common.memory.charge(&self.key, frame.memory());
        // A connection that is gone needs no answer.
        let runtime = self.common.runtime.clone();
        let _ = self.answers.put(Answered { runtime, frame, expires: self.expires, memory, place: Some(place), held });
    }

    fn reply_frame(&self, answer: Answer) -> Result<Frame> {
        let body = match answer.payload {
            Payload::Empty => Body::Buffers(Vec::new()),
            Payload::Buffers(buffers) => Body::Buffers(buffers),
            Payload::Files(ranges) => Body::Files(ranges),
        };
        check_payload_len(body.len()).map_err(|error| err!(Internal, "answer: {error}"))?;
        let draft = Draft::of(answer.message).map_err(|error| err!(Internal, "answer: {error}"))?;
        Ok(draft.seal(FrameKind::Reply, self.method, self.request, 0, body))
    }
}

pub(crate) fn failure_frame(method: u16, request: u64, error: &Error) -> Frame {
    let mut failure = pb::Failure::from(error);
    failure.detail.truncate(failure.detail.floor_char_boundary(DETAIL_LEN_MAX));
    let draft = Draft::of(failure.encode_to_vec()).expect("a short sentence fits in a frame");
    draft.seal(FrameKind::Failure, method, request, 0, Body::Buffers(Vec::<Bytes>::new()))
}

impl Drop for Reply {
    fn drop(&mut self) {
        let error = if self.is_begun {
            err!(Internal, "the request was dropped without an answer: see the server's log")
        } else {
            err!(ShuttingDown, "this server ends, and did not begin the request")
        };
        self.queue(Err(error));
    }
}

/// An answer, or what is told before it, on its way out. An answer holds its request's place until it has been written or
/// dropped.
pub(crate) struct Answered {
    pub runtime: Runtime,
    pub frame: Frame,
    /// After this the caller does not wait for it.
    pub expires: Moment,
    pub memory: Share<PeerKey>,
    pub place: Option<OwnedSemaphorePermit>,
    /// What the service wants to keep until then.
    pub held: Option<Arc<dyn Any + Send + Sync>>,
}

impl Outgoing for Answered {
    type Resources = (Share<PeerKey>, Option<OwnedSemaphorePermit>, Option<Arc<dyn Any + Send + Sync>>);

    fn len(&self) -> u64 {
        self.frame.len()
    }

    fn unpack(self) -> Option<(Frame, Self::Resources)> {
        // The caller does not wait any more for a big answer that is late. Something is sent in any case. It shows the
        // caller that this server lives, and a request without an answer would count as not begun when the server ends.
        let is_wanted = self.frame.is_small() || self.expires >= self.runtime.now();
        let frame = if is_wanted {
            self.frame
        } else {
            let late = err!(Timeout, "done, and too late to be sent");
            failure_frame(self.frame.method(), self.frame.request(), &late)
        };
        Some((frame, (self.memory, self.place, self.held)))
    }
}
