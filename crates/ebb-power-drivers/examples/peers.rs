//! Asks real peers as the power clients do: upsd, a controller by IPMI, a controller by Redfish. `tests/power/peers.sh`
//! starts the peers and this program.
#![allow(clippy::disallowed_methods, reason = "a program at the rim: it plays a UPS by changing its file")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use ebb_power::Supply;
use ebb_power::signal::ups::{UpsReading, UpsRule};
use ebb_power_drivers::ipmi::{Controller, Off};
use ebb_power_drivers::nut::Nut;
use ebb_power_drivers::redfish::Service;
use ebb_power_drivers::{Freeze, Ipmi, PowerDriver, Powered, Process, Redfish};
use ebb_runtime::Runtime;
use ebb_types::{ErrorKind, NodeId, Result, bail, err};

const NODE: NodeId = NodeId::new(1);
/// A peer that has just been started may need so long to listen, and to carry a call out.
const PATIENCE: Duration = Duration::from_secs(60);
const CALL: Duration = Duration::from_secs(20);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.as_slice() {
        [upsd, ups_file, ipmitool, port, password, pid, redfish] => {
            let peers = Peers { runtime: Runtime::real(), upsd, ups_file, ipmitool, port, password, pid, redfish };
            peers.try_all().await
        }
        _ => Err(err!(Invalid, "usage: peers UPSD UPS_FILE IPMITOOL IPMI_PORT PASSWORD_FILE PID REDFISH")),
    };
    if let Err(error) = done {
        eprintln!("peers: {error}");
        std::process::exit(1);
    }
    println!("peers: ok");
}

struct Peers<'a> {
    runtime: Runtime,
    upsd: &'a str,
    ups_file: &'a str,
    ipmitool: &'a str,
    port: &'a str,
    password: &'a str,
    pid: &'a str,
    redfish: &'a str,
}

impl Peers<'_> {
    async fn try_all(&self) -> Result<()> {
        self.try_ups().await?;
        println!("peers: upsd ok");
        self.try_ipmi().await?;
        println!("peers: ipmi ok");
        self.try_redfish().await?;
        println!("peers: redfish ok");
        Ok(())
    }

    /// The mains fail, the UPS reports it, and its charge is spread over the blackout.
    async fn try_ups(&self) -> Result<()> {
        let ups = Nut::new(self.runtime.clone(), self.upsd, "ups", CALL)?;
        let rule = UpsRule {
            mains_watts: 265.0,
            bridge: Duration::from_secs(1_000),
            capacity_joules: Some(200_000.0),
            reserve: 0.0,
        };
        let mains = self.until("the UPS on its mains", async || Ok(Some(ups.read().await?))).await?;
        expect("half charged", mains.charge == Some(0.5) && mains.load_watts == Some(90.0))?;
        expect("the mains feed everything", rule.supply(&mains, Duration::ZERO)? == Supply::Watts(265.0))?;
        let blackout = "ups.status: OB DISCHRG\nbattery.charge: 40\nbattery.runtime: 900\nups.realpower: 90\n";
        let is_out = |reading: &UpsReading| reading.on_battery && reading.charge == Some(0.4);
        let out = self.until("the UPS on its battery", async || {
            // Said again and again: the driver looks at whole seconds, and does not notice a second word in one.
            std::fs::write(self.ups_file, blackout).map_err(|error| err!(Io, "{}: {error}", self.ups_file))?;
            Ok(Some(ups.read().await?).filter(is_out))
        });
        let out = out.await?;
        expect("80 kJ over 1000 s", rule.supply(&out, Duration::ZERO)? == Supply::Watts(80.0))?;
        let unknown = Nut::new(self.runtime.clone(), self.upsd, "nobody", CALL)?.read().await;
        expect("no UPS of another name", unknown.is_err_and(|error| error.kind() == ErrorKind::NotFound))
    }

    /// A node goes off and on by its controller. The controller's chassis script freezes a process.
    async fn try_ipmi(&self) -> Result<()> {
        let port = self.port.parse().map_err(|_| err!(Invalid, "{:?} is no port", self.port))?;
        let pid = self.pid.parse().map_err(|_| err!(Invalid, "{:?} is no process", self.pid))?;
        let controller = |password_file: PathBuf| Controller {
            host: "127.0.0.1".into(),
            port,
            user: "ebb".into(),
            password_file,
            cipher_suite: Some(3),
        };
        let client = |password_file: PathBuf| {
            let controllers = BTreeMap::from([(NODE, controller(password_file))]);
            Ipmi::new(self.runtime.clone(), self.ipmitool.into(), controllers, Off::Hard, CALL, PATIENCE)
        };
        let ipmi = client(self.password.into());
        let processes = Freeze::new(self.runtime.clone(), PATIENCE);
        processes.set(NODE, [Process::find(pid)?]);
        self.until("the controller by IPMI", async || Ok(Some(ipmi.powered(NODE).await?))).await?;
        ipmi.wake(NODE).await?;
        ipmi.sleep(NODE, None).await?;
        expect("the node is frozen", processes.powered(NODE).await? == Powered::Off)?;
        ipmi.wake(NODE).await?;
        expect("the node runs again", processes.powered(NODE).await? == Powered::On)?;
        // A file that exists and holds no password: that of the chassis script.
        let wrong = PathBuf::from(self.password).with_file_name("commands");
        expect("a wrong password is refused", client(wrong).powered(NODE).await.is_err())
    }

    /// A node goes off and on by Redfish.
    async fn try_redfish(&self) -> Result<()> {
        let service = |system: &str| Service { address: self.redfish.into(), system: system.into(), user: None };
        let client = |system: &str| {
            let services = BTreeMap::from([(NODE, service(system))]);
            Redfish::new(self.runtime.clone(), services, Off::Soft, CALL, PATIENCE)
        };
        let redfish = client("/redfish/v1/Systems/node");
        self.until("the controller by Redfish", async || Ok(Some(redfish.powered(NODE).await?))).await?;
        redfish.sleep(NODE, None).await?;
        expect("the node is off", redfish.powered(NODE).await? == Powered::Off)?;
        redfish.wake(NODE).await?;
        expect("the node is on", redfish.powered(NODE).await? == Powered::On)?;
        println!("peers: redfish watts: {:?}", redfish.watts(NODE).await);
        let other = client("/redfish/v1/Systems/nobody").powered(NODE).await;
        expect("no system of another name", other.is_err_and(|error| error.kind() == ErrorKind::NotFound))
    }

    /// Asks until there is an answer, or patience is at its end; then fails with the last error.
    async fn until<T>(&self, event: &str, mut ask: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
        let deadline = self.runtime.now().after(PATIENCE);
        loop {
            let asked = ask().await;
            let is_late = self.runtime.now() > deadline;
            match asked {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) if is_late => bail!(Timeout, "{event}: it never came"),
                Err(error) if is_late => return Err(error.context(event)),
                Ok(None) | Err(_) => self.runtime.sleep(Duration::from_millis(200)).await,
            }
        }
    }
}

fn expect(event: &str, holds: bool) -> Result<()> {
    if holds { Ok(()) } else { Err(err!(Internal, "not so: {event}")) }
}
