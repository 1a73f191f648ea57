//! Two builds in one cluster: every process is exchanged for one of the other build while programs work, and back again.
//!
//! `EBB_OTHER_BUILD` names the other program, of an earlier or a later commit (`cargo xtask upgrade --from PROGRAM`). Without it
//! both are this one: then it is a rolling restart of every role.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::harness::Cluster;
use crate::load::Worker;
use crate::watch::StopAtEnd;

const OTHER: &str = "EBB_OTHER_BUILD";
/// Programs work for so long before a process is exchanged, and after it.
const WHILE: Duration = Duration::from_millis(700);

/// The part that is exchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Block(&'static str),
    Proxy,
    Master,
    Mount(usize),
}

/// Order of an upgrade: members first, then the processes that command them, then their users; and one where clients
/// come first.
const MEMBERS_FIRST: [Part; 8] = [
    Part::Block("h1"),
    Part::Block("h2"),
    Part::Block("h3"),
    Part::Block("h4"),
    Part::Proxy,
    Part::Master,
    Part::Mount(0),
    Part::Mount(1),
];
const CLIENTS_FIRST: [Part; 8] = [
    Part::Mount(1),
    Part::Mount(0),
    Part::Master,
    Part::Proxy,
    Part::Block("h4"),
    Part::Block("h3"),
    Part::Block("h2"),
    Part::Block("h1"),
];

struct Rig {
    cluster: Cluster,
    /// Both builds are this one.
    is_same: bool,
    mounts: [PathBuf; 2],
}

impl Rig {
    fn host(mount: usize) -> &'static str {
        ["client", "h1"][mount]
    }

    /// Ends a process, and starts its successor from this program.
    fn exchange(&self, part: Part, program: &Path) {
        let up = ["cluster", "up", "--nodes", "4"];
        match part {
            Part::Block(host) => {
                self.cluster.kill(self.cluster.pid("block", host));
                self.cluster.ok_of(program, &["node", "start", host]);
            }
            Part::Proxy => {
                self.cluster.end(self.cluster.pid("proxy", ""));
                self.cluster.ok_of(program, &up);
            }
            Part::Master => {
                self.cluster.kill(self.cluster.pid("master", ""));
                self.cluster.ok_of(program, &up);
            }
            Part::Mount(index) => {
                let path = self.mounts[index].to_str().unwrap();
                self.cluster.ok(&["umount", path]);
                self.cluster.ok_of(program, &["mount", "--host", Self::host(index), path]);
            }
        }
    }

    /// Programs work while a part is exchanged, and after it. Those on a mount that is exchanged itself rest meanwhile.
    /// All rest while a proxy of another release is exchanged, and their files are synced first, because earlier
    /// releases do not report requests that they did not begin.
    fn play(&self, part: Part, program: &Path, workers: &mut [(usize, Worker)]) {
        if part == Part::Proxy && !self.is_same {
            self.sync_all();
            self.exchange(part, program);
            self.work(part, program, workers, || ());
        } else {
            self.work(part, program, workers, || self.exchange(part, program));
        }
        for (mount, worker) in workers {
            worker.check_all(&self.mounts[1 - *mount]);
        }
    }

    /// By each mount, for each has its own count of unsynced writes.
    fn sync_all(&self) {
        for entry in self.mounts.iter().flat_map(|mount| std::fs::read_dir(mount).unwrap()) {
            File::open(entry.unwrap().path()).unwrap().sync_all().unwrap();
        }
    }

    fn work(&self, part: Part, program: &Path, workers: &mut [(usize, Worker)], meanwhile: impl FnOnce()) {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let end = StopAtEnd(&stop);
            let working = workers.iter_mut().filter(|(mount, _)| part != Part::Mount(*mount));
            let working: Vec<_> = working.map(|(mount, worker)| (*mount, scope.spawn(|| worker.run(&stop)))).collect();
            std::thread::sleep(WHILE);
            meanwhile();
            std::thread::sleep(WHILE);
            drop(end);
            for (mount, worker) in working {
                let ended = worker.join().expect("a worker does not panic");
                assert!(ended.is_ok(), "{part:?} became {}: work on mount {mount}: {ended:?}", program.display());
            }
        });
    }
}

#[test]
fn every_process_is_exchanged_for_the_other_build_and_back() {
    let own = PathBuf::from(env!("CARGO_BIN_EXE_ebb"));
    let other = std::env::var_os(OTHER).map_or_else(|| own.clone(), PathBuf::from);
    let cluster = Cluster::none();
    let times = ["--dead-after-ms", "2000", "--session-ttl-ms", "4000"];
    cluster.ok_of(&other, &[&["cluster", "up", "--nodes", "4", "--proxies", "1"], &times[..]].concat());
    let mounts = ["a", "b"].map(|name| cluster.path(name));
    for (index, mount) in mounts.iter().enumerate() {
        std::fs::create_dir_all(mount).unwrap();
        cluster.ok_of(&other, &["mount", "--host", Rig::host(index), mount.to_str().unwrap()]);
    }
    let rig = Rig { cluster, is_same: other == own, mounts };
    let mut workers: Vec<(usize, Worker)> = (0..4_u64)
        .map(|number| {
            (number as usize % 2, Worker::new(&rig.mounts[number as usize % 2], &format!("w{number}"), number))
        })
        .collect();
    // Up, down again as after a bad upgrade, and up in the other order.
    for (program, order) in [(&own, MEMBERS_FIRST), (&other, CLIENTS_FIRST), (&own, CLIENTS_FIRST)] {
        for part in order {
            let before: u64 = workers.iter().map(|(_, worker)| worker.done).sum();
            rig.play(part, program, &mut workers);
            let done: u64 = workers.iter().map(|(_, worker)| worker.done).sum();
            eprintln!("{part:?} is of {}: {} operations", program.display(), done - before);
        }
        rig.cluster.healthy();
    }
    // And all at once.
    rig.cluster.ok(&["cluster", "down"]);
    rig.cluster.ok_of(&other, &["cluster", "up", "--nodes", "4"]);
    let last = rig.cluster.path("c");
    std::fs::create_dir_all(&last).unwrap();
    rig.cluster.ok_of(&other, &["mount", last.to_str().unwrap()]);
    workers.iter().for_each(|(_, worker)| worker.check_all(&last));
}
