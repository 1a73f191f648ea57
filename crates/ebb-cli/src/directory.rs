//! A cluster's directory: its settings in `cluster.toml`, and its keys.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ebb_api::{settings, users};
use ebb_identity::tls::Wire;
use ebb_rpc::{Counters, Identity};
use ebb_runtime::Runtime;
use ebb_types::{ClusterId, Error, ErrorKind, HostName, Result, Role, bail, err};
use ebb_wire::pb;
use serde::{Deserialize, Serialize};

use crate::keys::{self, Keys};
use crate::private;

/// Contents of `cluster.toml`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterFile {
    /// Version of the file; absent in version 1.
    #[serde(default = "first_format", skip_serializing_if = "is_first_format")]
    pub format: u32,
    /// 16 hexadecimal digits; names the cluster for good.
    pub cluster: String,
    /// `ip:port` of each master.
    pub masters: Vec<String>,
    /// How long a silent block server counts as live, in milliseconds.
    #[serde(default = "default_dead_ms")]
    pub dead_after_ms: u64,
    /// How long a silent client keeps its leases, in milliseconds.
    #[serde(default = "default_session_ttl_ms")]
    pub session_ttl_ms: u64,
    /// MB per second that repair may move to or from one node; 0: no limit. Encoding reads a quarter of it.
    #[serde(default = "default_repair_mb_per_s")]
    pub repair_mb_per_s: u64,
    /// Proxies in processes of their own; 0: there is one, in the master's process.
    #[serde(default)]
    pub proxies: u32,
    /// Copies that the default dataset keeps.
    #[serde(default = "default_replicas")]
    pub replicas: u32,
    /// What its connections carry: "encrypted", or "plain" where an operator chose that.
    #[serde(default = "default_wire", skip_serializing_if = "is_default_wire")]
    pub wire: String,
}

const FORMAT: u32 = 1;

const fn first_format() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_first_format(format: &u32) -> bool {
    *format == first_format()
}

const fn default_dead_ms() -> u64 {
    30_000
}

const fn default_session_ttl_ms() -> u64 {
    10_000
}

/// A node's link and disks carry several times as much: users' reads and writes go first.
const fn default_repair_mb_per_s() -> u64 {
    200
}

fn default_wire() -> String {
    Wire::default().name().to_owned()
}

fn is_default_wire(wire: &str) -> bool {
    wire == Wire::default().name()
}

const fn default_replicas() -> u32 {
    3
}

impl ClusterFile {
    /// The settings that a cluster begins with.
    fn new(id: ClusterId, replicas: u32, wire: Wire) -> Self {
        Self {
            format: FORMAT,
            cluster: format!("{:016x}", id.raw()),
            masters: Vec::new(),
            dead_after_ms: default_dead_ms(),
            session_ttl_ms: default_session_ttl_ms(),
            repair_mb_per_s: default_repair_mb_per_s(),
            proxies: 0,
            replicas,
            wire: wire.name().to_owned(),
        }
    }

    fn parse(text: &str) -> Result<Self> {
        let invalid = |error: toml::de::Error| err!(Invalid, "{error}");
        // The format first: another one may have other fields.
        let table: toml::Table = toml::from_str(text).map_err(invalid)?;
        if let Some(other) = table.get("format").filter(|format| format.as_integer() != Some(FORMAT.into())) {
            bail!(Unsupported, "it has format {other}, this release reads {FORMAT}: use the release that wrote it");
        }
        toml::from_str(text).map_err(invalid)
    }

    fn id(&self) -> Result<ClusterId> {
        settings::parse_id(&self.cluster)
    }
}

/// A cluster's directory, opened.
#[derive(Clone, Debug)]
pub struct ClusterDir {
    /// The directory, absolute.
    pub path: PathBuf,
    /// Its `cluster.toml`.
    pub file: ClusterFile,
    keys: Keys,
}

impl ClusterDir {
    /// Reads a cluster's directory.
    pub fn open(path: &Path) -> Result<Self> {
        let path = fs::canonicalize(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                let path = path.display();
                err!(NotFound, "there is no {path}: `ebb cluster up --dir {path} --nodes N` makes a cluster there")
            }
            _ => Error::from_io(&error, format!("cluster directory {}", path.display())),
        })?;
        let toml_path = path.join("cluster.toml");
        let text = fs::read_to_string(&toml_path).map_err(|error| {
            if error.kind() == std::io::ErrorKind::NotFound {
                err!(
                    NotFound,
                    "{} is not a cluster's directory (no cluster.toml): start one with `ebb cluster up --dir {} --nodes N`",
                    path.display(),
                    path.display()
                )
            } else {
                unreadable(&error, &toml_path)
            }
        })?;
        let parsed = ClusterFile::parse(&text).and_then(|file| Ok((file.id()?, file.wire.parse()?, file)));
        let (id, wire, file) = parsed.map_err(|error| error.context(toml_path.display()))?;
        let keys = Keys::new(&path, id, wire);
        Ok(Self { path, file, keys })
    }

    /// Makes the directory of a host that joins a cluster. Its certificates are there already.
    ///
    /// # Errors
    /// That of the disk.
    pub fn join(
        path: &Path,
        id: ClusterId,
        wire: Wire,
        masters: Vec<String>,
        reply: &pb::JoinClusterReply,
    ) -> Result<Self> {
        let file = ClusterFile {
            masters,
            dead_after_ms: reply.dead_after_ms,
            session_ttl_ms: reply.session_ttl_ms,
            ..ClusterFile::new(id, reply.replicas, wire)
        };
        let path = fs::canonicalize(path).map_err(|error| Error::from_io(&error, path.display()))?;
        let joined = Self { keys: Keys::new(&path, id, wire), path, file };
        joined.save()?;
        Ok(joined)
    }

    /// Makes the directory of a new cluster: fresh id, fresh authority.
    pub fn create(path: &Path, replicas: u32, wire: Wire) -> Result<Self> {
        let context =
            |error: std::io::Error| Error::from_io(&error, format!("making cluster directory {}", path.display()));
        private::make_dir(path).map_err(context)?;
        private::narrow(path)?;
        let mut random = [0_u8; 8];
        getrandom::fill(&mut random).map_err(|error| err!(Io, "no random bytes from the system: {error}"))?;
        let id = u64::from_le_bytes(random) | 1;
        let path = fs::canonicalize(path).map_err(context)?;
        // Ordering: the keys are on the disk before there is a cluster that needs them.
        let keys = Keys::new(&path, ClusterId::new(id), wire);
        keys.create()?;
        let file = ClusterFile::new(ClusterId::new(id), replicas, wire);
        let created = Self { path, file, keys };
        created.save()?;
        if let Some(parent) = created.path.parent() {
            fs::File::open(parent).and_then(|parent| parent.sync_all()).map_err(context)?;
        }
        Ok(created)
    }

    /// Writes `cluster.toml` back, in one step; durable when it returns, and with it the names beside it.
    pub fn save(&self) -> Result<()> {
        let text = toml::to_string(&self.file).map_err(|error| err!(Internal, "cluster.toml: {error}"))?;
        private::replace_synced(&self.path.join("cluster.toml"), text.as_bytes())
    }

    /// Makes the authority of a cluster from before there were certificates. True if it did.
    pub fn certify_old(&self) -> Result<bool> {
        if !self.path.join("secret").exists() {
            return Ok(false);
        }
        match self.keys.create() {
            Err(error) if error.kind() != ErrorKind::Exists => return Err(error),
            _ => keys::forget_secret(&self.path)?,
        }
        Ok(true)
    }

    /// Removes other users' access to the directory; returns the mode that it had, if that was too wide.
    pub fn narrow(&self) -> Result<Option<u32>> {
        private::narrow(&self.path)
    }

    /// Changes what the connections of processes carry that start from now on. [`Self::save`] writes it down.
    pub fn set_wire(&mut self, wire: Wire) {
        wire.name().clone_into(&mut self.file.wire);
        self.keys = Keys::new(&self.path, self.keys.cluster(), wire);
    }

    /// Its keys.
    pub const fn keys(&self) -> &Keys {
        &self.keys
    }

    /// The identity that a process of this cluster proves to its peers. That of a daemon is renewed while it runs.
    pub fn identity(&self, host: &HostName, role: Role) -> Result<Identity> {
        let holder = self.keys.holder(role, host)?;
        if role != Role::Operator {
            self.keys.keep_fresh(&holder);
        }
        Identity::certified(holder, host.clone())
    }

    /// Connections as `role` on `host`.
    pub fn connector(&self, runtime: &Runtime, host: &HostName, role: Role) -> Result<ebb_rpc::Connector> {
        Ok(ebb_rpc::Connector::new(runtime.clone(), self.identity(host, role)?, Counters::default()))
    }

    /// The masters' addresses; an error if the cluster has never been up.
    pub fn masters(&self) -> Result<Vec<String>> {
        if self.file.masters.is_empty() {
            bail!(
                Unavailable,
                "the cluster in {} has never been up: `ebb cluster up --dir {} --nodes N`",
                self.path.display(),
                self.path.display()
            );
        }
        Ok(self.file.masters.clone())
    }

    /// Where running processes register.
    pub fn run_dir(&self) -> PathBuf {
        self.path.join("run")
    }

    /// Where processes' output goes.
    pub fn log_dir(&self) -> PathBuf {
        self.path.join("log")
    }

    /// Directory of the node on `host`.
    pub fn node_dir(&self, host: &HostName) -> PathBuf {
        self.path.join("nodes").join(host.as_str())
    }
}

/// A cluster's files are for its owner alone: another user is told whose they are.
fn unreadable(error: &std::io::Error, path: &Path) -> Error {
    let owner = fs::symlink_metadata(path.parent().unwrap_or(path)).ok().map(|metadata| metadata.uid());
    match owner {
        Some(uid) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            let name = users::user_name(uid);
            let others = if uid == 0 { "" } else { " and root" };
            err!(
                AccessDenied,
                "{}: this cluster is {name}'s: only {name}{others} can use its directory",
                path.display()
            )
        }
        _ => Error::from_io(error, path.display()),
    }
}

/// Whether a failure means that there is no such cluster directory yet.
pub fn is_absent(error: &Error) -> bool {
    error.kind() == ErrorKind::NotFound
}

#[cfg(test)]
mod tests {
    use ebb_fuzz::target::nothing;
    use ebb_fuzz::{Cap, Shape, Target, run};

    use super::*;

    const TEXT: &str = "cluster = \"00000000000000a7\"\nmasters = [\"127.0.0.1:7000\"]\nreplicas = 2\n";

    #[test]
    fn another_format_is_refused_by_name() {
        let file = ClusterFile::parse(TEXT).unwrap();
        assert_eq!((file.format, file.id().unwrap(), file.replicas), (1, ClusterId::new(0xa7), 2));
        assert_eq!(ClusterFile::parse(&format!("format = 1\n{TEXT}")).unwrap().masters, file.masters);
        for text in [format!("format = 2\n{TEXT}"), "format = 2\nmoons = 3\n".to_owned()] {
            let error = ClusterFile::parse(&text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert_eq!(error.to_string(), "it has format 2, this release reads 1: use the release that wrote it");
        }
        assert!(!toml::to_string(&file).unwrap().contains("format"), "releases from before it had one still read it");
    }

    #[test]
    fn any_cluster_file_is_read_or_refused() {
        run::hold(&Target {
            name: "ebb/cluster",
            source: "cluster.toml",
            cap: Cap { base: 64 << 10, times: 512 },
            shape: Shape::Text,
            cases: 3_000,
            decode: |bytes| {
                let file = ClusterFile::parse(&String::from_utf8_lossy(bytes));
                file.is_ok_and(|file| file.id().is_ok() && toml::to_string(&file).is_ok())
            },
            samples: || vec![TEXT.into(), format!("{TEXT}proxies = 2\ndead_after_ms = 3000\n").into()],
            repair: nothing,
        });
    }
}
