//! Where a cluster is, and how a process of it proves that it is one.
//!
//! A settings file is enough to use a cluster. It is TOML:
//! ```toml
//! cluster = "00000000000000a7"       # names the cluster for good: 16 hexadecimal digits
//! masters = ["10.0.0.1:7000"]
//! identity = "/etc/ebb/main.pem"     # certificate and key; without this line, `identity.pem` beside the settings file
//! wire = "plain"                     # if the cluster's is; without this line, connections are encrypted
//! ```
//! The directory of a cluster that was started here serves as well: its `cluster.toml` has such lines, and its owner is an
//! operator.
#![allow(clippy::disallowed_methods, reason = "a rim of the program: the files are this machine's")]

use std::fs;
use std::path::{Path, PathBuf};

use ebb_client::{Client, ClientOptions};
use ebb_identity::tls::Wire;
use ebb_identity::{CertifiedKey, Holder};
use ebb_rpc::{Connector, Counters, Identity};
use ebb_runtime::Runtime;
use ebb_types::{ClusterId, Error, HostName, Result, bail, err};
use serde::Deserialize;

use crate::secret;

/// The file in a cluster's directory.
const IN_DIRECTORY: &str = "cluster.toml";
/// The identity beside a settings file that names none.
const BESIDE: &str = "identity.pem";
/// The operator's identity in a cluster's directory.
pub const OPERATOR: &str = "identities/operator.pem";

/// Where a cluster is, and who this process is there.
#[derive(Clone, Debug)]
pub struct Settings {
    masters: Vec<String>,
    wire: Wire,
    /// File of certificate and key.
    identity: PathBuf,
}

/// The lines that count here. A cluster's own file has more.
#[derive(Deserialize)]
struct Lines {
    cluster: String,
    #[serde(default)]
    masters: Vec<String>,
    identity: Option<PathBuf>,
    wire: Option<String>,
}

/// A session inside another program, which has its own use for memory and may be killed at any moment.
#[derive(Clone, Debug)]
pub struct Embedded {
    /// Host of the program, as the cluster knows it.
    pub host: HostName,
    /// What the program is, for people who look at sessions.
    pub role: String,
    /// Bytes of read-ahead and cached blocks.
    pub read_cache_bytes: usize,
    /// Bytes written and not yet synced by all members; more makes writers wait.
    pub dirty_bytes: usize,
}

impl Settings {
    /// Reads a settings file, or that of a cluster's directory.
    ///
    /// # Errors
    /// `NotFound` if there is none, `Invalid` names what it lacks, `NotPermitted` if others may read the key.
    pub fn read(place: &Path) -> Result<Self> {
        let (path, beside) =
            if place.is_dir() { (place.join(IN_DIRECTORY), OPERATOR) } else { (place.to_owned(), BESIDE) };
        let text = fs::read_to_string(&path).map_err(|error| Error::from_io(&error, path.display()))?;
        let (id, wire, lines) = parse(&text).map_err(|error| error.context(path.display()))?;
        let beside = path.parent().unwrap_or(Path::new("")).join(beside);
        let key_path = lines.identity.unwrap_or(beside);
        let certified = read_key(&key_path)?.subject().cluster;
        if certified != id {
            bail!(Invalid, "{} is of cluster {certified}, and {} names {id}", key_path.display(), path.display());
        }
        Ok(Self { masters: lines.masters, wire, identity: key_path })
    }

    /// Connections from `host`.
    fn connector(&self, runtime: &Runtime, host: &HostName) -> Result<Connector> {
        let holder = Holder::new(runtime.clone(), read_key(&self.identity)?, self.wire)?;
        // Whoever certifies this program replaces the file.
        let path = self.identity.clone();
        holder.follow(move || read_key(&path));
        let identity = Identity::certified(holder, host.clone())?;
        Ok(Connector::new(runtime.clone(), identity, Counters::default()))
    }

    /// Opens a session for a program that is no mount. It keeps no names and no leases of closed files: nobody waits for the
    /// end of its session when the program is killed.
    ///
    /// # Errors
    /// That of the first call of a master.
    pub async fn connect(&self, runtime: Runtime, embedded: Embedded) -> Result<Client> {
        let Embedded { host, role, read_cache_bytes, dirty_bytes } = embedded;
        let connector = self.connector(&runtime, &host)?;
        let options = ClientOptions {
            read_cache_bytes,
            dirty_bytes_max: dirty_bytes,
            keep_names: false,
            keep_leases: false,
            pid: std::process::id(),
            ..ClientOptions::new(self.masters.clone(), host, role)
        };
        Client::connect(runtime, connector, options).await
    }
}

fn read_key(path: &Path) -> Result<CertifiedKey> {
    CertifiedKey::from_pem(&secret::read(path)?).map_err(|error| error.context(path.display()))
}

fn parse(text: &str) -> Result<(ClusterId, Wire, Lines)> {
    let lines: Lines = toml::from_str(text).map_err(|error| err!(Invalid, "{error}"))?;
    let id = parse_id(&lines.cluster)?;
    if lines.masters.is_empty() {
        bail!(Invalid, "it names no master: write masters = [\"HOST:PORT\"]");
    }
    let wire = lines.wire.as_deref().map_or(Ok(Wire::default()), str::parse)?;
    Ok((id, wire, lines))
}

/// A cluster's id, as its files have it.
///
/// # Errors
/// `Invalid` if the text is none.
pub fn parse_id(text: &str) -> Result<ClusterId> {
    let id = u64::from_str_radix(text, 16);
    let id = id.map_err(|_| err!(Invalid, "cluster = {text:?} is not 16 hexadecimal digits"))?;
    Ok(ClusterId::new(id))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use ebb_identity::{Authority, Subject};
    use ebb_rpc::LIFETIME;
    use ebb_types::{ErrorKind, Role};

    use super::*;

    fn write(path: &Path, text: &str) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    #[test]
    fn a_file_and_a_clusters_directory_say_the_same() {
        let temp = tempfile::tempdir().unwrap();
        let lines = "cluster = \"00000000000000a7\"\nmasters = [\"127.0.0.1:7000\"]\n";
        write(&temp.path().join(IN_DIRECTORY), &format!("{lines}replicas = 2\n"));
        let pem = certified(0xa7);
        fs::create_dir(temp.path().join("identities")).unwrap();
        write(&temp.path().join(OPERATOR), &pem);
        let file = temp.path().join("main.toml");
        write(&file, &format!("{lines}identity = {:?}\n", temp.path().join(OPERATOR)));
        for place in [temp.path(), &file] {
            let settings = Settings::read(place).unwrap();
            assert_eq!((settings.identity, settings.masters.len()), (temp.path().join(OPERATOR), 1));
        }
        write(&temp.path().join(OPERATOR), &certified(0xa8));
        let error = Settings::read(temp.path()).unwrap_err();
        assert!(error.detail().contains("is of cluster"), "{error}");
    }

    fn certified(cluster: u64) -> String {
        let (cluster, now) = (ClusterId::new(cluster), Runtime::real().wall());
        let operator = Subject { cluster, role: Role::Operator, host: None, user: None };
        let key = Authority::create(cluster, now).unwrap().issue(&operator, now, LIFETIME).unwrap();
        key.to_pem().to_owned()
    }

    #[test]
    fn what_a_file_lacks_is_named() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("main.toml");
        assert_eq!(Settings::read(&file).unwrap_err().kind(), ErrorKind::NotFound);
        let lines = [
            ("masters = []", "missing field `cluster`"),
            ("cluster = \"x\"\nmasters = [\"a:1\"]", "is not 16 hexadecimal digits"),
            ("cluster = \"a7\"", "it names no master"),
        ];
        for (text, wanted) in lines {
            write(&file, text);
            let error = Settings::read(&file).unwrap_err();
            assert!(error.detail().contains(wanted) && error.detail().contains("main.toml"), "{error}");
        }
        write(&file, "cluster = \"a7\"\nmasters = [\"a:1\"]");
        let error = Settings::read(&file).unwrap_err();
        assert!(error.detail().contains("identity.pem"), "{error}");
        write(&file, "cluster = \"a7\"\nmasters = [\"a:1\"]\nwire = \"open\"");
        let error = Settings::read(&file).unwrap_err();
        assert!(error.detail().contains("\"plain\""), "{error}");
    }
}
