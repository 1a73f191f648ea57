//! A join under way: the keys of this host's roles, until all are certified.
//!
//! The keys are on the disk before a master is asked. So a join that is interrupted, or whose answer is lost, makes the same
//! request again, and gets its answer although the token is used up.

use std::fs;
use std::path::{Path, PathBuf};

use ebb_api::secret;
use ebb_identity::{CertifiedKey, KeyRequest};
use ebb_types::{ErrorKind, HostName, Result, Role, WallTime, bail, err};
use ebb_wire::pb;
use serde::{Deserialize, Serialize};

use crate::directory::ClusterDir;
use crate::keys::Keys;
use crate::private;
use crate::token::Token;

/// The file, in the directory that becomes the cluster's.
const FILE: &str = "joining.json";

/// A join under way.
#[derive(Debug)]
pub struct Joining {
    dir: PathBuf,
    /// The host that joins.
    pub host: HostName,
    keys: Vec<Key>,
}

#[derive(Debug)]
struct Key {
    role: Role,
    key: KeyRequest,
    /// As it was first signed: another signature would be another request.
    request: Vec<u8>,
}

#[derive(PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    /// Number of the token's certificate.
    token: Vec<u8>,
    host: String,
    keys: Vec<KeptKey>,
}

#[derive(PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptKey {
    role: String,
    pem: String,
    request: Vec<u8>,
}

impl Joining {
    /// Begins a join with this token, or goes on with it.
    ///
    /// # Errors
    /// `Invalid` if the host cannot be certified; that of the disk.
    pub fn begin_or_resume(dir: &Path, token: &Token, host: &str) -> Result<Self> {
        let path = dir.join(FILE);
        let serial = token.key.serial();
        let kept = match secret::read(&path) {
            Ok(text) => serde_json::from_str::<Kept>(&text).ok(),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if let Some(other) = kept.as_ref().filter(|kept| kept.token == serial && kept.host != host) {
            let path = path.display();
            bail!(
                Exists,
                "with this token host {} began to join: repeat it with --host {}, or remove {path}",
                other.host,
                other.host
            );
        }
        let kept = match kept.filter(|kept| kept.token == serial) {
            Some(kept) => kept,
            None => {
                let key = |role: &String| {
                    let key = KeyRequest::new()?;
                    Ok(KeptKey { role: role.clone(), pem: key.to_pem(), request: key.to_der()? })
                };
                let keys = token.roles.iter().map(key).collect::<Result<_>>()?;
                let kept = Kept { token: serial.to_vec(), host: host.to_owned(), keys };
                let text = serde_json::to_vec(&kept).map_err(|error| err!(Internal, "{FILE}: {error}"))?;
                private::replace_synced(&path, &text)?;
                kept
            }
        };
        let key = |kept: KeptKey| {
            let role = kept.role.parse().map_err(|error| err!(Invalid, "{error}"))?;
            Ok(Key { role, key: KeyRequest::from_pem(&kept.pem)?, request: kept.request })
        };
        let keys = kept.keys.into_iter().map(key).collect::<Result<_>>()?;
        Ok(Self { dir: dir.to_owned(), host: HostName::new(host), keys })
    }

    /// The request to the master; but for the time, it is the same after each [`Self::begin_or_resume`].
    #[must_use]
    pub fn request(&self, now: WallTime) -> pb::JoinCluster {
        let request = |key: &Key| pb::KeyRequest { role: key.role.name().to_owned(), request: key.request.clone() };
        let requests = self.keys.iter().map(request).collect();
        pb::JoinCluster { host: self.host.as_str().to_owned(), requests, now_ns: now.0 }
    }

    /// Keeps the certificates, and makes the cluster's directory.
    ///
    /// # Errors
    /// `Protocol` if they are not the ones that were asked for; that of the disk.
    pub fn finish(self, token: &Token, reply: &pb::JoinClusterReply) -> Result<ClusterDir> {
        let cluster = token.key.subject().cluster;
        let wire = token.wire.parse()?;
        if reply.certificates.len() != self.keys.len() {
            bail!(Protocol, "{} certificates came for {} keys", reply.certificates.len(), self.keys.len());
        }
        let kept = Keys::new(&self.dir, cluster, wire);
        for (Key { role, key, .. }, certificate) in self.keys.into_iter().zip(&reply.certificates) {
            let key: CertifiedKey = key.complete(certificate)?;
            let subject = key.subject();
            let is_own = subject.host.as_ref().is_none_or(|host| *host == self.host);
            if subject.cluster != cluster || subject.role != role || !is_own {
                bail!(Protocol, "the certificate for a {role} on {} is of the {subject}", self.host);
            }
            kept.keep(&key)?;
        }
        // Ordering: the settings come last. A directory with settings has all certificates.
        let joined = ClusterDir::join(&self.dir, cluster, wire, token.masters.clone(), reply)?;
        let path = self.dir.join(FILE);
        fs::remove_file(&path).map_err(|error| ebb_types::Error::from_io(&error, path.display()))?;
        Ok(joined)
    }
}
