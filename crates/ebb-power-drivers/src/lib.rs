//! Power drivers: each switches the nodes of one kind of machine. Three modules ask for the supply instead: [`nut`] a
//! UPS, [`carbon`] a service that publishes carbon intensities, and [`openadr`] a grid operator's server of events. [`Web`] calls any
//! other service that speaks JSON.
//!
//! What never happens here:
//! - a signal to a process that has the reused process id of an ended one;
//! - a call without a deadline;
//! - a password on a command line;
//! - TLS without a check of the certificate;
//! - a request to sleep to a host that cannot wake by itself.
//!
//! The plan says when a node is powered, and a [`PowerDriver`] carries it out. The drivers are:
//! - [`freeze`] freezes the processes that stand for a node, in a development cluster.
//! - [`suspend`] suspends the host, with an alarm to wake it.
//! - [`redfish`] and [`ipmi`] call a baseboard management controller.
//! - [`dry_run`] only records the requests.
//!
//! Nothing here decides when: `ebb_power` decides, and the power client (`ebb-power-manager`) calls the driver.
//!
//! Network and time go through `ebb_runtime`. `host.rs` and [`ipmi`] use this machine's processes, sysfs and ipmitool
//! directly, and `tls.rs` this machine's roots of trust and the generator of its library. In the virtual world, the world itself freezes nodes.
//!
//! Reading order: [`PowerDriver`], [`freeze`], `host.rs`, [`suspend`], [`ipmi`], `http.rs`, [`redfish`],
//! [`nut`]; then `url.rs`, `tls.rs`, `web.rs`, [`carbon`], [`openadr`].
#![forbid(unsafe_code)]

use std::future::Future;
use std::pin::Pin;

use ebb_types::{NodeId, Result};

pub mod carbon;
pub mod dry_run;
pub mod freeze;
#[doc(hidden)]
pub mod fuzz;
mod host;
mod http;
pub mod ipmi;
pub mod nut;
pub mod openadr;
pub mod redfish;
mod secret;
pub mod suspend;
#[cfg(test)]
mod testing;
mod tls;
mod url;
mod web;

pub use dry_run::DryRun;
pub use freeze::Freeze;
pub use host::Process;
pub use ipmi::Ipmi;
pub use redfish::Redfish;
pub use suspend::Suspend;
pub use url::Url;
pub use web::Web;

/// A future of a driver.
pub type Work<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Whether a node is powered, as far as its driver knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Powered {
    /// It runs.
    On,
    /// It sleeps, or is off.
    Off,
    /// On its way from one to the other.
    Changing,
    /// There is nothing left to switch: its processes are gone.
    Gone,
}

/// Carries a plan out on nodes. Each call returns when the node is in the wanted state, or fails; it is no error if the
/// node is in that state already.
///
/// Cancel-safety: a request that was sent to a node stays sent; ask for its state.
pub trait PowerDriver: Send + Sync {
    /// Its name in settings: `freeze`, `suspend`, `redfish`, `ipmi`, `dry-run`.
    fn name(&self) -> &'static str;

    /// Lets a node sleep. `wake_ms` is when the plan wakes it, in milliseconds since the Unix epoch; none: until it is
    /// woken by a call. A host that wakes itself needs it.
    fn sleep(&self, node: NodeId, wake_ms: Option<u64>) -> Work<'_, Result<()>>;

    /// Wakes a node.
    fn wake(&self, node: NodeId) -> Work<'_, Result<()>>;

    /// The state of a node.
    fn powered(&self, node: NodeId) -> Work<'_, Result<Powered>>;
}
