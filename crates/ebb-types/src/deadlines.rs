//! The order of deadlines: a set changes long before an operation gives up (docs/protocol.md, Fewer members).
//!
//! Master, clients and proxies each wait for a part of one write's way. When any of these times changes, the assertions
//! below check the order: a silent member is found and its set changed before a program gets an error.

use std::time::Duration;

/// A node that was not heard for so long counts as late: nothing new goes there.
pub const SUSPECT_TIME: Duration = Duration::from_secs(3);

/// Time for a connection and its handshake. A node to which none is made for so long is as silent as one that is late.
pub const DIAL_TIMEOUT: Duration = SUSPECT_TIME;

/// How long a call waits for a node that is late.
pub const LATE_WAIT: Duration = Duration::from_secs(1);

/// A write or sync of a member that answers at all answers within this.
pub const WRITE_DEADLINE: Duration = Duration::from_secs(4);

/// So much time in front of slow links does not count against a call's deadline, while bytes move there.
pub const HELD_UP_MAX: Duration = Duration::from_secs(12);

/// A client that has asked for a replacement in vain asks again after this.
pub const REPLACE_PAUSE: Duration = Duration::from_millis(400);

/// A question to the master for a volume.
pub const CHOOSE_DEADLINE: Duration = Duration::from_secs(3);

/// Copying a metablock to a new member while writers wait, where the set may go on without it.
pub const PULL_DEADLINE: Duration = Duration::from_secs(10);

/// The same where it may not: it is this member, or none.
pub const PULL_DEADLINE_LAST: Duration = Duration::from_secs(20);

/// From a member's silence until a write that waits for it goes on without it: the promise.
pub const GOES_ON_WITHIN: Duration = Duration::from_secs(5);

/// One attempt of an operation by way of a proxy.
pub const SHARED_ATTEMPT: Duration = Duration::from_secs(8);

/// How long an operation is retried before it fails.
pub const OPERATION_DEADLINE: Duration = Duration::from_secs(30);

/// A node that was not heard for so long is dead, and its replicas are made again elsewhere.
pub const DEAD_TIME: Duration = Duration::from_secs(30);

const fn is_before(one: Duration, other: Duration) -> bool {
    one.as_nanos() < other.as_nanos()
}

const fn sum(spans: [Duration; 3]) -> Duration {
    Duration::from_nanos((spans[0].as_nanos() + spans[1].as_nanos() + spans[2].as_nanos()) as u64)
}

// A silent member is found out by its lateness or by a call's deadline, and the master is asked once more if it was asked too
// early.
const _: () = assert!(is_before(sum([SUSPECT_TIME, LATE_WAIT, REPLACE_PAUSE]), GOES_ON_WITHIN));
const _: () = assert!(is_before(sum([WRITE_DEADLINE, REPLACE_PAUSE, REPLACE_PAUSE]), GOES_ON_WITHIN));
// By the time that a call's deadline has found a member silent the master misses the node, too, if it is silent to all. A
// connection that is not made may find it a little earlier: the master is asked once more then.
const _: () = assert!(is_before(SUSPECT_TIME, WRITE_DEADLINE));
// A proxy's file has changed its set before the attempt of the operation's sender is over.
const _: () = assert!(is_before(GOES_ON_WITHIN, SHARED_ATTEMPT));
// A copy that does not come about is given up, and the set goes on without it, before the operation fails.
const _: () = assert!(is_before(sum([GOES_ON_WITHIN, PULL_DEADLINE, CHOOSE_DEADLINE]), OPERATION_DEADLINE));
const _: () = assert!(is_before(sum([GOES_ON_WITHIN, PULL_DEADLINE_LAST, CHOOSE_DEADLINE]), OPERATION_DEADLINE));
// The same for a member behind a link that is too slow for what is written.
const _: () = assert!(is_before(sum([HELD_UP_MAX, WRITE_DEADLINE, PULL_DEADLINE]), OPERATION_DEADLINE));
// No operation waits until a node is dead.
const _: () = assert!(is_before(GOES_ON_WITHIN, DEAD_TIME));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_changes_several_times_before_an_operation_fails() {
        assert!(OPERATION_DEADLINE >= GOES_ON_WITHIN * 3);
        assert!(OPERATION_DEADLINE >= SHARED_ATTEMPT * 3, "an attempt that failed is made again");
    }
}
