//! The client library: names, files, leases, caches and retries. The mount, the command line and the workers use it.
//!
//! [`Client`] is one session with the master. Namespace calls identify files by inode, as the kernel's calls do.
//! Opening a file returns a [`Handle`]. All handles of one inode share its lease and its caches. Every operation has a
//! deadline, and memory is bounded.
//!
//! The client is also the *lease holder* of the protocol. As lease holder:
//! - it orders the writes to a file and gives them versions;
//! - it keeps each write until every member of the set has synced it;
//! - it replaces members that fail;
//! - it commits synced writes to the master in the background.
//!
//! What it never does:
//! - decide where data lies;
//! - return a byte that is neither its own nor covered by a lease;
//! - trust a lease for longer than the master does.
//!
//! | folder | contents |
//! |---|---|
//! | `types`, `options`, `client`, `handles`, `waits` | the interface; open files; the reasons for waits |
//! | `inode`, `shared`, `plan` | the state of one file; the state that all parts share; small decisions |
//! | `session` | the session with the master: calls, the long poll, the time until which the session is trusted |
//! | `lease` | what is held of a file (`hold`); taking leases and giving them back: recalled, returned unasked, in batches |
//! | `names` | names and attributes: fetched, cached, shown; file locks |
//! | `write` | dirty bytes, channels to members, flush, commit, repair, sizes |
//! | `read` | clean bytes, fetches, prefetch, second requests, short-circuit reads |
//! | `shared_file` | files that several sessions write: operations through the proxy, direct writes |
//! | `power` | nodes that sleep: waits, calls through a proxy, the inspection calls for programs |
//! | `nodes` | the nodes, and which of them are silent or slow |
//!
//! These modules are pure, with plain values as input and output: `write::{extents, outgoing, channel}`,
//! `read::{gather, cache, hedge, hopeless, line, prefetch, spare}`, `nodes::silence`, `lease::hold`, `shared_file::sharing`,
//! `plan`.
//!
//! Reading order: the interface, `inode`, `session`, `lease`, `write`, `read`, then the others.
#![forbid(unsafe_code)]

mod client;
mod handles;
mod inode;
mod lease;
mod metrics;
mod names;
mod nodes;
mod options;
mod plan;
mod power;
mod read;
mod served;
mod session;
mod shared;
mod shared_file;
mod takeover;
#[cfg(test)]
mod tests;
mod types;
mod waits;
mod write;

pub use client::Client;
pub use metrics::Metrics;
pub use options::{ClientOptions, Sizes, Unit};
pub use power::deliver;
pub use power::inspect::{BlinkState, BlockInfo, ServerLoad};
pub use types::{
    Access, Advice, Allocate, CacheGuard, CacheListener, CopyRange, Created, DirEntry, DirPage, EntryDetail, Handle,
    IfExists, IfLocked, KnownMap, Location, Lock, LockKind, LockSort, NewFile, NewName, Privileges, Rename, RenameMode,
    Seek, SetAttr, SetTime, StatFs, Summary, UnnamedFile, WriteAt, XattrMode,
};
pub use waits::{Wait, Waits};
