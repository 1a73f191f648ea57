//! The proxy as a part of a process: start, stop, and periodic work.

use std::sync::Arc;
use std::time::Duration;

use ebb_client::{Client, ClientOptions};
use ebb_rpc::{Connector, Counters, Server};
use ebb_runtime::{Runtime, Task};
use ebb_types::Result;
use ebb_wire::pb;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::files::Files;
use crate::front::Front;
use crate::options::ProxyOptions;
use crate::sessions::Sessions;

/// Interval at which the proxy looks for quiet files.
const TEND_EVERY: Duration = Duration::from_millis(500);
/// Interval at which the proxy looks for silent sessions.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// Deadline of one registration at a master.
const REGISTER_DEADLINE: Duration = Duration::from_secs(2);
/// Most time for giving files back before the end. The leases that are left then are recovered.
const STOP_MAX: Duration = Duration::from_secs(5);
/// Most time that the end waits for clients that wrote. They call within their commit interval, one second, and learn
/// that their writes were kept. The others treat them as lost, as after a crash.
const TELL_MAX: Duration = Duration::from_secs(3);
/// Interval at which the end looks whether all clients have called.
const TELL_LOOK: Duration = Duration::from_millis(20);

/// A running proxy.
pub struct Proxy {
    runtime: Runtime,
    client: Client,
    files: Arc<Files>,
    address: String,
    sessions: Sessions,
    masters: Vec<String>,
    register: pb::RegisterProxy,
    /// Registers the proxy at the masters, again and again.
    registering: Task<()>,
    tasks: Vec<Task<()>>,
    server: Mutex<Option<Task<Result<()>>>>,
    stop: Mutex<Option<oneshot::Sender<()>>>,
}

impl Proxy {
    /// Opens a session, listens, and registers at the master.
    pub async fn start(runtime: Runtime, options: ProxyOptions) -> Result<Self> {
        let counters = Counters::default();
        let connector = Connector::new(runtime.clone(), options.identity.clone(), counters.clone());
        let mut own = ClientOptions::new(options.masters.clone(), options.identity.host.clone(), "proxy");
        own.read_cache_bytes = options.read_cache_bytes;
        own.dirty_bytes_max = options.dirty_bytes_max;
        // It uses no names, and if it kept some, its death would make others wait.
        own.keep_names = false;
        own.short_circuit = false;
        // Ordering: it listens first. Otherwise, with a port in use, each attempt to start would leave a session
        // behind.
        let listener = runtime.listen(&options.listen).await?;
        let client = Client::connect(runtime.clone(), connector, own).await?;
        let address = options.advertise.clone().unwrap_or_else(|| listener.address());
        let boot = runtime.random_u64() | 1;
        let files = Arc::new(Files::new(runtime.clone(), client.clone(), options.files_max));
        let from_master = || Sessions::from_master(runtime.clone(), client.clone(), options.masters.clone());
        let sessions = options.sessions.clone().unwrap_or_else(from_master);
        let front = Front::new(
            runtime.clone(),
            client.clone(),
            boot,
            Arc::clone(&files),
            sessions.clone(),
            &options,
            counters.clone(),
        );
        let front = Arc::new(front);
        let (stop, stopped) = oneshot::channel();
        let stopping = async move {
            if stopped.await.is_err() {
                // No stop will come: it serves until its process ends.
                std::future::pending::<()>().await;
            }
        };
        let serving = Server::run_until(
            runtime.clone(),
            listener,
            options.identity.clone(),
            counters,
            options.server.clone(),
            Arc::clone(&front) as _,
            stopping,
        );
        let server = runtime.spawn("proxy", serving);
        let register = pb::RegisterProxy {
            session: 0,
            address: address.clone(),
            boot,
            name: options.name.clone(),
            leaving: false,
        };
        let keep = keep_registered(client.clone(), runtime.clone(), options.clone(), register.clone());
        let registering = runtime.spawn("register the proxy", keep);
        let tasks = vec![
            runtime.spawn("tend shared files", tend(Arc::clone(&files), runtime.clone(), options.quiet_time)),
            runtime.spawn("keep sessions believed", sessions.clone().keep()),
            runtime.spawn("sweep results", sweep(Arc::clone(&front), runtime.clone())),
            runtime.spawn("sweep held calls", sweep_held(front, runtime.clone())),
        ];
        tracing::info!(address, "proxy serves");
        let (server, stop) = (Mutex::new(Some(server)), Mutex::new(Some(stop)));
        let masters = options.masters;
        Ok(Self { runtime, client, files, address, sessions, masters, register, registering, tasks, server, stop })
    }

    /// Where it is reached.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Gives all files back with everything synced, answers requests under way, and ends the session. Before the
    /// server ends, clients learn that their writes were kept.
    pub async fn stop(&self) -> Result<()> {
        self.registering.abort();
        self.say_that_it_leaves().await;
        let purpose = "giving back what was held for several clients";
        let given_back = async {
            self.files.leave().await;
            Ok(())
        };
        // The end of the session tries the rest once more.
        if let Err(error) = self.runtime.timeout(STOP_MAX, purpose, given_back).await {
            tracing::warn!(%error, "this proxy is to end");
        }
        self.wait_until_heard().await;
        for task in &self.tasks {
            task.abort();
        }
        if let Some(stop) = self.stop.lock().take() {
            // The send fails if the server has ended by itself.
            let _ = stop.send(());
        }
        let server = self.server.lock().take();
        if let Some(server) = server {
            server.join().await??;
        }
        let ended = self.runtime.timeout(STOP_MAX, purpose, self.client.disconnect()).await;
        self.files.end_all();
        ended
    }

    /// Asks the masters to send clients to other proxies from now on.
    async fn say_that_it_leaves(&self) {
        let register =
            pb::RegisterProxy { session: self.client.session().raw(), leaving: true, ..self.register.clone() };
        register_at_masters(&self.client, &self.masters, &register).await;
    }

    /// Waits until all clients that wrote have learnt that their writes were kept, but for [`TELL_MAX`] at most.
    async fn wait_until_heard(&self) {
        let started = self.runtime.now();
        let lives = |session| self.sessions.may_live(session);
        loop {
            let unheard = self.files.unheard(lives, TELL_MAX);
            if unheard == 0 {
                return;
            }
            if self.runtime.now().since(started) >= TELL_MAX {
                tracing::warn!(unheard, "clients of shared files did not come to hear that their writes were kept");
                return;
            }
            self.runtime.sleep(TELL_LOOK).await;
        }
    }
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Proxy({})", self.address)
    }
}

/// Registers at the masters again and again: a new master process does not know this proxy, and its session may be new.
async fn keep_registered(client: Client, runtime: Runtime, options: ProxyOptions, mut register: pb::RegisterProxy) {
    loop {
        register.session = client.session().raw();
        register_at_masters(&client, &options.masters, &register).await;
        runtime.sleep(options.register_every).await;
    }
}

/// Sends the registration to the first master that answers.
async fn register_at_masters(client: &Client, masters: &[String], register: &pb::RegisterProxy) {
    for master in masters {
        match client.connector().channel(master).call(register, REGISTER_DEADLINE).await {
            Ok(_) => break,
            Err(error) => tracing::debug!(master, %error, "telling the master where the proxy is"),
        }
    }
}

async fn tend(files: Arc<Files>, runtime: Runtime, quiet_time: Duration) {
    loop {
        runtime.sleep(TEND_EVERY).await;
        files.tend(quiet_time);
    }
}

async fn sweep_held(front: Arc<Front>, runtime: Runtime) {
    loop {
        runtime.sleep(TEND_EVERY).await;
        front.relay.sweep();
        front.stopovers.sweep();
    }
}

async fn sweep(front: Arc<Front>, runtime: Runtime) {
    loop {
        runtime.sleep(SWEEP_EVERY).await;
        front.results.lock().sweep(runtime.now());
    }
}
