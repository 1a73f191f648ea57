//! What a running process proves itself with, and whom it does not believe.

use std::sync::Arc;
use std::time::Duration;

use ebb_runtime::Runtime;
use ebb_types::{Result, bail};
use parking_lot::RwLock;

use crate::certified_key::CertifiedKey;
use crate::revocations::Revocations;
use crate::subject::Subject;
use crate::tls::{Settings, Wire};

/// Pause between two looks for another key.
const RELOAD: Duration = Duration::from_secs(3600);

/// A process's certified key, which is replaced while it runs, and the revocations that it knows. Cheap to clone: all
/// clones are one.
#[derive(Clone)]
pub struct Holder(Arc<Shared>);

struct Shared {
    runtime: Runtime,
    wire: Wire,
    subject: Subject,
    keep: Option<Box<Keep>>,
    now: RwLock<Now>,
}

/// Keeps a renewed key for the next start of the process.
type Keep = dyn Fn(&CertifiedKey) -> Result<()> + Send + Sync;

struct Now {
    key: Arc<CertifiedKey>,
    settings: Settings,
    revocations: Arc<Revocations>,
}

impl Holder {
    /// Holds `key`.
    ///
    /// # Errors
    /// `Invalid` if key and certificate do not belong together.
    pub fn new(runtime: Runtime, key: CertifiedKey, wire: Wire) -> Result<Self> {
        Self::with_keep(runtime, key, wire, None)
    }

    /// As [`Self::new`]. `keep` keeps each renewed key, before it is used.
    ///
    /// # Errors
    /// As there.
    pub fn kept_by(
        runtime: Runtime,
        key: CertifiedKey,
        wire: Wire,
        keep: impl Fn(&CertifiedKey) -> Result<()> + Send + Sync + 'static,
    ) -> Result<Self> {
        Self::with_keep(runtime, key, wire, Some(Box::new(keep)))
    }

    fn with_keep(runtime: Runtime, key: CertifiedKey, wire: Wire, keep: Option<Box<Keep>>) -> Result<Self> {
        let settings = Settings::new(&key, wire, &runtime)?;
        let subject = key.subject().clone();
        let now = Now { key: Arc::new(key), settings, revocations: Arc::default() };
        Ok(Self(Arc::new(Shared { runtime, wire, subject, keep, now: RwLock::new(now) })))
    }

    /// Whether a renewed key outlives this process.
    #[must_use]
    pub fn can_keep(&self) -> bool {
        self.0.keep.is_some()
    }

    /// Keeps a key that a master certified anew, and takes it from the next connection on.
    ///
    /// # Errors
    /// `Invalid` if it is of another subject; that of the disk.
    pub fn replace(&self, key: CertifiedKey) -> Result<()> {
        if let Some(keep) = self.0.keep.as_ref().filter(|_| key.subject() == self.subject()) {
            keep(&key)?;
        }
        self.renew(key)
    }

    /// Who it proves to be; never changes.
    #[must_use]
    pub fn subject(&self) -> &Subject {
        &self.0.subject
    }

    /// The present key.
    #[must_use]
    pub fn key(&self) -> Arc<CertifiedKey> {
        self.0.now.read().key.clone()
    }

    /// The settings of the next connection.
    #[must_use]
    pub fn settings(&self) -> Settings {
        self.0.now.read().settings.clone()
    }

    /// What follows the handshake on its connections.
    #[must_use]
    pub fn wire(&self) -> Wire {
        self.0.wire
    }

    /// Takes another key from the next connection on.
    ///
    /// # Errors
    /// `Invalid` if it is of another subject.
    pub fn renew(&self, key: CertifiedKey) -> Result<()> {
        if key.subject() != self.subject() {
            bail!(Invalid, "the certificate is of {}, this process is {}", key.subject(), self.subject());
        }
        let settings = Settings::new(&key, self.0.wire, &self.0.runtime)?;
        let mut now = self.0.now.write();
        (now.key, now.settings) = (Arc::new(key), settings);
        Ok(())
    }

    /// Takes the key that `reload` returns, whenever it is another one. Asks every hour while the process runs.
    pub fn follow(&self, reload: impl Fn() -> Result<CertifiedKey> + Send + 'static) {
        let (holder, runtime) = (self.clone(), self.0.runtime.clone());
        self.0.runtime.spawn("certificate", async move {
            loop {
                runtime.sleep(RELOAD).await;
                let renewed = reload().and_then(|key| {
                    let is_new = key.serial() != holder.key().serial();
                    if is_new { holder.renew(key).map(|()| true) } else { Ok(false) }
                });
                match renewed {
                    Ok(true) => tracing::info!(subject = %holder.subject(), "the certificate was renewed"),
                    Ok(false) => {}
                    Err(error) => tracing::warn!(%error, "the certificate is not renewed"),
                }
            }
        });
    }

    /// The revocations that it knows.
    #[must_use]
    pub fn revocations(&self) -> Arc<Revocations> {
        self.0.now.read().revocations.clone()
    }

    /// Learns revocations; an older list than the known one changes nothing.
    pub fn learn(&self, revocations: Revocations) {
        let mut now = self.0.now.write();
        if revocations.version > now.revocations.version {
            now.revocations = Arc::new(revocations);
        }
    }
}

impl std::fmt::Debug for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Holder({})", self.0.subject)
    }
}

#[cfg(test)]
mod tests {
    use ebb_runtime::virt::{World, WorldOptions};
    use ebb_types::{ClusterId, HostName, Role, WallTime};

    use super::*;
    use crate::Authority;

    const LIFETIME: Duration = Duration::from_secs(9 * 24 * 3600);

    #[test]
    fn a_key_that_was_certified_anew_is_taken_and_another_ones_is_not() {
        World::run(1, WorldOptions::default(), async |world| {
            let runtime = world.process("h1").runtime();
            let cluster = ClusterId::new(7);
            let block = Subject::process(cluster, Role::Block, HostName::new("h1"));
            let authority = Arc::new(Authority::create(cluster, runtime.wall()).unwrap());
            let issue = |subject: &Subject, now: WallTime| authority.issue(subject, now, LIFETIME).unwrap();
            let first = issue(&block, runtime.wall());
            let old = first.serial().to_vec();
            let holder = Holder::new(runtime.clone(), first, Wire::Encrypted).unwrap();
            let found = Arc::new(RwLock::new(issue(&Subject { role: Role::Master, ..block.clone() }, runtime.wall())));
            let file = Arc::clone(&found);
            holder.follow(move || CertifiedKey::from_pem(file.read().to_pem()));
            runtime.sleep(2 * RELOAD).await;
            assert_eq!(holder.key().serial(), old, "another one's");
            *found.write() = issue(&block, runtime.wall());
            runtime.sleep(2 * RELOAD).await;
            assert_eq!(holder.key().serial(), found.read().serial());
        });
    }
}
