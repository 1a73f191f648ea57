//! A proxy in another service's process. It starts when the master answers, and ends in good order.

use std::sync::Arc;
use std::time::Duration;

use ebb_runtime::{Runtime, Task};
use ebb_types::Result;
use parking_lot::Mutex;

use crate::options::ProxyOptions;
use crate::proxy::Proxy;

/// Pause between attempts to start.
const PAUSE: Duration = Duration::from_secs(1);

/// A proxy that runs, or is about to. Without it, files stay exclusive. So its host need not wait for it.
#[derive(Debug)]
pub struct Hosted {
    starting: Task<()>,
    proxy: Arc<Mutex<Option<Proxy>>>,
}

impl Hosted {
    /// Starts a proxy, with as many attempts as needed.
    #[must_use]
    pub fn start(runtime: &Runtime, options: ProxyOptions) -> Self {
        let proxy = Arc::new(Mutex::new(None));
        let (own, place) = (runtime.clone(), Arc::clone(&proxy));
        let starting = runtime.spawn("start a proxy", async move {
            loop {
                match Proxy::start(own.clone(), options.clone()).await {
                    Ok(started) => {
                        *place.lock() = Some(started);
                        return;
                    }
                    Err(error) => tracing::warn!(%error, "the proxy is not started yet"),
                }
                own.sleep(PAUSE).await;
            }
        });
        Self { starting, proxy }
    }

    /// Stops the proxy. It gives back everything that it holds.
    pub async fn stop(self) -> Result<()> {
        self.starting.abort();
        let proxy = self.proxy.lock().take();
        match proxy {
            Some(proxy) => proxy.stop().await,
            None => Ok(()),
        }
    }
}
