//! Files made per second through calls and log on the real back end, with 1, 8 and 64 callers; and how long a restart
//! of the master takes with 100,000 files; in a directory that has them already, only that.
//! `cargo run -p ebb-master --example create_rate [directory]`

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use ebb_identity::tls::Wire;
use ebb_identity::{Authority, Subject};
use ebb_master::{Master, Options};
use ebb_rpc::{Channel, Connector, Counters, Identity};
use ebb_runtime::Runtime;
use ebb_types::{ClusterId, HostName, Result, Role};
use ebb_wire::pb;

const DEADLINE: Duration = Duration::from_secs(30);

fn identity(role: Role) -> Identity {
    static AUTHORITY: OnceLock<Authority> = OnceLock::new();
    let (cluster, runtime) = (ClusterId::new(1), Runtime::real());
    let authority = AUTHORITY.get_or_init(|| Authority::create(cluster, runtime.wall()).expect("random bytes"));
    let subject = Subject::process(cluster, role, HostName::new("h1"));
    Identity::issued(authority, &runtime, &subject, Wire::Encrypted).expect("a plain host")
}

fn create(session: u64, request: u64, name: &str) -> pb::MetaRequest {
    let name = name.as_bytes().to_vec();
    let op = pb::meta_op::Create { parent: 1, name, mode: 0o644, no_grant: true, ..Default::default() };
    let op = Some(pb::MetaOp { op: Some(pb::meta_op::Op::Create(op)) });
    pb::MetaRequest {
        session,
        request,
        acknowledged: request,
        credentials: Some(pb::Credentials::default()),
        op,
        lease: false,
    }
}

async fn keep_alive(channel: Channel, session: u64) {
    let mut poll = pb::Poll { session, wait_ms: 4000, ..Default::default() };
    while let Ok(reply) = channel.call(&poll, DEADLINE).await {
        poll.node_map_version = reply.node_map_version;
    }
}

async fn caller(runtime: Runtime, channel: Channel, name: String, count: u64) -> Result<()> {
    let open = pb::OpenSession { host: "h1".into(), role: "cli".into(), pid: 1, ..Default::default() };
    let session = channel.call(&open, DEADLINE).await?.session;
    // It ends when the session does.
    runtime.spawn("keep-alive", keep_alive(channel.clone(), session));
    for request in 1..=count {
        channel.call(&create(session, request, &format!("{name}-{request}")), DEADLINE).await?;
    }
    channel.call(&pb::CloseSession { session }, DEADLINE).await.map(|_| ())
}

async fn measure(runtime: &Runtime, address: &str, callers: u64, count: u64) -> Result<()> {
    let connector = Connector::new(runtime.clone(), identity(Role::Operator), Counters::default());
    let begun = runtime.now();
    let tasks: Vec<_> = (0..callers)
        .map(|number| {
            let name = format!("{callers}-{number}-{}", begun.0.as_nanos());
            runtime.spawn("caller", caller(runtime.clone(), connector.channel(address), name, count / callers))
        })
        .collect();
    for task in tasks {
        task.join().await??;
    }
    let took = runtime.now().since(begun).as_secs_f64();
    let rate = count as f64 / took;
    println!("{callers:3} callers: {rate:8.0} files/s, {:.2} ms each", took * 1e3 * callers as f64 / count as f64);
    Ok(())
}

async fn run(dir: PathBuf) -> Result<()> {
    let runtime = Runtime::real();
    let again = runtime.disk().exists(&dir.join("master")).await?;
    let options = Options::new(dir, "127.0.0.1:0", identity(Role::Master));
    if again {
        return restart(&runtime, &options).await;
    }
    let master = Master::start(runtime.clone(), options.clone()).await?;
    let address = master.address().to_owned();
    measure(&runtime, &address, 1, 1000).await?;
    measure(&runtime, &address, 8, 8000).await?;
    measure(&runtime, &address, 64, 91_000).await?;
    master.stop().await;
    restart(&runtime, &options).await
}

async fn restart(runtime: &Runtime, options: &Options) -> Result<()> {
    let begun = runtime.now();
    let master = Master::start(runtime.clone(), options.clone()).await?;
    println!("restart: {:.2} s", runtime.now().since(begun).as_secs_f64());
    master.stop().await;
    Ok(())
}

fn main() -> Result<()> {
    let dir = std::env::args().nth(1).map_or_else(|| std::env::temp_dir().join("ebb-create-rate"), PathBuf::from);
    let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime starts");
    threads.block_on(run(dir))
}
