//! When the bytes of a request leave this process.
//!
//! A program writes faster than a slow link carries. The time that its requests spend in front of the link says nothing
//! about the peer, so it does not count against their deadlines as long as bytes leave. A frozen peer takes bytes until
//! the buffers of the kernels are full. Then none leaves, and the deadline runs.
//!
//! A peer that passes a request on may be held up by its own link. It says so from time to time.

use std::sync::Arc;
use std::time::Duration;

use ebb_runtime::{Moment, Runtime};
use ebb_types::deadlines::HELD_UP_MAX;
use parking_lot::Mutex;

/// The last moment at which bytes moved on a connection, in one direction. Cheap to clone; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Movement(Arc<Mutex<Moment>>);

impl Movement {
    pub fn set_last(&self, now: Moment) {
        *self.0.lock() = now;
    }

    /// Zero if nothing has moved yet.
    pub fn last(&self) -> Moment {
        *self.0.lock()
    }

    /// Returns when nothing has moved for `span`.
    pub async fn rested(&self, runtime: &Runtime, span: Duration) {
        let begun = runtime.now();
        when_due(runtime, || self.last().max(begun).after(span)).await;
    }
}

/// Returns at the moment that `due` names, which may move on meanwhile.
pub(crate) async fn when_due(runtime: &Runtime, due: impl Fn() -> Moment) {
    loop {
        let left = due().since(runtime.now());
        if left.is_zero() {
            return;
        }
        runtime.sleep(left).await;
    }
}

/// How far a request is on its way out of this process. Cheap to clone; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Departure(Arc<Mutex<Stage>>);

#[derive(Clone, Debug, Default)]
enum Stage {
    /// There is no connection yet.
    #[default]
    Before,
    /// Its last byte has not left.
    Queued { since: Moment, movement: Movement },
    /// Its last byte has left.
    Left { since: Moment, held_up: Duration },
}

impl Departure {
    /// How long the request has waited while bytes before its last one left, or while the peer said that it waits in its turn.
    #[must_use]
    pub fn held_up(&self) -> Duration {
        match &*self.0.lock() {
            Stage::Before => Duration::ZERO,
            Stage::Queued { since, movement } => movement.last().since(*since).min(HELD_UP_MAX),
            Stage::Left { held_up, .. } => *held_up,
        }
    }

    /// The request waits for its turn on a connection.
    pub(crate) fn queue(&self, since: Moment, movement: &Movement) {
        *self.0.lock() = Stage::Queued { since, movement: movement.clone() };
    }

    fn leave(&self) {
        let held_up = self.held_up();
        let mut stage = self.0.lock();
        if let Stage::Queued { since, .. } = *stage {
            *stage = Stage::Left { since, held_up };
        }
    }

    /// The peer says at `now` that what it waits for is held up.
    pub(crate) fn hear_held_up(&self, now: Moment) {
        if let Stage::Left { since, held_up } = &mut *self.0.lock() {
            *held_up = now.since(*since).min(HELD_UP_MAX);
        }
    }
}

/// Held while a request is written. Dropping it says that the last byte has left.
#[derive(Debug)]
pub(crate) struct Leaving(pub Departure);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::default().after(Duration::from_secs(seconds))
    }

    #[test]
    fn time_counts_as_held_up_until_the_last_byte_that_left_with_or_before_the_request() {
        let (departure, movement) = (Departure::default(), Movement::default());
        assert_eq!(departure.held_up(), Duration::ZERO);
        movement.set_last(at(5));
        departure.queue(at(10), &movement);
        assert_eq!(departure.held_up(), Duration::ZERO, "bytes left before it came, and none since");
        movement.set_last(at(13));
        assert_eq!(departure.held_up(), Duration::from_secs(3));
        drop(Leaving(departure.clone()));
        movement.set_last(at(20));
        assert_eq!(departure.held_up(), Duration::from_secs(3), "later bytes are of other requests");
        departure.hear_held_up(at(19));
        assert_eq!(departure.held_up(), Duration::from_secs(9), "the peer waits for a link");
    }

    #[test]
    fn a_peer_that_takes_a_byte_now_and_then_does_not_hold_a_request_for_ever() {
        let (departure, movement) = (Departure::default(), Movement::default());
        departure.queue(at(10), &movement);
        movement.set_last(at(1000));
        assert_eq!(departure.held_up(), HELD_UP_MAX);
    }
}
