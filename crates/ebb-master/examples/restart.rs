//! How long a restart of the master takes with files that have metablocks, and sessions with their replies: from the
//! log alone up to the checkpoint interval, and from a checkpoint and the log behind it; with `pause` also how
//! long creates are held up while a checkpoint of ten times as many files is taken.
//! `cargo run -p ebb-master --example restart [directory] [files] [pause]`

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ebb_identity::tls::Wire;
use ebb_identity::{Authority, Subject};
use ebb_master::group::{Group, GroupOptions, Observer};
use ebb_master::log::DataDir;
use ebb_master::{Master, Options};
use ebb_meta::{Applied, Machine, Reply};
use ebb_rpc::Identity;
use ebb_runtime::Runtime;
use ebb_types::{ClusterId, HostName, Result, Role, bail};
use ebb_wire::pb;
use pb::command::Command as Op;

const CLUSTER: ClusterId = ClusterId::new(1);
const SESSIONS: u64 = 64;
/// Files in one commit, as a client's committer gathers them.
const TOGETHER: u64 = 50;

struct Nobody;

impl Observer for Nobody {
    fn on_applied(&self, _: &Machine, _: &pb::Command, _: &Applied) {}
}

fn identity() -> Identity {
    let runtime = Runtime::real();
    let authority = Authority::create(CLUSTER, runtime.wall()).expect("random bytes");
    let master = Subject::process(CLUSTER, Role::Master, HostName::new("h1"));
    Identity::issued(&authority, &runtime, &master, Wire::Encrypted).expect("a plain host")
}

fn client(session: u64, request: u64, op: pb::meta_op::Op, placements: Vec<pb::Placement>) -> Op {
    let op = Some(pb::MetaOp { op: Some(op) });
    let credentials = Some(pb::Credentials::default());
    let acknowledged = request.saturating_sub(16);
    let request = pb::MetaRequest { session, request, acknowledged, credentials, op, lease: false };
    Op::Client(pb::ClientCommand { request: Some(request), placements })
}

async fn meta(group: &Group, op: Op) -> Result<pb::MetaReply> {
    match group.propose(op).await? {
        Reply::Meta(reply) => Ok(reply),
        other => bail!(Internal, "answered with {other:?}"),
    }
}

async fn session(group: &Group) -> Result<u64> {
    match group
        .propose(Op::OpenSession(pb::OpenSessionCommand {
            host: "h1".into(),
            role: "mount".into(),
            ..Default::default()
        }))
        .await?
    {
        Reply::Session(session) => Ok(session.raw()),
        other => bail!(Internal, "answered with {other:?}"),
    }
}

/// Makes files, each with a written metablock of three members, and gives their leases back.
async fn make_files(runtime: Runtime, group: Group, count: u64, longest_us: Arc<AtomicU64>) -> Result<()> {
    let session = session(&group).await?;
    let mut request = 0;
    let mut made = Vec::new();
    for number in 0..count {
        request += 1;
        let name = format!("file-{session}-{number}").into_bytes();
        let create = pb::meta_op::Create { parent: 1, name, mode: 0o644, ..Default::default() };
        let member = |node: u64| pb::Member { node, volume: node, incarnation: 1, home: 0 };
        let placement = pb::Placement { members: vec![member(1), member(2 + number % 2), member(4)] };
        let begun = runtime.now();
        let reply = meta(&group, client(session, request, pb::meta_op::Op::Create(create), vec![placement])).await?;
        let took = u64::try_from(runtime.now().since(begun).as_micros()).unwrap_or(u64::MAX);
        longest_us.fetch_max(took, Ordering::Relaxed);
        made.push(commit_of(&reply));
        if made.len() as u64 == TOGETHER || number + 1 == count {
            request += 1;
            let commit = pb::meta_op::Commit { files: std::mem::take(&mut made) };
            meta(&group, client(session, request, pb::meta_op::Op::Commit(commit), Vec::new())).await?;
        }
    }
    Ok(())
}

fn commit_of(created: &pb::MetaReply) -> pb::CommitFile {
    let attr = created.attr.unwrap_or_default();
    let version = Some(pb::Version { epoch: attr.epoch, seq: 1 });
    let metablocks = created.metablocks.iter().map(|m| pb::CommitMetablock { id: m.id, version, length: 4096 });
    pb::CommitFile {
        inode: attr.inode,
        epoch: attr.epoch,
        size: 4096,
        mtime_ns: attr.mtime_ns,
        metablocks: metablocks.collect(),
        release: true,
        ..Default::default()
    }
}

async fn fill(runtime: &Runtime, dir: &Path, options: GroupOptions, files: u64) -> Result<()> {
    let data_dir = DataDir::open(runtime, dir, CLUSTER).await?;
    let opened = Group::open(runtime, &data_dir, CLUSTER, options).await?;
    let group = opened.group().clone();
    let task = opened.serve(Arc::new(Nobody));
    let init = pb::InitCluster {
        cluster: CLUSTER.raw(),
        default_replicas: 3,
        extra_share_percent: 10,
        version: ebb_meta::version::NEWEST,
    };
    group.propose(Op::InitCluster(init)).await?;
    for node in 1..=4 {
        let volume = pb::Volume { incarnation: 1, path: format!("/v{node}"), ..Default::default() };
        let register = pb::RegisterNodeCommand {
            node: 0,
            host: format!("h{node}"),
            rack: format!("r{node}"),
            address: format!("127.0.0.1:{node}"),
            volumes: vec![volume],
            ..Default::default()
        };
        group.propose(Op::RegisterNode(register)).await?;
    }
    many(runtime, &group, files).await?;
    // Some sessions work on: a checkpoint that is due comes to its end.
    while unfinished(runtime, dir).await? {
        many(runtime, &group, SESSIONS).await?;
    }
    group.stop();
    task.join().await?
}

async fn unfinished(runtime: &Runtime, dir: &Path) -> Result<bool> {
    Ok(runtime.disk().read_dir(dir).await?.iter().any(|name| name.starts_with("checkpoint") && name.ends_with("shed")))
}

/// Returns the longest create in microseconds.
async fn many(runtime: &Runtime, group: &Group, files: u64) -> Result<u64> {
    let longest = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..SESSIONS)
        .map(|_| {
            let work = make_files(runtime.clone(), group.clone(), files / SESSIONS, Arc::clone(&longest));
            runtime.spawn("caller", work)
        })
        .collect();
    for task in tasks {
        task.join().await??;
    }
    Ok(longest.load(Ordering::Relaxed))
}

async fn restart(runtime: &Runtime, dir: &Path, label: &str) -> Result<()> {
    let mut times = Vec::new();
    for _ in 0..5 {
        let begun = runtime.now();
        let master = Master::start(runtime.clone(), Options::new(dir.to_owned(), "127.0.0.1:0", identity())).await?;
        times.push(runtime.now().since(begun));
        master.stop().await;
    }
    times.sort_unstable();
    println!("{label}: median {:.2} s, from {:.2} to {:.2}", secs(times[2]), secs(times[0]), secs(times[4]));
    Ok(())
}

fn secs(span: Duration) -> f64 {
    span.as_secs_f64()
}

/// The longest create while nothing else happens, and while a checkpoint of all these files is written.
async fn pause(runtime: &Runtime, dir: &Path, files: u64) -> Result<()> {
    let data_dir = DataDir::open(runtime, dir, CLUSTER).await?;
    let options = GroupOptions { checkpoint_entries: u64::MAX, checkpoint_bytes: u64::MAX, ..Default::default() };
    let opened = Group::open(runtime, &data_dir, CLUSTER, options).await?;
    let group = opened.group().clone();
    let task = opened.serve(Arc::new(Nobody));
    many(runtime, &group, files).await?;
    let quiet = many(runtime, &group, SESSIONS * 100).await?;
    group.checkpoint();
    let begun = runtime.now();
    let mut busy = 0;
    loop {
        busy = busy.max(many(runtime, &group, SESSIONS * 20).await?);
        if !unfinished(runtime, dir).await? {
            break;
        }
    }
    println!(
        "{files} files: longest create {:.1} ms without, {:.1} ms during a checkpoint of {:.1} s",
        quiet as f64 / 1e3,
        busy as f64 / 1e3,
        secs(runtime.now().since(begun))
    );
    group.stop();
    task.join().await?
}

async fn run(dir: PathBuf, files: u64, with_pause: bool) -> Result<()> {
    let runtime = Runtime::real();
    let (log, both, paused) = (dir.join("log"), dir.join("both"), dir.join("pause"));
    let interval = GroupOptions::default().checkpoint_entries;
    let none = GroupOptions { checkpoint_entries: u64::MAX, checkpoint_bytes: u64::MAX, ..Default::default() };
    if !runtime.disk().exists(&log.join("master")).await? {
        fill(&runtime, &log, none, interval * TOGETHER / (TOGETHER + 2)).await?;
        fill(&runtime, &both, GroupOptions::default(), files).await?;
    }
    restart(&runtime, &log, "restart from a log up to the interval").await?;
    restart(&runtime, &both, &format!("restart from checkpoint and log, {files} files")).await?;
    if with_pause { pause(&runtime, &paused, files * 10).await } else { Ok(()) }
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().map_or_else(|| std::env::temp_dir().join("ebb-restart"), PathBuf::from);
    let files = args.next().and_then(|files| files.parse().ok()).unwrap_or(100_000);
    let with_pause = args.next().is_some_and(|pause| pause == "pause");
    let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime starts");
    threads.block_on(run(dir, files, with_pause))
}
