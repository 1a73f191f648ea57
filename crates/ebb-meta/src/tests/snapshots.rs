//! Snapshots against a naive model: a copy of the whole tree at the moment of each one.

use std::collections::BTreeMap;

use ebb_types::{ErrorKind as E, SnapshotId};
use ebb_wire::pb;
use ebb_wire::pb::command::Command as Change;
use ebb_wire::pb::meta_op::{self, Op};
use proptest::prelude::*;

use super::harness::{Answer, MIB, ROOT, World, committed, placement};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const FULL: u64 = 64 * MIB;

/// What a listing with attributes and maps shows of a path.
#[derive(Clone, PartialEq, Debug)]
struct Shown {
    kind: u32,
    mode: u32,
    size: u64,
    nlink: u32,
    times: (i64, i64),
    place: u64,
    /// Id, index, version and length of each metablock.
    metablocks: Vec<(u64, u64, Option<pb::Version>, u64)>,
}

type Tree = BTreeMap<String, Shown>;

struct Taken {
    number: u64,
    name: String,
    tree: Tree,
}

struct Both {
    world: World,
    taken: Vec<Taken>,
    names: u64,
}

impl World {
    fn take_snapshot(&mut self, name: &str) -> Result<pb::Snapshot, E> {
        let op = meta_op::TakeSnapshot { dataset: 0, name: name.into() };
        self.run(Op::TakeSnapshot(op)).map(|mut reply| reply.snapshots.remove(0))
    }

    fn remove_snapshot(&mut self, snapshot: u64) -> Answer {
        self.run(Op::RemoveSnapshot(meta_op::RemoveSnapshot { dataset: 0, snapshot }))
    }

    /// One step. The error is `NotFound` when nothing is left.
    fn prune(&mut self, snapshot: u64, max: u32) -> Result<(), E> {
        let prune = Change::PruneSnapshot(pb::PruneSnapshot { snapshot, max });
        self.apply(prune).reply.map(drop).map_err(|error| error.kind())
    }

    fn prune_all(&mut self) {
        let removed: Vec<u64> =
            self.machine.snapshots().filter(|one| one.removed).map(|snapshot| snapshot.number).collect();
        for number in removed {
            while self.prune(number, 2).is_ok() {}
        }
    }

    /// Everything below a directory.
    fn tree(&self, top: u64) -> Tree {
        let (mut tree, mut todo) = (Tree::new(), vec![(String::new(), top)]);
        while let Some((path, inode)) = todo.pop() {
            // One at a time, so that the places between two calls count.
            let mut cookie = 0;
            loop {
                let op = meta_op::ReadDir { inode, cookie, limit: 2, plus: true, map: true, ..Default::default() };
                let reply = self.ask(Op::ReadDir(op)).unwrap();
                for entry in &reply.entries {
                    let attr = entry.attr.unwrap();
                    let path = format!("{path}/{}", String::from_utf8(entry.name.clone()).unwrap());
                    let found = self.lookup(inode, path.rsplit('/').next().unwrap()).unwrap();
                    assert_eq!(found, attr, "{path} is listed as it is found");
                    assert!(entry.metablocks.iter().all(|block| !block.members.is_empty()), "{path} lies nowhere");
                    let blocks = entry.metablocks.iter();
                    let shown = Shown {
                        kind: attr.kind,
                        mode: attr.mode,
                        size: attr.size,
                        nlink: attr.nlink,
                        times: (attr.mtime_ns, attr.ctime_ns),
                        place: entry.cookie,
                        metablocks: blocks.map(|block| (block.id, block.index, block.version, block.length)).collect(),
                    };
                    assert!(tree.insert(path.clone(), shown).is_none(), "{path} is listed twice");
                    if attr.kind == 2 {
                        todo.push((path, attr.inode));
                    }
                    cookie = entry.cookie;
                }
                if reply.end {
                    break;
                }
            }
        }
        tree
    }

    /// Writes a metablock of a file under a lease of its own: in place, or to an heir if it is frozen.
    fn write(&mut self, inode: u64, index: u64, length: u64) {
        let epoch = self.acquire(inode).unwrap().epoch;
        let block = self.granted(inode, index);
        self.write_held(inode, epoch, &block, length);
    }

    fn granted(&mut self, inode: u64, index: u64) -> pb::Metablock {
        let epoch = self.attr(inode).epoch;
        let op = meta_op::Grant { inode, epoch, indexes: vec![index], ..Default::default() };
        let granted = self.place(Op::Grant(op), vec![placement(&[5, 6])]).unwrap().metablocks.remove(0);
        if granted.heir_of == 0 {
            return granted;
        }
        let map = self.machine.shown_metablocks(ebb_types::InodeId::new(inode)).unwrap();
        let frozen = map.into_iter().find(|block| block.id == granted.heir_of).unwrap();
        assert!(frozen.frozen.is_some(), "a holder is told that it is frozen");
        let swap = meta_op::Swap {
            inode,
            epoch,
            metablock: frozen.id,
            heir: granted.id,
            version: frozen.version,
            length: frozen.length,
        };
        self.run(Op::Swap(swap)).unwrap().metablocks.remove(0)
    }

    fn write_held(&mut self, inode: u64, epoch: u64, block: &pb::Metablock, length: u64) {
        let length = length.max(block.length);
        let size = self.attr(inode).size.max(block.index * FULL + length);
        let metablocks = vec![committed(block.id, epoch, 1, length)];
        let commit = pb::CommitFile { inode, epoch, size, metablocks, release: true, ..Default::default() };
        self.commit(commit).unwrap();
    }

    /// Cuts a file, with the trim if the last metablock is not frozen.
    fn cut(&mut self, inode: u64, size: u64) {
        let attr = self.acquire(inode).unwrap();
        let map = self.machine.shown_metablocks(ebb_types::InodeId::new(inode)).unwrap();
        let (index, edge) = (size / FULL, size % FULL);
        let cut = map.iter().find(|block| block.index == index && edge > 0 && block.length > edge);
        let trim = cut.filter(|block| block.frozen.is_none()).map(|block| meta_op::Trim {
            metablock: block.id,
            version: Some(pb::Version { epoch: attr.epoch, seq: 1 }),
            length: edge,
        });
        let op = meta_op::SetAttr { inode, size: Some(size), epoch: attr.epoch, trim, ..Default::default() };
        self.set_attr(op).unwrap();
        let metablocks = trim.iter().map(|trim| committed(trim.metablock, attr.epoch, 1, edge)).collect();
        let (epoch, trimmed) = (attr.epoch, trim.is_some());
        let commit = pb::CommitFile { inode, epoch, size, metablocks, trimmed, release: true, ..Default::default() };
        self.commit(commit).unwrap();
    }
}

#[derive(Clone, Copy, Debug)]
enum Action {
    MakeDir,
    MakeFile,
    Write(u64, u64),
    /// Writes to what snapshots freeze, while one is removed, or the holder dies and is recovered.
    WriteSlowly(bool),
    Cut(u64),
    Chmod(u32),
    Link,
    Unlink,
    RemoveDir,
    Rename(bool),
    Reap,
    Reload,
    Take,
    Remove,
    Prune(u32),
}

type Step = (Action, [prop::sample::Index; 2], [usize; 2]);

fn step() -> impl Strategy<Value = Step> {
    let action = prop_oneof![
        2 => Just(Action::MakeDir),
        4 => Just(Action::MakeFile),
        6 => (0..2u64, 1..5u64).prop_map(|(index, length)| Action::Write(index, length * MIB)),
        2 => any::<bool>().prop_map(Action::WriteSlowly),
        3 => prop_oneof![Just(0), Just(MIB), Just(3 * MIB), Just(FULL), Just(FULL + MIB)].prop_map(Action::Cut),
        1 => (0..0o777u32).prop_map(Action::Chmod),
        1 => Just(Action::Link),
        3 => Just(Action::Unlink),
        1 => Just(Action::RemoveDir),
        3 => any::<bool>().prop_map(Action::Rename),
        3 => Just(Action::Reap),
        1 => Just(Action::Reload),
        4 => Just(Action::Take),
        2 => Just(Action::Remove),
        4 => (1..4u32).prop_map(Action::Prune),
    ];
    (action, any::<[prop::sample::Index; 2]>(), [0..NAMES.len(), 0..NAMES.len()])
}

impl Both {
    fn new() -> Self {
        Self { world: World::new(), taken: Vec::new(), names: 0 }
    }

    fn live(&self, kind: u32) -> Vec<u64> {
        let inodes = self.world.machine.inodes.iter();
        let named = inodes.filter(|(_, inode)| inode.nlink > 0 && inode.kind().raw() == kind);
        named.map(|(id, _)| id.raw()).collect()
    }

    fn run(&mut self, (action, [one, other], [from, to]): Step) {
        let directories = self.live(2);
        let (parent, target) = (*one.get(&directories), *other.get(&directories));
        let (name, new_name) = (NAMES[from], NAMES[to]);
        let files = self.live(1);
        let file = (!files.is_empty()).then(|| *one.get(&files));
        match (action, file) {
            (Action::MakeDir, _) => drop(self.world.mkdir(parent, name, 0o755)),
            (Action::MakeFile, _) => {
                if let Ok(inode) = self.world.mkfile(parent, name, 0o644) {
                    self.world.write(inode, 0, MIB);
                }
            }
            (Action::Write(index, length), Some(file)) => self.world.write(file, index, length),
            (Action::WriteSlowly(dies), Some(file)) => self.write_slowly(file, dies),
            (Action::Cut(size), Some(file)) if size < self.world.attr(file).size => self.world.cut(file, size),
            (Action::Chmod(mode), Some(file)) => drop(self.world.chmod(file, mode).unwrap()),
            (Action::Link, Some(file)) => drop(self.world.link(file, target, new_name)),
            (Action::Unlink, _) => drop(self.world.unlink(parent, name)),
            (Action::RemoveDir, _) => drop(self.world.rmdir(parent, name)),
            (Action::Rename(false), _) => drop(self.world.rename((parent, name), (target, new_name))),
            (Action::Rename(true), _) => drop(self.world.exchange((parent, name), (target, new_name))),
            (Action::Reap, _) => {
                let orphans: Vec<u64> = self.world.machine.orphans().map(|id| id.raw()).collect();
                self.world.reap(&orphans);
            }
            (Action::Reload, _) => {
                let before = self.world.machine.digest();
                self.world.reload();
                assert_eq!(self.world.machine.digest(), before);
                assert_eq!(self.world.machine.check(), Vec::<String>::new());
            }
            (Action::Take, _) if self.taken.len() < 5 => self.take_next(),
            (Action::Remove, _) if !self.taken.is_empty() => {
                let gone = self.taken.remove(other.index(self.taken.len()));
                self.world.remove_snapshot(gone.number).unwrap();
            }
            (Action::Prune(max), _) => {
                let removed: Vec<u64> =
                    self.world.machine.snapshots().filter(|one| one.removed).map(|one| one.number).collect();
                if !removed.is_empty() {
                    self.world.prune(*one.get(&removed), max).unwrap();
                }
            }
            _ => {}
        }
        self.compare();
    }

    fn take_next(&mut self) {
        self.names += 1;
        let name = format!("s{}", self.names);
        let number = self.world.take_snapshot(&name).unwrap().number;
        self.taken.push(Taken { number, name, tree: self.world.tree(ROOT) });
    }

    /// Nothing that happens meanwhile thaws what was frozen when the lease was given.
    fn write_slowly(&mut self, file: u64, dies: bool) {
        let epoch = self.world.acquire(file).unwrap().epoch;
        assert_eq!(self.world.take_snapshot("never").unwrap_err(), E::Busy);
        let block = self.world.granted(file, 0);
        if let Some(gone) = self.taken.pop() {
            self.world.remove_snapshot(gone.number).unwrap();
        }
        self.compare();
        if !dies {
            return self.world.write_held(file, epoch, &block, 2 * MIB);
        }
        let epoch = self.world.attr(file).epoch;
        let begin = pb::BeginRecovery { inode: file, expected_epoch: epoch };
        self.world.apply(Change::BeginRecovery(begin)).reply.unwrap();
        assert_eq!(self.world.take_snapshot("never").unwrap_err(), E::Busy);
        let epoch = self.world.attr(file).epoch;
        let id = ebb_types::InodeId::new(file);
        let mut metablocks = self.world.machine.shown_metablocks(id).unwrap();
        metablocks.retain(|block| block.frozen.is_none());
        metablocks.iter_mut().for_each(|block| block.version = Some(pb::Version { epoch, seq: 0 }));
        let size = self.world.attr(file).size;
        let finish = pb::FinishRecovery { inode: file, epoch, size, metablocks, written: false };
        self.world.apply(Change::FinishRecovery(finish)).reply.unwrap();
    }

    fn compare(&self) {
        for Taken { number, name, tree } in &self.taken {
            let top = self.world.resolve(&format!("/.snapshot/{name}")).unwrap();
            assert_eq!(self.world.tree(top), *tree, "snapshot {number}");
        }
    }

    /// Without snapshots nothing is kept.
    fn end(mut self) {
        for gone in std::mem::take(&mut self.taken) {
            self.world.remove_snapshot(gone.number).unwrap();
        }
        self.world.prune_all();
        let snapshots = &self.world.machine.snapshots;
        assert_eq!(snapshots.iter().count() + snapshots.kept.iter().count(), 0);
        assert_eq!(snapshots.past.inodes().count() + snapshots.past.names().count(), 0);
        assert_eq!(self.world.lookup(ROOT, ".snapshot").unwrap_err(), E::NotFound);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn snapshots_are_what_copies_of_the_tree_say(steps in proptest::collection::vec(step(), 1..80)) {
        let mut both = Both::new();
        for step in steps {
            both.run(step);
        }
        both.end();
    }
}

#[test]
fn a_snapshot_is_found_by_name_only_and_never_changes() {
    let mut world = World::new();
    let directory = world.mkdir(ROOT, "d", 0o755).unwrap();
    let file = world.mkfile(directory, "f", 0o644).unwrap();
    world.write(file, 0, MIB);
    assert_eq!(world.lookup(ROOT, ".snapshot").unwrap_err(), E::NotFound);
    let taken = world.take_snapshot("monday").unwrap();
    assert_eq!(world.take_snapshot("monday").unwrap_err(), E::Exists);
    assert_eq!(world.take_snapshot("a/b").unwrap_err(), E::Invalid);
    assert_eq!(world.names(ROOT), ["d"], "no listing has it");
    let list = world.lookup(ROOT, ".snapshot").unwrap().inode;
    assert_eq!(world.names(list), ["monday"]);
    let shown = world.resolve("/.snapshot/monday/d/f").unwrap();
    assert_ne!(shown, file, "it is another inode");
    assert_eq!(world.resolve("/.snapshot/monday/d/../../..").unwrap(), ROOT);
    assert_eq!(world.lookup(directory, ".snapshot").unwrap_err(), E::NotFound);
    // What stands for the way out of a snapshot leads back to where it came from.
    let top = world.resolve("/.snapshot/monday").unwrap();
    assert_eq!(world.lookup(top, "..").unwrap().inode, list);
    assert_eq!(world.lookup(list, "..").unwrap().inode, ROOT);
    for refused in [
        world.unlink(world.resolve("/.snapshot/monday/d").unwrap(), "f"),
        world.mkdir(list, "x", 0o755).map(|_| pb::MetaReply::default()),
        world.chmod(shown, 0o600),
        world.link(shown, directory, "g"),
        world.rename((top, "d"), (ROOT, "e")),
        world.rename((ROOT, "d"), (top, "e")),
    ] {
        assert_eq!(refused.unwrap_err(), E::ReadOnly);
    }
    assert_eq!(world.acquire(shown).unwrap_err(), E::ReadOnly);
    assert_eq!(world.mkdir(ROOT, ".snapshot", 0o755).unwrap_err(), E::Exists);
    assert_eq!(world.rename((ROOT, "d"), (ROOT, ".snapshot")).unwrap_err(), E::Exists);
    world.remove_snapshot(taken.number).unwrap();
    assert_eq!(world.remove_snapshot(taken.number).unwrap_err(), E::NotFound);
    let gone = world.ask(Op::GetAttr(meta_op::GetAttr { inode: shown }));
    assert_eq!(gone.unwrap_err(), E::Stale);
    // The name is taken until the last record is gone, so that no listing has two.
    assert_eq!(world.mkdir(ROOT, ".snapshot", 0o755).unwrap_err(), E::Exists);
    world.prune_all();
    world.mkdir(ROOT, ".snapshot", 0o755).unwrap();
    assert_eq!(world.take_snapshot("tuesday").unwrap_err(), E::Exists);
}

#[test]
fn what_snapshots_keep_counts_for_the_quotas_of_their_dataset() {
    let mut world = World::new();
    let dataset = pb::Dataset { path: "/q".into(), quota_inodes: 3, ..Default::default() };
    let op = meta_op::CreateDataset { dataset: Some(dataset), ..Default::default() };
    let reply = world.run(Op::CreateDataset(op)).unwrap();
    let (dataset, root) = (reply.dataset.unwrap().id, reply.attr.unwrap().inode);
    let file = world.mkfile(root, "f", 0o644).unwrap();
    world.write(file, 0, 2 * MIB);
    let op = meta_op::TakeSnapshot { dataset, name: "s".into() };
    let number = world.run(Op::TakeSnapshot(op)).unwrap().snapshots[0].number;
    world.unlink(root, "f").unwrap();
    world.reap(&[file]);
    let listed = |world: &World| {
        let reply = world.ask(Op::ListDatasets(meta_op::ListDatasets { snapshots_of: Some(dataset) })).unwrap();
        let shown = reply.datasets.into_iter().find(|one| one.id == dataset).unwrap();
        let counts = (shown.used_inodes, shown.past_inodes, shown.used_bytes, shown.kept_bytes);
        (counts, reply.snapshots.len())
    };
    assert_eq!(listed(&world), ((1, 1, 0, 2 * MIB), 1));
    world.mkfile(root, "g", 0o644).unwrap();
    assert_eq!(world.mkfile(root, "h", 0o644).unwrap_err(), E::QuotaExceeded);
    assert!(world.refusal.as_ref().unwrap().to_string().contains("ebb snapshot list /q"));
    // The dataset would end with its directory.
    world.unlink(root, "g").unwrap();
    assert_eq!(world.rmdir(ROOT, "q").unwrap_err(), E::Busy);
    assert_eq!(world.fell(ROOT, "q").unwrap_err(), E::Busy);
    world.run(Op::RemoveSnapshot(meta_op::RemoveSnapshot { dataset, snapshot: number })).unwrap();
    world.prune_all();
    assert_eq!(listed(&world).0, (2, 0, 0, 0));
    world.rmdir(ROOT, "q").unwrap();
}

#[test]
fn what_a_snapshot_froze_is_written_in_place_after_its_end() {
    let mut world = World::new();
    let file = world.mkfile(ROOT, "f", 0o644).unwrap();
    world.write(file, 0, MIB);
    let before = world.machine.metablocks(ebb_types::InodeId::new(file)).unwrap()[0].id;
    let number = world.take_snapshot("s").unwrap().number;
    world.remove_snapshot(number).unwrap();
    world.write(file, 0, MIB);
    let after = world.machine.metablocks(ebb_types::InodeId::new(file)).unwrap()[0].id;
    assert_eq!(before, after, "nothing was copied");
    assert_eq!(world.prune(SnapshotId::new(number + 1).raw(), 1).unwrap_err(), E::NotFound);
    world.take_snapshot("t").unwrap();
    let living = world.machine.snapshots().find(|one| !one.removed).unwrap().number;
    assert_eq!(world.prune(living, 1).unwrap_err(), E::Busy);
}

#[test]
fn the_set_of_what_is_kept_changes_by_comparison_alone() {
    let mut world = World::new();
    let file = world.mkfile(ROOT, "f", 0o644).unwrap();
    world.write(file, 0, MIB);
    world.take_snapshot("s").unwrap();
    world.unlink(ROOT, "f").unwrap();
    world.reap(&[file]);
    let (_, kept) = world.machine.kept_metablocks().next().unwrap();
    let change = |kept: &pb::Metablock, generation| pb::ChangeKept {
        metablock: kept.id,
        generation,
        version: kept.version,
        members: placement(&[6, 7]).members,
    };
    let stale = world.apply(Change::ChangeKept(change(&kept, kept.generation - 1))).reply.unwrap_err();
    assert_eq!(stale.kind(), E::SetChanged);
    world.apply(Change::ChangeKept(change(&kept, kept.generation))).reply.unwrap();
    let (_, moved) = world.machine.kept_metablocks().next().unwrap();
    assert_eq!(moved.members, placement(&[6, 7]).members);
    let shown = world.resolve("/.snapshot/s/f").unwrap();
    let map = world.ask(Op::GetMap(meta_op::GetMap { inode: shown, first_index: 0, limit: 0 })).unwrap();
    assert_eq!(map.metablocks[0].members, moved.members, "a snapshot has no list of members of its own");
}
