//! The master: raft, leases, recovery, repair around the namespace.
