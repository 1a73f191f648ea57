//! A service outside the cluster that speaks JSON: its address, and how its certificate is checked.

use std::path::PathBuf;
use std::time::Duration;

use ebb_runtime::Runtime;
use ebb_types::Result;
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::http::Http;
use crate::tls::Tls;
use crate::url::Url;

/// A service.
pub struct Web {
    runtime: Runtime,
    url: Url,
    ca_file: Option<PathBuf>,
    deadline: Duration,
    /// Made at the first call: the roots of trust are read from the disk.
    tls: OnceCell<Tls>,
}

impl Web {
    /// Each call to it may take `deadline`. `ca_file` has the roots of trust in place of the machine's.
    pub fn new(runtime: Runtime, url: Url, ca_file: Option<PathBuf>, deadline: Duration) -> Self {
        Self { runtime, url, ca_file, deadline, tls: OnceCell::new() }
    }

    /// Its address.
    #[must_use]
    pub const fn url(&self) -> &Url {
        &self.url
    }

    /// The answer of a resource below its address, in JSON. `path` begins with a slash.
    pub async fn get(&self, path: &str) -> Result<Value> {
        self.http().await?.get(&self.url.path_below(path)).await
    }

    /// The same for a change.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        self.http().await?.post(&self.url.path_below(path), body).await
    }

    /// A client of it. Fails if its roots of trust cannot be read.
    pub(crate) async fn http(&self) -> Result<Http> {
        let tls = match self.url.is_secure() {
            true => {
                let made = Tls::new(&self.runtime, self.url.name(), self.ca_file.as_deref());
                Some(self.tls.get_or_try_init(|| made).await?.clone())
            }
            false => None,
        };
        Ok(Http::of(self.runtime.clone(), &self.url, tls, self.deadline))
    }
}
