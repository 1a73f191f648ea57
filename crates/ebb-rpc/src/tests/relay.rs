//! A relay between caller and server that can freeze, cut and count.

use std::sync::Arc;

use ebb_runtime::{ReadHalf, Runtime, WriteHalf};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Mode {
    Pass,
    Frozen,
}

pub struct Relay {
    pub address: String,
    mode: Arc<watch::Sender<Mode>>,
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
            allowance: Arc::new(watch::Sender::new(u64::MAX)),
            accepted: Arc::new(watch::Sender::new(0)),
        };
        let (mode, allowance, accepted) = (relay.mode.clone(), relay.allowance.clone(), relay.accepted.clone());
        let (runtime, target) = (runtime.clone(), target.to_owned());
        runtime.clone().spawn("relay", async move {
            while let Ok(near) = listener.accept().await {
                accepted.send_modify(|count| *count += 1);
                // The kernel of a frozen process accepts for it, and the process does not read: the relay does the
                // same.
                let (runtime, target, mode) = (runtime.clone(), target.clone(), mode.clone());
                let allowed = *allowance.borrow();
                runtime.clone().spawn("relayed", async move {
                    passing(&mode).await;
                    let Ok(far) = runtime.connect(&target).await else { return };
                    let up = pump(near.read, far.write, mode.clone(), u64::MAX);
                    let down = pump(far.read, near.write, mode, allowed);
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

    /// Connections made from now on carry this many bytes towards the caller, and are then cut.
    pub fn allow(&self, bytes: u64) {
        self.allowance.send_replace(bytes);
    }
}

async fn passing(mode: &watch::Sender<Mode>) {
    let _ = mode.subscribe().wait_for(|mode| *mode == Mode::Pass).await;
}

async fn pump(mut read: ReadHalf, mut write: WriteHalf, mode: Arc<watch::Sender<Mode>>, mut allowed: u64) {
    let mut buffer = vec![0; 64 << 10];
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
    }
}
