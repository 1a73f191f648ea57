//! `power/client.toml` in the cluster's directory: the driver that switches the nodes. Without it their processes are
//! frozen.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ebb_power_drivers::ipmi::{Controller, Off};
use ebb_power_drivers::redfish::Service;
use ebb_types::{Error, Result, bail, err};
use serde::Deserialize;

/// Port of a controller that speaks IPMI.
const IPMI_PORT: u16 = 623;

/// A driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Signals to the processes of nodes on this machine.
    Freeze,
    /// This host sleeps, and wakes by its clock.
    Suspend,
    /// Baseboard management controllers, by Redfish.
    Redfish,
    /// Baseboard management controllers, by IPMI.
    Ipmi,
    /// Nothing: it only logs each call.
    DryRun,
}

/// Contents of the file.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientFile {
    /// The driver that switches them.
    pub kind: Kind,
    /// Whether the power is cut at once, and the operating system not asked.
    #[serde(default)]
    hard_off: bool,
    /// A call to a controller may take so long, in seconds.
    #[serde(default = "default_call_s")]
    call_s: u64,
    /// A node may take so long to go on or off, in seconds.
    #[serde(default = "default_deadline_s")]
    deadline_s: u64,
    /// ipmitool.
    #[serde(default = "default_program")]
    pub program: PathBuf,
    /// Controllers by the hosts that they switch; for `suspend` the one host that this is, with nothing to say of it.
    #[serde(default)]
    nodes: BTreeMap<String, Access>,
}

/// How a controller is asked.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Access {
    /// `host` or `host:port`.
    #[serde(default)]
    address: String,
    #[serde(default)]
    user: Option<String>,
    /// File with the password alone.
    #[serde(default)]
    password_file: Option<PathBuf>,
    /// Number of a cipher suite, for IPMI.
    #[serde(default)]
    cipher_suite: Option<u8>,
    /// Path of the system, for Redfish.
    #[serde(default)]
    system: Option<String>,
}

const fn default_call_s() -> u64 {
    10
}

const fn default_deadline_s() -> u64 {
    300
}

fn default_program() -> PathBuf {
    PathBuf::from("ipmitool")
}

impl ClientFile {
    /// Nodes are frozen.
    #[must_use]
    pub fn freeze() -> Self {
        Self {
            kind: Kind::Freeze,
            hard_off: false,
            call_s: default_call_s(),
            deadline_s: default_deadline_s(),
            program: default_program(),
            nodes: BTreeMap::new(),
        }
    }

    /// Reads the file; frozen nodes, if there is none.
    pub fn read(path: &Path) -> Result<Self> {
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text).map_err(|error| error.context(path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::freeze()),
            Err(error) => Err(Error::from_io(&error, path.display())),
        }
    }

    fn parse(text: &str) -> Result<Self> {
        let file: Self = toml::from_str(text).map_err(|error| err!(Invalid, "{error}"))?;
        match file.kind {
            Kind::Freeze | Kind::DryRun if !file.nodes.is_empty() => {
                bail!(Invalid, "nodes are frozen, or calls only logged, without controllers: leave [nodes] out")
            }
            Kind::Suspend if file.nodes.len() != 1 => {
                bail!(Invalid, "kind = \"suspend\" is for this host: name it, and no other, as [nodes.HOST]")
            }
            Kind::Redfish => file.services().map(drop)?,
            Kind::Ipmi => file.controllers().map(drop)?,
            _ => {}
        }
        Ok(file)
    }

    /// Hosts that are named.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }

    /// How nodes go off.
    #[must_use]
    pub const fn off(&self) -> Off {
        if self.hard_off { Off::Hard } else { Off::Soft }
    }

    /// Longest call to a controller.
    #[must_use]
    pub const fn call(&self) -> Duration {
        Duration::from_secs(self.call_s)
    }

    /// Longest time for a node to go on or off.
    #[must_use]
    pub const fn deadline(&self) -> Duration {
        Duration::from_secs(self.deadline_s)
    }

    /// By IPMI: controllers by host.
    pub fn controllers(&self) -> Result<BTreeMap<String, Controller>> {
        let controller = |(host, access): (&String, &Access)| {
            let (address, port) = match access.address.rsplit_once(':') {
                Some((address, port)) => {
                    let port = port.parse().map_err(|_| err!(Invalid, "nodes.{host}: {port:?} is no port"))?;
                    (address.to_owned(), port)
                }
                None => (access.address.clone(), IPMI_PORT),
            };
            let (Some(user), Some(password_file), false) = (&access.user, &access.password_file, address.is_empty())
            else {
                bail!(Invalid, "nodes.{host}: a controller by IPMI needs address, user and password_file");
            };
            let controller = Controller {
                host: address,
                port,
                user: user.clone(),
                password_file: password_file.clone(),
                cipher_suite: access.cipher_suite,
            };
            Ok((host.clone(), controller))
        };
        self.at_least_one()?.iter().map(controller).collect()
    }

    /// By Redfish: systems by host.
    pub fn services(&self) -> Result<BTreeMap<String, Service>> {
        let service = |(host, access): (&String, &Access)| {
            let Some(system) = access.system.clone().filter(|_| !access.address.is_empty()) else {
                bail!(Invalid, "nodes.{host}: a controller by Redfish needs address and system");
            };
            let user = match (&access.user, &access.password_file) {
                (Some(user), Some(file)) => {
                    let read = std::fs::read_to_string(file).map_err(|error| Error::from_io(&error, file.display()))?;
                    Some((user.clone(), read.trim_end_matches('\n').to_owned()))
                }
                (None, None) => None,
                _ => bail!(Invalid, "nodes.{host}: user and password_file go together"),
            };
            Ok((host.clone(), Service { address: access.address.clone(), system, user }))
        };
        self.at_least_one()?.iter().map(service).collect()
    }

    fn at_least_one(&self) -> Result<&BTreeMap<String, Access>> {
        if self.nodes.is_empty() {
            bail!(Invalid, "no controller is named: [nodes.HOST], for each host that it switches");
        }
        Ok(&self.nodes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_read() {
        let text = "kind = \"ipmi\"\nhard_off = true\n[nodes.h1]\naddress = \"10.0.0.1:99\"\nuser = \"u\"\npassword_file = \"/p\"\n\
                    [nodes.h2]\naddress = \"bmc2\"\nuser = \"u\"\npassword_file = \"/p\"\n";
        let file = ClientFile::parse(text).unwrap();
        let controllers = file.controllers().unwrap();
        let places: Vec<_> =
            controllers.iter().map(|(host, one)| (host.as_str(), one.host.as_str(), one.port)).collect();
        assert_eq!(places, [("h1", "10.0.0.1", 99), ("h2", "bmc2", 623)]);
        assert_eq!((file.kind, file.off(), file.call().as_secs()), (Kind::Ipmi, Off::Hard, 10));
        let text = "kind = \"redfish\"\n[nodes.h1]\naddress = \"10.0.0.1:8000\"\nsystem = \"/redfish/v1/Systems/1\"\n";
        assert_eq!(ClientFile::parse(text).unwrap().services().unwrap()["h1"].system, "/redfish/v1/Systems/1");
    }

    #[test]
    fn any_file_is_read_or_refused() {
        ebb_fuzz::run::hold(&ebb_fuzz::Target {
            name: "ebb/power-client",
            source: "client.toml",
            cap: ebb_fuzz::Cap { base: 64 << 10, times: 512 },
            shape: ebb_fuzz::Shape::Text,
            cases: 3_000,
            decode: |bytes| {
                let file = ClientFile::parse(&String::from_utf8_lossy(bytes));
                file.is_ok_and(|file| file.controllers().is_ok() && file.call() <= Duration::MAX)
            },
            samples: || {
                let host = "address = \"10.0.0.1:99\"\nuser = \"u\"\npassword_file = \"/p\"\ncipher_suite = 3\n";
                vec![
                    format!("kind = \"ipmi\"\nhard_off = true\ncall_s = 5\n[nodes.h1]\n{host}[nodes.h2]\n{host}")
                        .into(),
                ]
            },
            repair: ebb_fuzz::target::nothing,
        });
    }

    #[test]
    fn a_driver_that_cannot_switch_a_node_is_explained() {
        let refused = |text: &str| ClientFile::parse(text).unwrap_err().to_string();
        assert!(refused("kind = \"moon\"").contains("moon"));
        assert!(refused("kind = \"ipmi\"").contains("[nodes.HOST]"));
        assert!(refused("kind = \"ipmi\"\n[nodes.h1]\naddress = \"a\"").contains("nodes.h1"));
        assert!(
            refused("kind = \"ipmi\"\n[nodes.h1]\naddress = \"a:b\"\nuser = \"u\"\npassword_file = \"p\"")
                .contains("port")
        );
        assert!(refused("kind = \"redfish\"\n[nodes.h1]\naddress = \"a\"").contains("system"));
        assert!(refused("kind = \"suspend\"").contains("this host"));
        assert!(refused("kind = \"freeze\"\n[nodes.h1]\naddress = \"a\"").contains("leave [nodes] out"));
        assert!(refused("kind = \"freeze\"\ncolour = 1").contains("colour"));
        assert_eq!(ClientFile::read(Path::new("/nowhere/client.toml")).unwrap(), ClientFile::freeze());
    }
}
