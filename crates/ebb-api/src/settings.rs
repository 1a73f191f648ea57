//! Where a cluster is, and how a process of it proves that it is one.
//!
//! A settings file is enough to use a cluster. It is TOML:
//! ```toml
//! cluster = "00000000000000a7"       # names the cluster for good: 16 hexadecimal digits
//! masters = ["10.0.0.1:7000"]
//! secret = "/etc/ebb/main.secret"    # its file; without this line, `secret` beside the settings file
//! ```
//! The directory of a cluster that was started here serves as well: its `cluster.toml` has the same lines, and others.
#![allow(clippy::disallowed_methods, reason = "a rim of the program: the files are this machine's")]

use std::fs;
use std::path::{Path, PathBuf};

use ebb_client::{Client, ClientOptions};
use ebb_rpc::{Connector, Counters, Identity, Secret};
use ebb_runtime::Runtime;
use ebb_types::{ClusterId, Error, HostName, Result, bail, err};
use serde::Deserialize;

use crate::secret;

/// The file in a cluster's directory.
const IN_DIRECTORY: &str = "cluster.toml";
/// The secret beside a settings file that names none.
const BESIDE: &str = "secret";

/// Where a cluster is, and its secret.
#[derive(Clone, Debug)]
pub struct Settings {
    id: ClusterId,
    masters: Vec<String>,
    secret: Secret,
}

/// The lines that count here. A cluster's own file has more.
#[derive(Deserialize)]
struct Lines {
    cluster: String,
    #[serde(default)]
    masters: Vec<String>,
    secret: Option<PathBuf>,
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
    /// `NotFound` if there is none, `Invalid` names what it lacks, `NotPermitted` if others may read the secret.
    pub fn read(place: &Path) -> Result<Self> {
        let path = if place.is_dir() { place.join(IN_DIRECTORY) } else { place.to_owned() };
        let text = fs::read_to_string(&path).map_err(|error| Error::from_io(&error, path.display()))?;
        let (id, lines) = parse(&text).map_err(|error| error.context(path.display()))?;
        let beside = path.parent().unwrap_or(Path::new("")).join(BESIDE);
        let secret = secret::read(&lines.secret.unwrap_or(beside))?;
        Ok(Self { id, masters: lines.masters, secret })
    }

    /// Connections as `role` on `host`.
    fn connector(&self, runtime: &Runtime, host: &HostName, role: &str) -> Connector {
        let (secret, host, role) = (self.secret.clone(), host.clone(), role.to_owned());
        Connector::new(runtime.clone(), Identity { cluster: self.id, secret, host, role }, Counters::default())
    }

    /// Opens a session for a program that is no mount. It keeps no names and no leases of closed files: nobody waits for the
    /// end of its session when the program is killed.
    ///
    /// # Errors
    /// That of the first call of a master.
    pub async fn connect(&self, runtime: Runtime, embedded: Embedded) -> Result<Client> {
        let Embedded { host, role, read_cache_bytes, dirty_bytes } = embedded;
        let connector = self.connector(&runtime, &host, &role);
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

fn parse(text: &str) -> Result<(ClusterId, Lines)> {
    let lines: Lines = toml::from_str(text).map_err(|error| err!(Invalid, "{error}"))?;
    let id = parse_id(&lines.cluster)?;
    if lines.masters.is_empty() {
        bail!(Invalid, "it names no master: write masters = [\"HOST:PORT\"]");
    }
    Ok((id, lines))
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

    use ebb_types::ErrorKind;

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
        write(&temp.path().join(BESIDE), &Secret::new([7; 32]).to_hex());
        let file = temp.path().join("main.toml");
        write(&file, &format!("{lines}secret = {:?}\n", temp.path().join(BESIDE)));
        for place in [temp.path(), &file] {
            let settings = Settings::read(place).unwrap();
            assert_eq!((settings.id, settings.masters.len()), (ClusterId::new(0xa7), 1));
        }
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
        assert!(error.detail().contains("secret"), "{error}");
    }
}
