//! Calls to peers.

use std::time::Duration;

use bytes::Bytes;
use ebb_runtime::Runtime;
use ebb_types::Result;
use ebb_wire::Call;

use crate::{Counters, Identity};

/// A good answer.
#[derive(Clone, Debug)]
pub struct Response<M> {
    /// The message.
    pub message: M,
    /// Raw bytes beside it.
    pub payload: Bytes,
}

/// Connections of this process to its peers, one (or a few) for each address, made when needed. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Connector {}

impl Connector {
    /// A connector that presents `identity`.
    #[must_use]
    pub fn new(_runtime: Runtime, _identity: Identity, _counters: Counters) -> Self {
        unreachable!()
    }

    /// The channel to `address`; connects at the first call and again after a break.
    #[must_use]
    pub fn channel(&self, _address: &str) -> Channel {
        unreachable!()
    }

    /// What its connections carried.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        unreachable!()
    }
}

/// Calls to one peer. Cheap to clone; calls run side by side.
#[derive(Clone, Debug)]
pub struct Channel {}

impl Channel {
    /// Where it leads.
    #[must_use]
    pub fn address(&self) -> &str {
        unreachable!()
    }

    /// Sends a request and waits for its answer for at most `deadline`. Dropping the future forgets the call.
    pub async fn call<C: Call>(&self, _message: &C, _deadline: Duration) -> Result<C::Reply> {
        unreachable!()
    }

    /// The same with raw bytes on the way there, back, or both. The buffers go out one after the other, uncopied.
    pub async fn call_with<C: Call>(
        &self,
        _message: &C,
        _payload: Vec<Bytes>,
        _deadline: Duration,
    ) -> Result<Response<C::Reply>> {
        unreachable!()
    }
}
