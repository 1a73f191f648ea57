//! What programs use of Ebb: names, files, leases, caches and retries, below the mount, the command line and workers.
//!
//! [`Client`] is a session with the master. Namespace calls go by inode, as the kernel's do. Files are opened to a
//! [`Handle`]; all handles of one inode share its lease and caches. Everything has a deadline and bounded memory.
//!
//! The client is also the *lease holder* of the protocol: it orders the writes to a file, gives them versions, keeps
//! each until every member of its set has synced it, replaces members that fail, and tells the master in the
//! background what is synced. It never decides where data lies, never shows a byte that is not its own or vouched for
//! by a lease, and never believes a lease longer than the master does.
//!
//! Reading order:
//! 1. `types`, `options`, `client`: the interface.
//! 2. Pure parts, plain values in and out: `extents` (dirty bytes), `gather` (layers of bytes), `cache` (clean bytes),
//!    `outgoing` and `channel` (a metablock's writes and members), `hedge`, `silence`, `prefetch` and `spare` (what is
//!    fetched before it is asked for), `plan` (other decisions), `sticky`.
//! 3. `inode` and `attributes` (what is known of one file), `known` (names and attributes that may be kept), `shared` (what all share).
//! 4. The session: `masters`, `session`, `poll`, `witness`, `lease`, `recall`.
//! 5. Writing: `write`, `drive`, `members`, `repair`, `flush`, `drain` (what may wait for members that sleep), `committer`, `returns`, `idle` and `batch` (what goes back unasked), `resize`, `allocate`.
//! 6. Files that several sessions write: `sharing` (what is known of them), `proxied` (operations by way of the proxy),
//!    `pinned` (what the proxy itself needs).
//!    Nodes that are never awake when this client is: `relay` (what it asks a proxy to do), [`deliver`] (what the proxy does).
//! 7. Reading: `read`, `fetch`, `extras` (what is read most, and its extra copies), `short` (files of servers on this host). Names: `kept`, `seen`, `names`. Power and load, for
//!    programs: `inspect`. The rest: `handles`, `locks`, `nodes`, `budget`, `metrics`, `served`.
#![forbid(unsafe_code)]

mod allocate;
mod attributes;
mod batch;
mod budget;
mod cache;
mod channel;
mod client;
mod committer;
pub mod deliver;
mod direct;
mod drain;
mod drive;
mod extents;
mod extras;
mod fetch;
mod flush;
mod gather;
mod gray;
mod handles;
mod handoff;
mod hedge;
mod hopeless;
mod idle;
mod inode;
mod inspect;
mod kept;
mod known;
mod lease;
mod locks;
mod masters;
mod members;
mod metrics;
mod names;
mod nodes;
mod options;
mod outgoing;
mod pinned;
mod plan;
mod poll;
mod power;
mod prefetch;
mod proxied;
mod put;
mod read;
mod recall;
mod relay;
mod repair;
mod resize;
mod rest;
mod returns;
mod seen;
mod served;
mod session;
mod shared;
mod sharing;
mod short;
mod silence;
mod spare;
mod sticky;
mod suspend;
#[cfg(test)]
mod tests;
mod types;
mod witness;
mod write;

pub use client::Client;
pub use inspect::{BlinkState, BlockInfo, ServerLoad};
pub use metrics::Metrics;
pub use options::{ClientOptions, Unit};
pub use power::HostPower;
pub use types::{Access, Allocate, CacheGuard, CacheListener, Handle, Location, Privileges, SetAttr, SetTime};
