use std::sync::Arc;
use std::sync::atomic::Ordering;

use std::time::Duration;

use ebb_power::{Duty, NodePlan, OutOfReach, PolicyKind, PowerPlan, Timetable};
use ebb_rpc::testing::identity;
use ebb_rpc::{Server, ServerOptions};
use ebb_types::{CHUNK_SIZE, ErrorKind, NodeId, PlanVersion, Role};

use super::*;
use crate::service::Worker;
use crate::testkit::{Asked, FakeSource, FakeTree, METABLOCK, Namespace, prose, real, virt};

/// Bytes that a worker on a node that blinks reads in a second.
const SPEED: f64 = (2 << 20) as f64;

/// A cluster of three workers over a namespace in memory.
struct Cluster {
    workers: Vec<(HostName, String)>,
    sources: Vec<FakeSource>,
    tree: FakeTree,
    connector: Connector,
}

impl Cluster {
    async fn start(runtime: &Runtime, namespace: Namespace) -> Self {
        let namespace = Arc::new(namespace);
        let (mut workers, mut sources) = (Vec::new(), Vec::new());
        for host in ["h1", "h2", "h3"] {
            let listener = runtime.listen("127.0.0.1:0").await.unwrap();
            workers.push((HostName::new(host), listener.address()));
            let mut source = FakeSource::new(namespace.clone());
            source.blinks = namespace.plans.as_ref().map(|_| (sources.len() as u64 + 1, SPEED));
            sources.push(source.clone());
            let worker = Arc::new(Worker::new(runtime, source, Counters::default(), Counters::default()));
            let (counters, options) = (Counters::default(), ServerOptions::default());
            let server = Server::run(
                runtime.clone(),
                listener,
                identity(runtime, host, Role::Worker),
                counters,
                options,
                worker,
            );
            runtime.spawn("worker", server);
        }
        let connector =
            Connector::new(runtime.clone(), identity(runtime, "client", Role::Operator), Counters::default());
        Self { workers, sources, tree: FakeTree(namespace), connector }
    }

    async fn count(&self, runtime: &Runtime, path: &str, options: &JobOptions) -> (Report, Progress) {
        let mut last = Progress::default();
        let mut progress = |progress: Progress| {
            assert!(progress.splits_done >= last.splits_done && progress.splits_done <= progress.splits_found);
            last = progress;
        };
        let (tree, connector) = (&self.tree, &self.connector);
        let report =
            count_words_in(runtime, tree, connector, path.as_bytes(), &self.workers, options, &mut progress).await;
        (report.unwrap(), last)
    }
}

/// Directories with small files, some of several metablocks, and an empty one.
fn tree(small_files: u64) -> Namespace {
    let mut namespace = Namespace::new(&["h1", "h2", "h3"]);
    let pairs: [&[u64]; 3] = [&[1, 2], &[2, 3], &[3, 1]];
    let mut parent = 1;
    for seed in 0..small_files {
        if seed % 20 == 0 {
            parent = namespace.add_dir(if seed % 40 == 0 { 1 } else { parent });
        }
        namespace.add_file(parent, prose(100 + (seed as usize * 37) % 5000, seed), &[pairs[seed as usize % 3]]);
    }
    namespace.add_file(1, prose(7 * METABLOCK as usize + 1234, 99), &pairs);
    namespace.add_file(parent, Vec::new(), &pairs);
    namespace
}

async fn a_tree_is_counted_where_it_lies(runtime: Runtime) {
    let cluster = Cluster::start(&runtime, tree(200)).await;
    let (report, progress) = cluster.count(&runtime, "/", &JobOptions::default()).await;
    let namespace = &cluster.tree.0;
    assert_eq!(report.words, namespace.words());
    assert_eq!((report.files, report.splits, report.local_splits, report.failed), (202, 208, 208, 0));
    assert!(report.errors.is_empty());
    assert!(progress.walked && progress.splits_done == 208 && progress.bytes_done == progress.bytes_found);
    assert_eq!(progress.bytes_done, report.input_bytes);
    for (index, source) in cluster.sources.iter().enumerate() {
        let asked = source.asked.lock();
        assert!(!asked.is_empty(), "worker {index} had nothing to do");
        // A run that begins at the end of a split and shows nothing costs a chunk of the next metablock.
        let is_beyond =
            |asked: &Asked| asked.offset > 0 && asked.offset.is_multiple_of(METABLOCK) && asked.len <= CHUNK_SIZE;
        for asked in asked.iter().filter(|asked| !is_beyond(asked)) {
            // Reads begin up to three bytes before their block: the block decides which split they belong to.
            let nodes = &namespace.file(asked.inode).unwrap().nodes[((asked.offset + 3) / METABLOCK) as usize];
            assert!(nodes.contains(&(index as u64 + 1)), "{asked:?} is not on h{}", index + 1);
        }
    }
}

#[test]
fn a_tree_is_counted_where_it_lies_in_virtual_worlds() {
    (0..4).for_each(|seed| virt(seed, a_tree_is_counted_where_it_lies));
}

#[test]
fn a_tree_is_counted_where_it_lies_on_linux() {
    real(a_tree_is_counted_where_it_lies);
}

#[test]
fn blind_work_counts_the_same_elsewhere() {
    virt(1, async |runtime| {
        let cluster = Cluster::start(&runtime, tree(100)).await;
        let options = JobOptions { locality: Locality::Blind, ..JobOptions::default() };
        let (report, _) = cluster.count(&runtime, "/", &options).await;
        assert_eq!(report.words, cluster.tree.0.words());
        assert_eq!((report.local_splits, report.failed), (0, 0));
        assert!(cluster.sources.iter().all(|source| source.asked.lock().iter().all(|asked| !asked.by_map)));
    });
}

#[test]
fn a_single_file_is_a_tree_too() {
    virt(1, async |runtime| {
        let mut namespace = Namespace::new(&["h1", "h2", "h3"]);
        let inode = namespace.add_file(1, prose(3 * METABLOCK as usize, 5), &[&[1]]);
        let cluster = Cluster::start(&runtime, namespace).await;
        let (report, _) = cluster.count(&runtime, &format!("/{inode}"), &JobOptions::default()).await;
        assert_eq!((report.words, report.splits), (cluster.tree.0.words(), 3));
    });
}

/// One worker is gone and one file is damaged on one host: both are counted elsewhere.
#[test]
fn failures_are_tried_elsewhere() {
    virt(2, async |runtime| {
        let mut cluster = Cluster::start(&runtime, tree(100)).await;
        // No process listens there.
        cluster.workers[0].1 = "127.0.0.1:9".to_owned();
        let damaged: Vec<u64> = (0..200).filter(|inode| cluster.tree.0.file(*inode).is_ok()).take(5).collect();
        cluster.sources[1].broken.lock().extend(&damaged);
        let (report, _) = cluster.count(&runtime, "/", &JobOptions::default()).await;
        assert_eq!(report.words, cluster.tree.0.words());
        assert_eq!((report.failed, report.splits), (0, 108));
    });
}

#[test]
fn hosts_that_are_switched_off_count_nothing_and_cost_no_attempt() {
    virt(8, |runtime| async move {
        let cluster = Cluster::start(&runtime, tree(60)).await;
        let off = &cluster.tree.0.off;
        off.lock().extend(["h1", "h3"].map(HostName::new));
        let options = JobOptions { attempts_max: 1, ..JobOptions::default() };
        let (report, _) = cluster.count(&runtime, "/", &options).await;
        assert_eq!((report.words, report.failed), (cluster.tree.0.words(), 0));
        let read = |place: usize| cluster.sources[place].asked.lock().len();
        assert_eq!((read(0), read(2)), (0, 0), "frozen ones were not asked");

        // With all of them off the job waits for the first to be on again.
        off.lock().insert(HostName::new("h2"));
        let later = cluster.tree.0.clone();
        let clock = runtime.clone();
        runtime.spawn("switch on", async move {
            clock.sleep(Duration::from_secs(20)).await;
            later.off.lock().clear();
        });
        let (report, _) = cluster.count(&runtime, "/", &options).await;
        assert_eq!((report.words, report.failed), (cluster.tree.0.words(), 0));
        assert!(report.seconds >= 20.0, "{}", report.seconds);
    });
}

/// Three nodes blink one after the other, each for a third of the time.
fn turns(runtime: &Runtime) -> (Runtime, Timetable) {
    let mut timetable = Timetable::default();
    let node = |start_ms| NodePlan {
        duty: Duty::Blink { start_ms, active_ms: 4_000 },
        ready_ms: 0,
        wake_ms: 0,
        suspend_ms: 0,
    };
    let plan = PowerPlan {
        version: PlanVersion::new(1),
        policy: PolicyKind::BlinkStaggered,
        start_ms: 0,
        interval_ms: 12_000,
        guard_ms: 0,
        budget_mw: 1_000,
        nodes: (1..=3).map(|id| (NodeId::new(id), node((id - 1) * 4_000))).collect(),
        stalled: Vec::new(),
        out_of_reach: OutOfReach::default(),
        why: String::new(),
    };
    assert!(timetable.accept(plan, 0).unwrap());
    (runtime.clone(), timetable)
}

/// 48 splits, each of 125 ms: six node-seconds, and one node is awake at a time.
#[test]
fn no_work_is_frozen_and_sleepers_do_not_hold_a_job_up() {
    for seed in 0..20 {
        virt(seed, async |runtime| {
            let mut namespace = Namespace::new(&["h1", "h2", "h3"]);
            for file in 0..48 {
                namespace.add_file(1, prose(METABLOCK as usize, file), &[&[1 + file % 3, 1 + (file + 1) % 3]]);
            }
            namespace.plans = Some(turns(&runtime));
            // Somewhere in the interval.
            runtime.sleep(Duration::from_millis(seed * 617)).await;
            let cluster = Cluster::start(&runtime, namespace).await;
            let options = JobOptions { calls_per_worker: 1, ..JobOptions::default() };
            let (report, _) = cluster.count(&runtime, "/", &options).await;
            assert_eq!((report.words, report.splits, report.failed), (cluster.tree.0.words(), 48, 0));
            let freezes: usize = cluster.sources.iter().map(|source| source.freezes.load(Ordering::Relaxed)).sum();
            assert_eq!(freezes, 0, "seed {seed}");
            println!("seed {seed}: {} s", report.seconds);
            assert!(report.seconds < 12.5, "seed {seed}: {} s", report.seconds);
        });
    }
}

#[test]
fn an_unreadable_split_is_reported() {
    virt(3, async |runtime| {
        let cluster = Cluster::start(&runtime, tree(50)).await;
        let victim = (0..200).find(|inode| cluster.tree.0.file(*inode).is_ok()).unwrap();
        for source in &cluster.sources {
            source.broken.lock().push(victim);
        }
        let (report, progress) = cluster.count(&runtime, "/", &JobOptions::default()).await;
        let lost = crate::testkit::words(&cluster.tree.0.file(victim).unwrap().data);
        assert_eq!((report.words, report.failed), (cluster.tree.0.words() - lost, 1));
        assert!(report.errors[0].contains("damaged everywhere"), "{:?}", report.errors);
        assert_eq!(progress.splits_done, progress.splits_found);
    });
}

#[test]
fn without_workers_or_files_it_says_so() {
    virt(4, async |runtime| {
        let mut cluster = Cluster::start(&runtime, tree(5)).await;
        let (options, connector) = (JobOptions::default(), &cluster.connector);
        let without_workers =
            count_words_in(&runtime, &cluster.tree, connector, b"/", &[], &options, &mut |_| {}).await;
        assert_eq!(without_workers.unwrap_err().kind(), ErrorKind::Unavailable);
        let path = b"/12345";
        let (tree, workers) = (&cluster.tree, &cluster.workers);
        let nothing = count_words_in(&runtime, tree, connector, path, workers, &options, &mut |_| {}).await;
        assert_eq!(nothing.unwrap_err().kind(), ErrorKind::NotFound);
        // With every worker gone the job ends and reports the missing part.
        for worker in &mut cluster.workers {
            worker.1 = "127.0.0.1:9".to_owned();
        }
        let (report, _) = cluster.count(&runtime, "/", &options).await;
        assert_eq!((report.words, report.splits, report.failed), (0, 0, 13));
    });
}

/// Shipping 2,000 small files costs the network little: under 2 % of files of 5 KB.
#[test]
fn shipping_is_lean() {
    virt(5, async |runtime| {
        let mut namespace = Namespace::new(&["h1", "h2", "h3"]);
        for seed in 0..2000 {
            namespace.add_file(1, prose(5000, seed), &[&[1 + seed % 3, 1 + (seed + 1) % 3]]);
        }
        let cluster = Cluster::start(&runtime, namespace).await;
        let (report, _) = cluster.count(&runtime, "/", &JobOptions::default()).await;
        assert_eq!((report.words, report.local_splits), (cluster.tree.0.words(), 2000));
        let each = report.network_bytes as f64 / 2000.0;
        assert!(each < 100.0, "{each} bytes for each file");
    });
}

#[test]
fn the_report_reads_as_json() {
    let report = Report { words: 3, seconds: 0.5, splits: 2, local_splits: 1, network_bytes: 9, ..Report::default() };
    let json = serde_json::to_value(&report).unwrap();
    let wanted = serde_json::json!({
        "words": 3, "seconds": 0.5, "splits": 2, "local_splits": 1, "sub_rack_splits": 0, "network_bytes": 9, "sub_rack_bytes": 0, "failed": 0, "files": 0,
        "input_bytes": 0,
    });
    assert_eq!(json, wanted);
}
