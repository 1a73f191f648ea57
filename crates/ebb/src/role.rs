//! The daemons: thin shells that read the cluster's directory, start a service and wait for the signal to end.

pub mod block;
pub mod master;
pub mod mount;
pub mod power_client;
pub mod power_manager;
pub mod proxy;
pub mod worker;

use ebb_types::{Error, Result};
use tokio::signal::unix::{SignalKind, signal};

/// Waits until this process is asked to end.
pub async fn wait_for_end() -> Result<&'static str> {
    let failed = |error: std::io::Error| Error::from_io(&error, "listening for signals");
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    Ok(tokio::select! {
        biased;
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    })
}
