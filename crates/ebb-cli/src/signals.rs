//! Signals that end a command: from a terminal (ctrl-C, hang-up) or another process.

use ebb_types::{Result, err};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens for SIGINT, SIGTERM and SIGHUP. From then on they do not end the process by themselves.
#[derive(Debug)]
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

/// A signal that asks the process to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndSignal(SignalKind);

impl Signals {
    /// Begins to listen.
    ///
    /// # Errors
    /// `Internal` if the system refuses.
    pub fn listen() -> Result<Self> {
        let listen = |kind| signal(kind).map_err(|error| err!(Internal, "listening for signals: {error}"));
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal.
    ///
    /// Cancel-safety: no signal is lost.
    pub async fn next(&mut self) -> EndSignal {
        tokio::select! {
            _ = self.interrupt.recv() => EndSignal(SignalKind::interrupt()),
            _ = self.terminate.recv() => EndSignal(SignalKind::terminate()),
            _ = self.hang_up.recv() => EndSignal(SignalKind::hangup()),
        }
    }
}

impl EndSignal {
    /// Ends the process with the exit code that shells expect: 128 and the signal's number.
    pub fn end_process(self) -> ! {
        std::process::exit(128 + self.0.as_raw_value())
    }
}
