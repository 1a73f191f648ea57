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
//! | folder | what is in it |
//! |---|---|
//! | `types`, `options`, `client`, `handles` | the interface; open files |
//! | `inode`, `shared`, `plan` | what is known of one file; what all parts share; small decisions |
//! | `session` | the session with the master: calls, the long poll, the moments when it is believed |
//! | `lease` | taking leases, and their way back: recalled, returned unasked, in batches |
//! | `names` | names and attributes: asked, kept, shown; file locks |
//! | `write` | dirty bytes, channels to members, flush, commit, repair, sizes |
//! | `read` | clean bytes, fetches, prefetch, second requests, short-circuit reads |
//! | `shared_file` | files that several sessions write: operations by way of the proxy, direct writes |
//! | `power` | nodes that sleep: waits, calls by way of a proxy, what programs may ask |
//! | `nodes` | the nodes, and which of them are silent or slow |
//!
//! Pure parts, which take values and give values: `write::{extents, outgoing, channel}`, `read::{gather, cache, hedge, hopeless,
//! prefetch, spare}`, `nodes::silence`, `shared_file::sharing`, `plan`.
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
#[cfg(test)]
mod tests;
mod types;
mod write;

pub use client::Client;
pub use metrics::Metrics;
pub use options::{ClientOptions, Unit};
pub use power::inspect::{BlinkState, BlockInfo, ServerLoad};
pub use power::{HostPower, deliver};
pub use types::{Access, Allocate, CacheGuard, CacheListener, Handle, Location, Privileges, SetAttr, SetTime};
