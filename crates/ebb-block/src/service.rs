//! Life of a block server: open, listen, register, serve, stop.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ebb_handoff::HandoffLog;
use ebb_rpc::{Connector, Counters, Identity, Server, ServerOptions};
use ebb_runtime::{Runtime, Task};
use ebb_store::{Volume, VolumeOptions};
use ebb_types::{Error, ErrorKind, HostName, NodeId, RackName, Result, bail};
use tokio::sync::oneshot;

use crate::handle::BlockService;
use crate::identity;
use crate::node::Node;
use crate::patrol::{self, PatrolOptions};
use crate::register::{self, Introduction};
use crate::{handoff, short_circuit};

/// The socket in a node's data directory over which clients of its host get descriptors.
const SHORT_CIRCUIT_SOCKET: &str = "short-circuit.sock";
/// The handoff log in a node's data directory. A disk keeps the name that its format began with.
const HANDOFF_DIR: &str = "offload";

/// A block server's options at start.
#[derive(Clone, Debug)]
pub struct BlockOptions {
    /// Where the node remembers its id.
    pub data_dir: PathBuf,
    /// A directory for each volume. At first one, `volume-1` in the data directory. Without any, nothing is placed on the
    /// node: it tells the master when processes of its host end, and is switched by power plans.
    pub volumes: Vec<PathBuf>,
    /// Declared host.
    pub host: HostName,
    /// Declared rack.
    pub rack: RackName,
    /// Hosts of its sub-rack, for which it is the localized storage node. None: it is none.
    pub serves_hosts: Vec<HostName>,
    /// Where to listen, `ip:port`; port 0 takes any.
    pub listen: String,
    /// The address to tell the master, if it is not the one listened on.
    pub advertise: Option<String>,
    /// Masters' addresses.
    pub masters: Vec<String>,
    /// This process' identity for its peers: cluster, secret, host, role "block".
    pub identity: Identity,
    /// Of the process, for people and tools.
    pub pid: u32,
    /// How volumes behave; cluster and node are filled in.
    pub volume: VolumeOptions,
    /// Bounds of the server.
    pub server: ServerOptions,
    /// Scrubbing in the background.
    pub patrol: PatrolOptions,
    /// Whether clients of this host may read replicas' files by themselves.
    pub short_circuit: bool,
    /// How often all replicas are reported to the master again; zero: only at registration. For so long the space of a
    /// replica may be lost that a late write has made.
    pub report_every: Duration,
    /// Most bytes in the handoff log.
    pub handoff_bytes_max: usize,
    /// Most bytes of direct writes in memory that were put here and are not synced by all members; more are refused, and go
    /// by way of the proxy.
    pub staged_bytes_max: usize,
}

impl BlockOptions {
    /// Defaults for a node with this data directory.
    #[must_use]
    pub fn new(data_dir: PathBuf, identity: Identity, masters: Vec<String>) -> Self {
        Self {
            volumes: vec![data_dir.join("volume-1")],
            data_dir,
            host: identity.host.clone(),
            rack: RackName::default(),
            serves_hosts: Vec::new(),
            listen: "127.0.0.1:0".into(),
            advertise: None,
            masters,
            pid: 0,
            volume: VolumeOptions::new(identity.cluster, None),
            server: ServerOptions::default(),
            patrol: PatrolOptions::default(),
            short_circuit: true,
            report_every: Duration::from_secs(3600),
            handoff_bytes_max: 64 << 20,
            staged_bytes_max: 64 << 20,
            identity,
        }
    }
}

/// A running block server. It ends with [`BlockServer::stop`], or with its process.
#[derive(Debug)]
pub struct BlockServer {
    node: Arc<Node>,
    address: String,
    stop: oneshot::Sender<()>,
    serving: Task<Result<()>>,
    registering: Task<()>,
    patrol: Task<()>,
    tidying: Task<()>,
    attending: Task<()>,
    short_circuit_task: Option<Task<()>>,
}

impl BlockServer {
    /// Opens the volumes, listens, and begins to register. Volumes that have their ids are served at once.
    ///
    /// Errors: what [`Volume::open`] says of a volume of another cluster or node, or one in use; `Corrupt` if no volume
    /// can be opened at all (with others left, a damaged one is reported in the log and left out).
    pub async fn start(runtime: Runtime, options: BlockOptions) -> Result<Self> {
        let disk = runtime.disk();
        disk.create_dir_all(&options.data_dir).await?;
        let identity::Identity { node: id, position } =
            identity::read(&disk, &options.data_dir, options.identity.cluster).await?;
        let volumes = open_volumes(&runtime, &options, id).await?;
        // The volumes know their node even if its own file is lost.
        let id = id.or_else(|| volumes.iter().find_map(|volume| volume.label().node));

        let listener = runtime.listen(&options.listen).await?;
        let address = options.advertise.clone().unwrap_or_else(|| listener.address());
        let counters = Counters::default();
        counters.set_sub_rack(options.serves_hosts.clone());
        let connector = Connector::new(runtime.clone(), options.identity.clone(), counters.clone());
        let handoff =
            HandoffLog::open(&runtime, &options.data_dir.join(HANDOFF_DIR), options.handoff_bytes_max, false).await?;
        let (data_dir, masters) = (options.data_dir.clone(), options.masters);
        let attend = ebb_rpc::attend(connector.clone(), masters.clone(), String::new(), || false);
        let attending = runtime.spawn("block-attend", attend);
        let node = Node::new(&runtime, volumes, (id, position), data_dir, masters, connector, handoff);
        let node = Arc::new(node.with_staging(options.staged_bytes_max));
        let (stop, stopped) = oneshot::channel::<()>();
        let service = Arc::new(BlockService(node.clone()));
        let serve =
            Server::run_until(runtime.clone(), listener, options.identity, counters, options.server, service, async {
                // A handle that is dropped without a stop leaves the server running.
                if stopped.await.is_err() {
                    std::future::pending::<()>().await;
                }
            });
        let serving = runtime.spawn("block-serve", serve);
        let introduction = Introduction {
            host: options.host.as_str().to_owned(),
            rack: options.rack.as_str().to_owned(),
            serves_hosts: options.serves_hosts.iter().map(ToString::to_string).collect(),
            address: address.clone(),
            pid: options.pid,
        };
        let registering =
            runtime.spawn("block-register", register::run(node.clone(), introduction, options.report_every));
        let patrol = runtime.spawn("block-patrol", patrol::run(node.clone(), options.patrol));
        let tidying = runtime.spawn("block-handoff", handoff::tidy(node.clone()));
        let short_circuit_task = match options.short_circuit {
            true => serve_short_circuit(&node, options.data_dir.join(SHORT_CIRCUIT_SOCKET)).await,
            false => None,
        };
        Ok(Self { node, address, stop, serving, registering, patrol, tidying, attending, short_circuit_task })
    }

    /// Where it is reached.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Its id; none before the first registration.
    #[must_use]
    pub fn node(&self) -> Option<NodeId> {
        self.node.id()
    }

    /// Why no master registers what this process declares. A node that was never registered cannot hope for it: nothing
    /// here is known to any other. One that was goes on trying, since another node may change instead.
    #[must_use]
    pub fn declined(&self) -> Option<Error> {
        self.node.seen.declined().filter(|_| self.node.id().is_none())
    }

    /// Its volumes, in the order of the options.
    #[must_use]
    pub fn volumes(&self) -> &[Volume] {
        &self.node.volumes
    }

    /// Takes no further requests, answers those in progress, syncs everything and leaves volumes that need no replay.
    pub async fn stop(self) -> Result<()> {
        self.registering.abort();
        self.patrol.abort();
        self.tidying.abort();
        self.attending.abort();
        if let Some(short_circuit_task) = &self.short_circuit_task {
            short_circuit_task.abort();
        }
        // It may have ended by itself.
        let _ = self.stop.send(());
        let served = self.serving.join().await?;
        let mut done = served;
        for volume in &self.node.volumes {
            let stopped = volume.stop().await;
            if let Err(error) = &stopped {
                tracing::warn!(volume = %volume.path().display(), %error, "volume not closed cleanly");
            }
            done = done.and(stopped);
        }
        done
    }
}

/// Runs a block server until `stop` completes, then stops it gracefully.
pub async fn run(runtime: Runtime, options: BlockOptions, stop: impl Future<Output = ()>) -> Result<()> {
    let server = BlockServer::start(runtime, options).await?;
    tracing::info!(address = server.address(), "serving");
    stop.await;
    server.stop().await
}

/// Without a socket clients read as those of other hosts do.
async fn serve_short_circuit(node: &Arc<Node>, path: PathBuf) -> Option<Task<()>> {
    // Clients have working directories of their own.
    let path = std::path::absolute(&path).unwrap_or(path);
    match node.runtime.listen_local(&path).await {
        Ok(listener) => {
            node.short_circuit.listen_at(path);
            Some(node.runtime.spawn("block-short-circuit", short_circuit::serve(node.clone(), listener)))
        }
        Err(error) => {
            tracing::warn!(%error, "clients of this host get no descriptors");
            None
        }
    }
}

async fn open_volumes(runtime: &Runtime, options: &BlockOptions, node: Option<NodeId>) -> Result<Vec<Volume>> {
    let volume_options = VolumeOptions { cluster: options.identity.cluster, node, ..options.volume.clone() };
    let mut volumes = Vec::new();
    let mut damaged = None;
    for path in &options.volumes {
        match Volume::open(runtime, path, volume_options.clone()).await {
            Ok(volume) => volumes.push(volume),
            Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Io) => {
                tracing::error!(volume = %path.display(), %error, "volume left out");
                damaged = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    match damaged {
        Some(error) if volumes.is_empty() => bail!(Corrupt, "no volume can be served: {error}"),
        _ => Ok(volumes),
    }
}
