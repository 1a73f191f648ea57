//! TLS to a service, with a certificate that is always checked.
//!
//! The roots of trust are those of the machine, or those of a file that the operator names. `rustls-native-certs` reads
//! the machine's from its files directly. The time by which a certificate is checked is the runtime's.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ebb_runtime::Runtime;
use ebb_types::{Result, bail, err};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::time_provider::TimeProvider;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use crate::secret::read_small;

/// Most certificates of a file of roots.
const ROOTS_MAX: usize = 1_000;

/// Makes connections to one server secure.
#[derive(Clone)]
pub(crate) struct Tls {
    pub connector: TlsConnector,
    pub name: ServerName<'static>,
}

/// The runtime's wall clock.
#[derive(Debug)]
struct Wall(Runtime);

impl TimeProvider for Wall {
    fn current_time(&self) -> Option<UnixTime> {
        let ns = u64::try_from(self.0.wall().0).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_nanos(ns)))
    }
}

impl Tls {
    /// For the server with this name or address. `ca_file` replaces the machine's roots.
    pub async fn new(runtime: &Runtime, name: &str, ca_file: Option<&Path>) -> Result<Self> {
        let name = ServerName::try_from(name.to_owned()).map_err(|error| err!(Invalid, "{name:?}: {error}"))?;
        let roots = match ca_file {
            Some(path) => roots_of(&read_small(runtime, path).await?, path)?,
            None => runtime.compute(machine_roots).await?,
        };
        let provider = Arc::new(crypto::ring::default_provider());
        let config = ClientConfig::builder_with_details(provider, Arc::new(Wall(runtime.clone())))
            .with_safe_default_protocol_versions()
            .map_err(|error| err!(Internal, "TLS: {error}"))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name })
    }
}

/// Roots in a file of PEM.
fn roots_of(pem: &[u8], path: &Path) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem).take(ROOTS_MAX) {
        let certificate = certificate.map_err(|error| err!(Invalid, "{}: {error}", path.display()))?;
        roots.add(certificate).map_err(|error| err!(Invalid, "{}: {error}", path.display()))?;
    }
    if roots.is_empty() {
        bail!(Invalid, "{}: no certificate in PEM", path.display());
    }
    Ok(roots)
}

/// The roots that this machine trusts. Those that cannot be read are left out: a machine has many.
fn machine_roots() -> Result<RootCertStore> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
        bail!(
            NotFound,
            "this machine trusts no certificate authority ({}): install ca-certificates, or name a file with --ca-file",
            why.join("; ")
        );
    }
    Ok(roots)
}
