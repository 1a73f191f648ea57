//! Calls to block servers that are never awake together with this client: by way of a proxy, which holds them.
//!
//! ```text
//!  call ──► RelayCall ──► (held) ... a node wakes ... (carried out, answer kept) ... this client wakes ──► answer
//!               └── no answer in time: sent again with the same number, which finds the call held, or its answer
//! ```
//! A relayed call is the call itself: it names versions and epochs as one that is sent directly does, and the member
//! judges it when it gets it. So it may be carried out twice, and a proxy that has forgotten it is simply asked anew.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ebb_rpc::Response;
use ebb_types::{Error, Result, SessionId, err};
use ebb_wire::pb::relay_call::Call as Held;
use ebb_wire::pb::relay_reply::Answer;
use ebb_wire::{Call, convert, pb};

use crate::shared::Shared;
use crate::shared_file::sharing::is_worth_repeating;

/// One attempt; the proxy holds the call all the same.
const ATTEMPT: Duration = Duration::from_secs(8);
/// Longest pause between attempts.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// To say that answers were taken.
const ACKNOWLEDGE_DEADLINE: Duration = Duration::from_secs(2);

/// A call that a proxy holds and relays: one that may be carried out any number of times.
pub(crate) trait Relayed: Call {
    /// As it is held.
    fn to_held(&self) -> Held;
    /// Its answer, if it is one.
    fn answer_of(answer: Answer) -> Option<Self::Reply>;
}

macro_rules! relayed {
    ($($case:ident = $message:ident;)*) => {
        $(impl Relayed for pb::$message {
            fn to_held(&self) -> Held {
                Held::$case(self.clone())
            }

            fn answer_of(answer: Answer) -> Option<Self::Reply> {
                match answer {
                    Answer::$case(reply) => Some(reply),
                    _ => None,
                }
            }
        })*
    };
}

relayed! {
    Read = ReadReplica;
    Seek = SeekReplica;
    Write = WriteReplica;
    Sync = SyncReplicas;
    Pull = PullReplica;
}

/// A member's answer by way of a proxy.
pub(crate) struct Relay<M> {
    /// Whose answer it is.
    pub node: u64,
    /// The answer.
    pub response: Response<M>,
}

/// Has a call carried out by whichever of `members` wakes first; waits for the answer for as long as an operation is
/// retried. `Unavailable` if no proxy is known.
pub(crate) async fn call<C: Relayed>(
    shared: &Arc<Shared>,
    members: &[pb::Member],
    call: &C,
    payload: Vec<Bytes>,
    expected: usize,
) -> Result<Relay<C::Reply>> {
    let session = shared.session.name().id;
    let request = shared.relays.once(session);
    let mut message = pb::RelayCall {
        session: session.raw(),
        request: request.number,
        acknowledged: 0,
        patience_ms: 0,
        members: members.to_vec(),
        call: Some(call.to_held()),
    };
    let (started, mut pause) = (shared.runtime.now(), Duration::from_millis(20));
    let answer = loop {
        let left = shared.session.deadline().saturating_sub(shared.runtime.now().since(started));
        message.acknowledged = request.acknowledged();
        message.patience_ms = u32::try_from(left.as_millis()).unwrap_or(u32::MAX);
        let sent = match shared.proxy() {
            Some(proxy) => {
                let channel = shared.connector.channel(&proxy.address);
                channel.call_sized(&message, payload.clone(), expected, ATTEMPT.min(left)).await
            }
            None => Err(err!(Unreachable, "no proxy is known that would hold calls to nodes that sleep")),
        };
        match sent {
            Ok(response) => break response,
            Err(error) if !is_worth_repeating(error.kind()) || left <= pause => {
                return Err(error.context("by way of the proxy"));
            }
            Err(error) => tracing::debug!(%error, "a relayed call is sent again"),
        }
        shared.check_open()?;
        shared.runtime.sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    };
    drop(request);
    acknowledge(shared, session);
    shared.metrics.relayed_calls.add(1);
    let reply = answer.message;
    convert::failure(reply.failure).map_err(|error: Error| error.context(format_args!("at n{}", reply.node)))?;
    let message = reply.answer.and_then(C::answer_of);
    let message = message.ok_or_else(|| err!(Protocol, "a proxy brought an answer to another call"))?;
    Ok(Relay { node: reply.node, response: Response { message, payload: answer.payload } })
}

/// The last answer taken is reported to the proxy at once; otherwise the next call reports it.
fn acknowledge(shared: &Arc<Shared>, session: SessionId) {
    let (Some(acknowledged), Some(proxy)) = (shared.relays.all_taken(), shared.proxy()) else { return };
    let message = pb::RelayCall { session: session.raw(), acknowledged, ..pb::RelayCall::default() };
    let own = Arc::clone(shared);
    shared.runtime.spawn("acknowledge relayed calls", async move {
        let answer = own.connector.channel(&proxy.address).call(&message, ACKNOWLEDGE_DEADLINE).await;
        if let Err(error) = answer {
            // It forgets them in time by itself.
            tracing::debug!(%error, "acknowledging relayed calls");
        }
    });
}
