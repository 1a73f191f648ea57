//! Settings of TLS between the processes of a cluster: version 1.3, both sides with certificates of the cluster's authority.
//!
//! A client asks for any process of the cluster ([`Subject::dns_name`]). What role it met it learns from the certificate.

use std::str::FromStr;
use std::sync::Arc;

use ebb_runtime::Runtime;
use ebb_types::{Error, Result, err};
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::RuntimeClock;
use crate::certified_key::CertifiedKey;
use crate::subject::Subject;

/// What follows the handshake on a connection. Both sides name it, and none goes on if the other wants something else.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Wire {
    /// Records of TLS.
    #[default]
    Encrypted,
    /// Plain bytes: peers are proved when they connect, and whoever sits between them afterwards reads and changes all.
    Plain,
}

impl Wire {
    /// Its name in settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Encrypted => "encrypted",
            Self::Plain => "plain",
        }
    }

    /// Its name in the handshake (ALPN, RFC 7301).
    const fn protocol(self) -> &'static [u8] {
        match self {
            Self::Encrypted => b"ebb",
            Self::Plain => b"ebb-plain",
        }
    }
}

impl FromStr for Wire {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        [Self::Encrypted, Self::Plain]
            .into_iter()
            .find(|wire| wire.name() == name)
            .ok_or_else(|| err!(Invalid, "wire = {name:?}: write \"encrypted\" or \"plain\""))
    }
}

/// The settings of one process, as server and as client.
#[derive(Clone, Debug)]
pub struct Settings {
    /// As client.
    pub client: Arc<ClientConfig>,
    /// As server.
    pub server: Arc<ServerConfig>,
    /// The name that it asks servers for.
    pub name: ServerName<'static>,
}

impl Settings {
    /// For the holder of `key`.
    ///
    /// # Errors
    /// `Invalid` if key and certificate do not belong together.
    pub fn new(key: &CertifiedKey, wire: Wire, runtime: &Runtime) -> Result<Self> {
        let failed = |error: &dyn std::fmt::Display| err!(Invalid, "the certified key cannot be used: {error}");
        let provider = Arc::new(provider());
        let mut roots = RootCertStore::empty();
        for authority in key.authorities() {
            roots.add(authority.clone()).map_err(|error| failed(&error))?;
        }
        let roots = Arc::new(roots);
        let chain = || vec![key.certificate().clone()];
        let clock = || Arc::new(RuntimeClock(runtime.clone()));
        let mut client = ClientConfig::builder_with_details(provider.clone(), clock())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| failed(&error))?
            .with_root_certificates(roots.clone())
            .with_client_auth_cert(chain(), key.key().clone_key())
            .map_err(|error| failed(&error))?;
        client.alpn_protocols = vec![wire.protocol().to_vec()];
        // Connections last for hours: nothing is gained by resuming one, and tickets would be kept.
        client.resumption = Resumption::disabled();
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone())
            .build()
            .map_err(|error| failed(&error))?;
        let mut server = ServerConfig::builder_with_details(provider, clock())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| failed(&error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain(), key.key().clone_key())
            .map_err(|error| failed(&error))?;
        server.alpn_protocols = vec![wire.protocol().to_vec()];
        server.send_tls13_tickets = 0;
        let name = ServerName::try_from(Subject::dns_name(key.subject().cluster));
        let name = name.map_err(|error| failed(&error))?;
        Ok(Self { client: Arc::new(client), server: Arc::new(server), name })
    }
}

/// AES with 128 bits first: the fastest where the processor has it. ChaCha20 for processors that do not.
fn provider() -> CryptoProvider {
    CryptoProvider {
        cipher_suites: vec![
            ring::cipher_suite::TLS13_AES_128_GCM_SHA256,
            ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ],
        kx_groups: vec![ring::kx_group::X25519, ring::kx_group::SECP256R1],
        ..ring::default_provider()
    }
}
