//! The name of a client's request.

use std::ops::RangeInclusive;

use ebb_types::{RequestId, SessionId};
use ebb_wire::pb;

/// A request of a session. Ordered by session, then by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RequestName {
    /// The client's session.
    pub session: SessionId,
    /// Number of the request in the session.
    pub request: RequestId,
}

impl RequestName {
    /// The request of this number.
    #[must_use]
    pub fn new(session: SessionId, request: u64) -> Self {
        Self { session, request: RequestId::new(request) }
    }

    /// All requests of a session.
    #[must_use]
    pub fn all_of(session: SessionId) -> RangeInclusive<Self> {
        Self::new(session, 0)..=Self::new(session, u64::MAX)
    }

    /// The ticket of this request, for a message to a member.
    #[must_use]
    pub fn to_ticket(self) -> pb::Ticket {
        pb::Ticket { session: self.session.raw(), request: self.request.raw() }
    }
}
