//! `ebb cluster init`.

use std::net::SocketAddr;

use clap::Args;
use ebb_cli::Context;
use ebb_cli::directory::{ClusterDir, is_absent};
use ebb_cli::host::{self, HostFile, Place};
use ebb_identity::tls::Wire;
use ebb_types::{Result, bail};
use serde_json::json;

/// Options of `ebb cluster init`.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Address of the master, as all hosts reach it: `ip:port`, `[ip]:port` for IPv6, or `name:port`.
    #[arg(long, value_name = "HOST:PORT")]
    master: String,
    /// Address that the master listens on here, as `ip:port` [default: that of --master; if it is a name, all networks].
    #[arg(long, value_name = "IP:PORT")]
    listen: Option<String>,
    /// Declared name of this host, if other processes of the cluster run here too: the unit of locality and failure.
    #[arg(long)]
    host: Option<String>,
    /// Copies in the default dataset.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=16))]
    replicas: u32,
    /// What connections carry after the peers have proved themselves: encrypted, or plain bytes that whoever sits on the
    /// network reads and changes.
    #[arg(long, default_value = "encrypted", value_name = "KIND")]
    wire: Wire,
}

/// Makes the directory of a new cluster: its id, its authority, its settings. Starts nothing.
pub fn run(context: &Context, args: &InitArgs) -> Result<()> {
    let path = context.dir_of_host();
    match ClusterDir::open(&path) {
        Ok(cluster) => bail!(Exists, "{} has cluster {} already", cluster.path.display(), cluster.file.cluster),
        Err(error) if is_absent(&error) => super::up::refuse_foreign_directory(&path)?,
        Err(error) => return Err(error),
    }
    host::check(&args.master).map_err(|error| error.context("--master"))?;
    let place = Place { listen: Some(args.listen.clone().unwrap_or_else(|| listen_of(&args.master))), advertise: None };
    let mut cluster = ClusterDir::create(&path, args.replicas, args.wire)?;
    cluster.file.masters = vec![args.master.clone()];
    cluster.save()?;
    let settings = HostFile { host: args.host.clone(), master: Some(place), ..HostFile::default() };
    let file = settings.write_new(&cluster.path)?;
    let dir = cluster.path.display();
    let Some(authority) = cluster.keys().authority()? else { bail!(Internal, "{dir} has no authority") };
    let fingerprint: String = authority.fingerprint().iter().map(|byte| format!("{byte:02x}")).collect();
    context.output.answer(
        &format!(
            "{dir} has cluster {}, and {} the settings of this host\nauthority: {fingerprint}\nstart the master: \
             `systemctl enable --now ebb-master`, or `ebb master --dir {dir}`",
            cluster.file.cluster,
            file.display()
        ),
        &json!({
            "cluster": cluster.file.cluster, "authority": fingerprint, "master": args.master, "wire": cluster.file.wire,
        }),
    );
    Ok(())
}

/// Where a master listens that others reach at this address. A name may lead to an address that is not this host's own.
fn listen_of(master: &str) -> String {
    if master.parse::<SocketAddr>().is_ok() {
        return master.to_owned();
    }
    let port = master.rsplit_once(':').map_or(master, |(_, port)| port);
    format!("[::]:{port}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_master_with_a_name_listens_on_all_networks() {
        assert_eq!(listen_of("10.0.0.1:7000"), "10.0.0.1:7000");
        assert_eq!(listen_of("[fd00::1]:7000"), "[fd00::1]:7000");
        assert_eq!(listen_of("m.example.org:7000"), "[::]:7000");
    }
}
