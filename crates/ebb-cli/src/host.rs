//! Settings of this host: which host it is, and where its processes listen.
//!
//! On a host of its own they are in `/etc/ebb/host.toml`, and the cluster's directory is `/var/lib/ebb`. Elsewhere they are
//! `host.toml` in that directory. Options of a command win over the file.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ebb_types::{Error, Result, bail, err};
use serde::{Deserialize, Serialize};

use crate::private;

/// Directory of the cluster on a host of its own.
pub const DIR: &str = "/var/lib/ebb";
/// Its settings there.
const SETTINGS: &str = "/etc/ebb/host.toml";
/// Its settings in another directory.
const BESIDE: &str = "host.toml";
/// Where a process listens that nothing says anything about: other processes of this machine find it.
const LOOPBACK: &str = "127.0.0.1:0";

/// Ports of the processes on hosts of their own.
pub mod ports {
    /// Master.
    pub const MASTER: u16 = 7000;
    /// Block server.
    pub const BLOCK: u16 = 7001;
    /// Worker.
    pub const WORKER: u16 = 7002;
    /// Proxy.
    pub const PROXY: u16 = 7003;
    /// Power manager.
    pub const POWER_MANAGER: u16 = 7004;
    /// Power client.
    pub const POWER_CLIENT: u16 = 7005;
}

/// Contents of `host.toml`. What it lacks is as the commands' help says.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct HostFile {
    /// Declared name of this host: the unit of locality and failure.
    pub host: Option<String>,
    /// Declared rack.
    pub rack: Option<String>,
    /// Of the master.
    pub master: Option<Place>,
    /// Of the block server.
    pub block: Option<BlockPlace>,
    /// Of the worker.
    pub worker: Option<Place>,
    /// Of a proxy.
    pub proxy: Option<Place>,
    /// Of the power manager.
    pub power_manager: Option<Place>,
    /// Of the power client.
    pub power_client: Option<Place>,
}

/// Where a process serves.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Place {
    /// Address to listen on, `ip:port` or `[ip]:port`. `0.0.0.0` and `[::]` are all networks of the host.
    pub listen: Option<String>,
    /// Address at which others reach it, `ip:port` or `name:port`; each of them resolves the name. Without it, that of
    /// `listen`.
    pub advertise: Option<String>,
}

/// Where the block server serves, and its volumes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct BlockPlace {
    /// As in [`Place`].
    pub listen: Option<String>,
    /// As in [`Place`].
    pub advertise: Option<String>,
    /// Directories for replicas, one for each disk. Without them there is one, in the cluster's directory.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<PathBuf>,
    /// Hosts of the sub-rack for which it is the localized storage node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub serves_hosts: Vec<String>,
}

impl HostFile {
    /// The settings of the host whose cluster directory this is; none if there is no such file.
    ///
    /// # Errors
    /// `Invalid` names file and line.
    pub fn read(dir: &Path) -> Result<Option<Self>> {
        let path = path(dir);
        match fs::read_to_string(&path) {
            Ok(text) => Self::parse(&text).map(Some).map_err(|error| error.context(path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::from_io(&error, path.display())),
        }
    }

    fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).map_err(|error| err!(Invalid, "{error}"))
    }

    /// Writes them, unless there are some: an operator's stay. They hold no secret, so every daemon of the host may read
    /// them, as another user than their writer.
    ///
    /// # Errors
    /// `Exists` if there are others already; that of the disk.
    pub fn write_new(&self, dir: &Path) -> Result<PathBuf> {
        let path = path(dir);
        let failed = |error: std::io::Error| Error::from_io(&error, path.display());
        let parent = path.parent().unwrap_or(dir);
        match Self::read(dir)? {
            Some(known) if known == *self => {}
            Some(_) => bail!(Exists, "{} has other settings: they are kept", path.display()),
            None => {
                if !parent.is_dir() {
                    fs::create_dir_all(parent).map_err(failed)?;
                    fs::set_permissions(parent, Permissions::from_mode(0o755)).map_err(failed)?;
                }
                let text = toml::to_string(self).map_err(|error| err!(Internal, "host.toml: {error}"))?;
                private::replace_synced(&path, text.as_bytes())?;
            }
        }
        fs::set_permissions(&path, Permissions::from_mode(0o644)).map_err(failed)?;
        Ok(path)
    }
}

/// Where the settings of the host with this cluster directory are.
#[must_use]
pub fn path(dir: &Path) -> PathBuf {
    if dir == Path::new(DIR) { SETTINGS.into() } else { dir.join(BESIDE) }
}

impl Place {
    /// With the options of a command, which win.
    #[must_use]
    pub fn with_options(self, listen: Option<String>, advertise: Option<String>) -> Self {
        Self { listen: listen.or(self.listen), advertise: advertise.or(self.advertise) }
    }

    /// Address to listen on.
    #[must_use]
    pub fn listen(&self) -> &str {
        self.listen.as_deref().unwrap_or(LOOPBACK)
    }

    /// The address to tell others, if it is not the one that the process binds.
    ///
    /// # Errors
    /// As [`Self::advertised`].
    pub fn told(&self) -> Result<Option<String>> {
        self.advertised(self.listen())?;
        Ok(self.advertise.clone())
    }

    /// Address for others, of a process that listens at `bound`.
    ///
    /// # Errors
    /// `Invalid` if others cannot connect to it.
    pub fn advertised(&self, bound: &str) -> Result<String> {
        if let Some(advertise) = &self.advertise {
            check(advertise).map_err(|error| error.context("advertise"))?;
            return Ok(advertise.clone());
        }
        if bound.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_unspecified()) {
            bail!(
                Invalid,
                "it listens on all networks, {bound}: say with advertise = \"HOST:PORT\" how others reach it"
            );
        }
        Ok(bound.to_owned())
    }
}

impl BlockPlace {
    /// Its addresses.
    #[must_use]
    pub fn place(&self) -> Place {
        Place { listen: self.listen.clone(), advertise: self.advertise.clone() }
    }
}

/// Refuses what is no address of a process, before it is written down: `ip:port`, `[ip]:port` or `name:port`.
///
/// # Errors
/// `Invalid` says what is wrong.
pub fn check(address: &str) -> Result<()> {
    let parts = address.rsplit_once(':');
    let Some((host, port)) = parts.filter(|(host, _)| !host.is_empty()) else {
        bail!(Invalid, "{address:?}: write HOST:PORT, as in 10.0.0.1:7000")
    };
    if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
        bail!(Invalid, "{address:?}: write an IPv6 address in brackets, as in [fd00::1]:7000");
    }
    if !port.parse::<u16>().is_ok_and(|port| port > 0) {
        bail!(Invalid, "{address:?}: {port:?} is no port from 1 to 65535");
    }
    if address.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_unspecified()) {
        bail!(Invalid, "{address:?}: write the address that other hosts connect to");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ebb_fuzz::target::nothing;
    use ebb_fuzz::{Cap, Shape, Target, run};

    use super::*;

    const TEXT: &str = "host = \"h2\"\n[block]\nlisten = \"0.0.0.0:7001\"\nadvertise = \"h2.example.org:7001\"\n\
                        volumes = [\"/srv/a\"]\n[power-client]\nlisten = \"[fd00::2]:7005\"\n";

    #[test]
    fn a_mistake_is_named_with_its_line() {
        let error = HostFile::parse("host = \"h2\"\n[block]\nlisten = 7001\n").unwrap_err();
        assert!(error.detail().contains("line 3"), "{error}");
        let error = HostFile::parse("rak = \"r1\"\n").unwrap_err();
        assert!(error.detail().contains("rak") && error.detail().contains("line 1"), "{error}");
    }

    #[test]
    fn what_an_operator_wrote_is_kept() {
        let temp = tempfile::tempdir().unwrap();
        let file = HostFile::parse(TEXT).unwrap();
        let path = file.write_new(temp.path()).unwrap();
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o644, "daemons may have another user");
        assert_eq!(HostFile::read(temp.path()).unwrap(), Some(file.clone()));
        file.write_new(temp.path()).unwrap();
        let other = HostFile { rack: Some("r9".to_owned()), ..file.clone() };
        assert_eq!(other.write_new(temp.path()).unwrap_err().kind(), ebb_types::ErrorKind::Exists);
        assert_eq!(HostFile::read(temp.path()).unwrap(), Some(file));
    }

    #[test]
    fn a_process_on_all_networks_says_how_it_is_reached() {
        let everywhere = Place::default().with_options(Some("0.0.0.0:7001".into()), None);
        assert!(everywhere.advertised("0.0.0.0:7001").is_err() && everywhere.advertised("[::]:7001").is_err());
        let named = everywhere.with_options(None, Some("h2:7001".into()));
        assert_eq!(named.advertised("0.0.0.0:7001").unwrap(), "h2:7001");
        assert_eq!(Place::default().advertised("10.0.0.2:7001").unwrap(), "10.0.0.2:7001");
    }

    #[test]
    fn addresses_are_checked_before_they_are_written_down() {
        for good in ["10.0.0.1:7000", "[fd00::1]:7000", "master.example.org:7000"] {
            check(good).unwrap();
        }
        for (bad, words) in [
            ("10.0.0.1", "HOST:PORT"),
            (":7000", "HOST:PORT"),
            ("fd00::1:7000", "brackets"),
            ("10.0.0.1:0", "port"),
            ("10.0.0.1:70000", "port"),
            ("10.0.0.1:", "port"),
            ("0.0.0.0:7000", "other hosts"),
            ("[::]:7000", "other hosts"),
        ] {
            let error = check(bad).unwrap_err();
            assert!(error.detail().contains(words), "{error}");
        }
    }

    #[test]
    fn any_host_file_is_read_or_refused() {
        run::hold(&Target {
            name: "ebb/host",
            source: "host.toml",
            cap: Cap { base: 64 << 10, times: 512 },
            shape: Shape::Text,
            cases: 3_000,
            decode: |bytes| {
                HostFile::parse(&String::from_utf8_lossy(bytes)).is_ok_and(|file| toml::to_string(&file).is_ok())
            },
            samples: || vec![TEXT.into()],
            repair: nothing,
        });
    }
}
