//! `ebb node join`.

use std::io::Read as _;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};

use clap::Args;
use ebb_cli::directory::ClusterDir;
use ebb_cli::host::{self, BlockPlace, HostFile, Place, ports};
use ebb_cli::joining::Joining;
use ebb_cli::token::Token;
use ebb_cli::{Context, admin};
use ebb_identity::{CertifiedKey, Holder};
use ebb_rpc::{Connector, Counters, Identity};
use ebb_runtime::Runtime;
use ebb_types::{Error, ErrorKind, HostName, Result, Role, bail, err};
use ebb_wire::pb;
use serde_json::json;

use super::check;

/// Options of `ebb node join`.
#[derive(Debug, Args)]
pub struct JoinArgs {
    /// File with the token that `ebb node token` printed; `-` reads standard input.
    #[arg(long, value_name = "FILE")]
    token: PathBuf,
    /// Declared name of this host: the unit of locality and failure [default: its name in the token, or its own].
    #[arg(long)]
    host: Option<String>,
    /// Declared rack [default: r1].
    #[arg(long)]
    rack: Option<String>,
    /// Address that the block server listens on, as ip:port [default: port 7001 of the address from which this host reaches
    /// the master]. The worker listens on the next port.
    #[arg(long, value_name = "IP:PORT")]
    listen: Option<String>,
    /// Address at which others reach the block server, as ip:port or name:port [default: that of --listen].
    #[arg(long, value_name = "HOST:PORT")]
    advertise: Option<String>,
    /// Directory for replicas, one for each disk; may be repeated [default: one in the cluster's directory].
    #[arg(long = "volume", value_name = "DIR")]
    volumes: Vec<PathBuf>,
}

/// Makes this host a part of the cluster: certificates, `cluster.toml`, `host.toml`. Each step can be repeated, so a join that
/// was interrupted goes on with the same token.
pub async fn run(context: &Context, args: JoinArgs) -> Result<()> {
    let token = read_token(&args.token)?;
    let dir = context.dir_of_host();
    refuse_member(&dir)?;
    let mut settings = settings(&args, &token)?;
    try_to_listen(&settings).await?;
    let name = settings.host.clone().unwrap_or_default();
    let joining = Joining::begin_or_resume(&dir, &token, &name)?;
    let reply = admission(&token, &joining).await?;
    let cluster = joining.finish(&token, &reply)?;
    let file = match settings.write_new(&cluster.path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::Exists => {
            context.output.warn(error.detail());
            settings = HostFile::read(&cluster.path)?.unwrap_or_default();
            host::path(&cluster.path)
        }
        Err(error) => return Err(error),
    };
    let roles = token.roles.join(", ");
    let reached = match settings.block {
        Some(_) => Some(check::reachable(&cluster, &settings).await?),
        None => None,
    };
    let mut sentence = format!(
        "{name} has joined cluster {} as {roles}; its settings are in {}",
        cluster.file.cluster,
        file.display()
    );
    if let Some(address) = &reached {
        sentence += &format!("\nthe master reaches this host at {address}");
    }
    let value = json!({
        "cluster": cluster.file.cluster, "host": name, "roles": token.roles, "settings": file.display().to_string(),
        "reached": reached.as_ref().map(|_| true), "address": reached,
    });
    context.output.answer(&sentence, &value);
    Ok(())
}

fn read_token(path: &Path) -> Result<Token> {
    let mut text = String::new();
    let read = if path == Path::new("-") {
        std::io::stdin().take(64 << 10).read_to_string(&mut text)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(64 << 10).read_to_string(&mut text))
    };
    read.map_err(|error| Error::from_io(&error, format!("token {}", path.display())))?;
    Token::decode(&text)
}

/// A host is in one cluster.
fn refuse_member(dir: &Path) -> Result<()> {
    match ClusterDir::open(dir) {
        Ok(cluster) => bail!(
            Exists,
            "this host is in cluster {} ({}): `ebb node remove` takes it out, then move the directory away",
            cluster.file.cluster,
            cluster.path.display()
        ),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Refuses addresses of other hosts, and ports that another process has, before the token is used up.
async fn try_to_listen(settings: &HostFile) -> Result<()> {
    let block = settings.block.as_ref().and_then(|block| block.listen.as_deref());
    let worker = settings.worker.as_ref().and_then(|worker| worker.listen.as_deref());
    for address in block.into_iter().chain(worker) {
        Runtime::real().listen(address).await.map_err(|error| error.context(format_args!("--listen {address}")))?;
    }
    Ok(())
}

/// The settings that the host begins with.
fn settings(args: &JoinArgs, token: &Token) -> Result<HostFile> {
    let named = token.key.subject().host.as_ref().map(HostName::as_str);
    let own = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    let name = args.host.clone().or_else(|| named.map(str::to_owned)).unwrap_or_else(own);
    let may = |role: Role| token.roles.iter().any(|name| name == role.name());
    let mut file = HostFile { host: Some(name), rack: args.rack.clone(), ..HostFile::default() };
    if !may(Role::Block) && !may(Role::Worker) {
        return Ok(file);
    }
    let listen = match &args.listen {
        Some(listen) => listen.clone(),
        None => format!("{}:{}", own_address(&token.masters)?, ports::BLOCK),
    };
    let place = Place { listen: Some(listen.clone()), advertise: args.advertise.clone() };
    // Before anything is used up.
    host::check(&place.advertised(&listen)?)?;
    if may(Role::Worker) {
        let beside = |address: &String| next_port(address);
        file.worker = Some(Place {
            listen: place.listen.as_ref().map(beside).transpose()?,
            advertise: place.advertise.as_ref().map(beside).transpose()?,
        });
    }
    if may(Role::Block) {
        let volumes = args.volumes.iter().map(|volume| absolute(volume)).collect::<Result<_>>()?;
        let Place { listen, advertise } = place;
        file.block = Some(BlockPlace { listen, advertise, volumes, ..BlockPlace::default() });
    }
    Ok(file)
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| Error::from_io(&error, path.display()))
}

fn next_port(address: &String) -> Result<String> {
    let next = address.rsplit_once(':').and_then(|(host, port)| {
        let port: u16 = port.parse().ok().filter(|port| *port != 0)?;
        Some(format!("{host}:{}", port.checked_add(1)?))
    });
    next.ok_or_else(|| {
        err!(Invalid, "{address:?} has no port before another one: write HOST:PORT, as in 10.0.0.2:7001")
    })
}

/// The address from which this host reaches a master, as the kernel routes. Nothing is sent.
fn own_address(masters: &[String]) -> Result<String> {
    let routed = |master: &String| {
        let any = if master.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
        let socket = UdpSocket::bind(any)?;
        socket.connect(master)?;
        socket.local_addr()
    };
    let mut failure = None;
    for master in masters {
        match routed(master) {
            Ok(address) if address.is_ipv6() => return Ok(format!("[{}]", address.ip())),
            Ok(address) => return Ok(address.ip().to_string()),
            Err(error) => failure = Some(Error::from_io(&error, master)),
        }
    }
    Err(failure.unwrap_or_else(|| err!(Invalid, "the token names no master")))
}

/// Asks a master for the certificates.
async fn admission(token: &Token, joining: &Joining) -> Result<pb::JoinClusterReply> {
    let runtime = Runtime::real();
    let holder = Holder::new(runtime.clone(), CertifiedKey::from_pem(token.key.to_pem())?, token.wire.parse()?)?;
    let identity = Identity::certified(holder, joining.host.clone())?;
    let call = joining.request(runtime.wall());
    let connector = Connector::new(runtime, identity, Counters::default());
    let mut failure = None;
    for master in &token.masters {
        match connector.channel(master).call(&call, admin::ASK).await {
            Ok(reply) => return Ok(reply),
            Err(error) if error.kind() == ErrorKind::Unreachable => failure = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(failure.unwrap_or_else(|| err!(Invalid, "the token names no master")))
}
