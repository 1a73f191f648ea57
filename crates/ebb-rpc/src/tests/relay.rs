//! A relay between caller and server that can freeze, slow down, cut and count.

use std::sync::Arc;
use std::time::Duration;

use ebb_runtime::{ReadHalf, Runtime, WriteHalf};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Mode {
    Pass,
    Frozen,
}

/// Bytes that are passed on at a time.
const PIECE: usize = 64 << 10;

pub struct Relay {
    pub address: String,
    mode: Arc<watch::Sender<Mode>>,
    /// After each [`PIECE`] towards the server.
    pause: Arc<watch::Sender<Duration>>,
    /// Bytes that each connection may still carry towards the caller before it is cut.
    allowance: Arc<watch::Sender<u64>>,
    /// Connections accepted so far.
    pub accepted: Arc<watch::Sender<usize>>,
}

impl Relay {
    pub async fn start(runtime: &Runtime, target: &str) -> Self {
        let listener = runtime.listen("127.0.0.1:0").await.unwrap();
        let relay = Self {
            address: listener.address(),
            mode: Arc::new(watch::Sender::new(Mode::Pass)),
            pause: Arc::default(),
            allowance: Arc::new(watch::Sender::new(u64::MAX)),
            accepted: Arc::new(watch::Sender::new(0)),
        };
        let (mode, allowance, accepted) = (relay.mode.clone(), relay.allowance.clone(), relay.accepted.clone());
        let pause = relay.pause.clone();
        let (runtime, target) = (runtime.clone(), target.to_owned());
        runtime.clone().spawn("relay", async move {
            while let Ok(near) = listener.accept().await {
                accepted.send_modify(|count| *count += 1);
                // The kernel of a frozen process accepts for it, and the process does not read: the relay does the
                // same.
                let (runtime, target, mode) = (runtime.clone(), target.clone(), mode.clone());
                let (allowed, pause) = (*allowance.borrow(), (runtime.clone(), *pause.borrow()));
                runtime.clone().spawn("relayed", async move {
                    passing(&mode).await;
                    let Ok(far) = runtime.connect(&target).await else { return };
                    let down = pump(far.read, near.write, mode.clone(), (runtime.clone(), Duration::ZERO), allowed);
                    let up = pump(near.read, far.write, mode, pause, u64::MAX);
                    tokio::select! {
                        biased;
                        () = up => {}
                        () = down => {}
                    }
                });
            }
        });
        relay
    }

    pub fn freeze(&self) {
        self.mode.send_replace(Mode::Frozen);
    }

    pub fn thaw(&self) {
        self.mode.send_replace(Mode::Pass);
    }

    /// Connections made from now on carry about so much towards the server.
    pub fn slow_down(&self, bytes_per_sec: usize) {
        self.pause.send_replace(Duration::from_secs(1) * PIECE as u32 / bytes_per_sec as u32);
    }

    /// Connections made from now on carry this many bytes towards the caller, and are then cut.
    pub fn allow(&self, bytes: u64) {
        self.allowance.send_replace(bytes);
    }
}

async fn passing(mode: &watch::Sender<Mode>) {
    let _ = mode.subscribe().wait_for(|mode| *mode == Mode::Pass).await;
}

async fn pump(
    mut read: ReadHalf,
    mut write: WriteHalf,
    mode: Arc<watch::Sender<Mode>>,
    (runtime, pause): (Runtime, Duration),
    mut allowed: u64,
) {
    let mut buffer = vec![0; PIECE];
    while allowed > 0 {
        let Ok(count) = read.read(&mut buffer).await else { return };
        if count == 0 {
            return;
        }
        passing(&mode).await;
        let count = (count as u64).min(allowed) as usize;
        if write.write_all(&buffer[..count]).await.is_err() {
            return;
        }
        allowed -= count as u64;
        if !pause.is_zero() {
            runtime.sleep(pause * count as u32 / PIECE as u32).await;
        }
    }
}
