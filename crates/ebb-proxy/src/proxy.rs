//! The proxy as a process part: start, stop, and what time brings.

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

/// Between looks at what has become quiet.
const TEND_EVERY: Duration = Duration::from_millis(500);
/// Between looks at sessions that have gone silent.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// One attempt to tell a master where this proxy is.
const REGISTER_DEADLINE: Duration = Duration::from_secs(2);
/// Giving everything back before the end takes no longer: what is not given back by then is recovered.
const STOP_MAX: Duration = Duration::from_secs(5);
/// Clients that wrote come within their commit interval, one second, to hear that it was kept. Those that do not are told, as
/// after a crash, that it may be lost.
const TELL_MAX: Duration = Duration::from_secs(3);
/// Between looks whether all have come.
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
    /// Tells masters where this proxy is, again and again.
    registering: Task<()>,
    tasks: Vec<Task<()>>,
    server: Mutex<Option<Task<Result<()>>>>,
    stop: Mutex<Option<oneshot::Sender<()>>>,
}

impl Proxy {
    /// Opens a session, listens, and tells the master.
    pub async fn start(runtime: Runtime, options: ProxyOptions) -> Result<Self> {
        let counters = Counters::default();
        let connector = Connector::new(runtime.clone(), options.identity.clone(), counters.clone());
        let mut own = ClientOptions::new(options.masters.clone(), options.identity.host.clone(), "proxy");
        own.read_cache_bytes = options.read_cache_bytes;
        own.dirty_bytes_max = options.dirty_bytes_max;
        // Names are none of its business, and its death would make others wait.
        own.keep_names = false;
        own.short_circuit = false;
        // First: where nobody can be listened to, every attempt would leave a session behind.
        let listener = runtime.listen(&options.listen).await?;
        let client = Client::connect(runtime.clone(), connector, own).await?;
        let address = listener.address();
        let boot = runtime.random_u64() | 1;
        let files = Arc::new(Files::new(runtime.clone(), client.clone(), options.files_max));
        let told = || Sessions::told(runtime.clone(), client.clone(), options.masters.clone());
        let sessions = options.sessions.clone().unwrap_or_else(told);
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
                // Nobody will ask: it serves until its process ends.
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

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Gives all files back with everything synced, answers what is under way, and ends the session. Clients are told that
    /// their writes were kept, before the server ends.
    pub async fn stop(&self) -> Result<()> {
        self.registering.abort();
        self.say_that_it_leaves().await;
        let what = "giving back what was held for several clients";
        let given_back = async {
            self.files.leave().await;
            Ok(())
        };
        // What could not be given back is tried once more with the session's end.
        if let Err(error) = self.runtime.timeout(STOP_MAX, what, given_back).await {
            tracing::warn!(%error, "this proxy is to end");
        }
        self.tell_all().await;
        for task in &self.tasks {
            task.abort();
        }
        if let Some(stop) = self.stop.lock().take() {
            // The server may have ended by itself.
            let _ = stop.send(());
        }
        let server = self.server.lock().take();
        if let Some(server) = server {
            server.join().await??;
        }
        let ended = self.runtime.timeout(STOP_MAX, what, self.client.disconnect()).await;
        self.files.end_all();
        ended
    }

    /// From now on the masters send clients to other proxies.
    async fn say_that_it_leaves(&self) {
        let register =
            pb::RegisterProxy { session: self.client.session().raw(), leaving: true, ..self.register.clone() };
        tell_masters(&self.client, &self.masters, &register).await;
    }

    /// Waits until all that have cause to come have heard that everything was kept, and for no longer than it may take.
    async fn tell_all(&self) {
        let started = self.runtime.now();
        let lives = |session| self.sessions.may_live(session);
        loop {
            let untold = self.files.untold(lives, TELL_MAX);
            if untold == 0 {
                return;
            }
            if self.runtime.now().since(started) >= TELL_MAX {
                tracing::warn!(untold, "clients of shared files did not come to hear that their writes were kept");
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

/// Tells the master again and again: a new process of it, or of its group, has not heard; and the session may be new.
async fn keep_registered(client: Client, runtime: Runtime, options: ProxyOptions, mut register: pb::RegisterProxy) {
    loop {
        register.session = client.session().raw();
        tell_masters(&client, &options.masters, &register).await;
        runtime.sleep(options.register_every).await;
    }
}

/// Tells the first master that answers.
async fn tell_masters(client: &Client, masters: &[String], register: &pb::RegisterProxy) {
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
