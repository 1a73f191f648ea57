//! Names, modes, owners and times against a naive model: a list of nodes with maps of entries, everything else found
//! by looking through the whole list.

use std::collections::BTreeMap;

use ebb_types::{Credentials, ErrorKind as E};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{self, Op};
use proptest::prelude::*;

use super::harness::{ROOT, World, rename_op, user};

#[derive(Clone, PartialEq, Debug)]
struct Node {
    /// As in the protocol: 1 file, 2 directory, 3 symbolic link.
    kind: u32,
    mode: u32,
    uid: u32,
    gid: u32,
    mtime: i64,
    ctime: i64,
    /// The directory in which it is, or was last; none, if that is gone for good.
    parent: Option<usize>,
    entries: BTreeMap<&'static str, usize>,
}

/// One without a name is an orphan; a directory without a name and with entries is felled.
struct Model {
    nodes: Vec<Node>,
    user: Credentials,
    now: i64,
}

type Outcome = Result<usize, E>;

impl Model {
    fn names_of(&self, node: usize) -> u32 {
        self.nodes.iter().flat_map(|other| other.entries.values()).filter(|entry| **entry == node).count() as u32
    }

    fn is_removed(&self, node: usize) -> bool {
        node != 0 && self.names_of(node) == 0
    }

    fn nlink(&self, node: usize) -> u32 {
        if self.is_removed(node) {
            return 0;
        }
        if self.nodes[node].kind != 2 {
            return self.names_of(node);
        }
        2 + self.nodes[node].entries.values().filter(|entry| self.nodes[**entry].kind == 2).count() as u32
    }

    /// A directory that was felled still counts as below the one that it was in: nothing from above is moved into it.
    fn is_above(&self, above: usize, below: usize) -> bool {
        above == below || self.nodes[below].parent.is_some_and(|parent| self.is_above(above, parent))
    }

    fn may(&self, node: usize, want: u32) -> bool {
        let node = &self.nodes[node];
        let bits = if self.user.uid == node.uid {
            node.mode >> 6
        } else if self.user.in_group(node.gid) {
            node.mode >> 3
        } else {
            node.mode
        };
        self.user.uid == 0 || bits & want == want
    }

    fn owns(&self, node: usize) -> bool {
        self.user.uid == 0 || self.user.uid == self.nodes[node].uid
    }

    fn find(&self, parent: usize, name: &str) -> Result<Option<usize>, E> {
        if self.nodes[parent].kind != 2 {
            return Err(E::NotDirectory);
        }
        if !self.may(parent, 1) {
            return Err(E::AccessDenied);
        }
        Ok(self.nodes[parent].entries.get(name).copied())
    }

    fn may_add(&self, parent: usize, name: &str) -> Result<(), E> {
        if self.find(parent, name)?.is_some() {
            return Err(E::Exists);
        }
        self.may_add_here(parent)
    }

    fn may_add_here(&self, parent: usize) -> Result<(), E> {
        if self.is_removed(parent) {
            return Err(E::NotFound);
        }
        if self.may(parent, 3) { Ok(()) } else { Err(E::AccessDenied) }
    }

    fn may_remove(&self, parent: usize, victim: usize) -> Result<(), E> {
        if !self.may(parent, 3) {
            return Err(E::AccessDenied);
        }
        let sticky = self.nodes[parent].mode & 0o1000 != 0;
        if sticky && !self.owns(victim) && !self.owns(parent) { Err(E::NotPermitted) } else { Ok(()) }
    }

    fn touch(&mut self, node: usize, modified: bool) {
        self.nodes[node].ctime = self.now;
        if modified {
            self.nodes[node].mtime = self.now;
        }
    }

    fn make(&mut self, parent: usize, name: &'static str, kind: u32, mode: u32) -> Outcome {
        self.may_add(parent, name)?;
        let setgid = self.nodes[parent].mode & 0o2000 != 0;
        let gid = if setgid { self.nodes[parent].gid } else { self.user.gid };
        let mut mode = match kind {
            2 => mode & 0o1777 & !0o022,
            1 => mode & !0o022,
            _ => 0o777,
        };
        if setgid && kind == 2 {
            mode |= 0o2000;
        }
        if setgid && kind == 1 && mode & 0o2010 == 0o2010 && self.user.uid != 0 && !self.user.in_group(gid) {
            mode &= !0o2000;
        }
        let uid = self.user.uid;
        let (mtime, ctime) = (self.now, self.now);
        self.nodes.push(Node { kind, mode, uid, gid, mtime, ctime, parent: Some(parent), entries: BTreeMap::new() });
        let new = self.nodes.len() - 1;
        self.nodes[parent].entries.insert(name, new);
        self.touch(parent, true);
        Ok(new)
    }

    fn link(&mut self, node: usize, parent: usize, name: &'static str) -> Outcome {
        self.may_add(parent, name)?;
        if self.nodes[node].kind == 2 {
            return Err(E::NotPermitted);
        }
        if self.is_removed(node) {
            return Err(E::NotFound);
        }
        self.nodes[parent].entries.insert(name, node);
        self.touch(parent, true);
        self.touch(node, false);
        Ok(node)
    }

    /// With everything below it. Says who may not in one way, whichever of the names is in the way.
    fn fell(&mut self, parent: usize, name: &'static str) -> Outcome {
        let victim = self.find(parent, name)?.ok_or(E::NotFound)?;
        if self.nodes[victim].entries.is_empty() {
            return self.remove(parent, name, true);
        }
        self.may_remove(parent, victim)?;
        for directory in self.directories_below(victim) {
            let entries = &self.nodes[directory].entries;
            let refused =
                !self.may(directory, 7) || entries.values().any(|entry| self.may_remove(directory, *entry).is_err());
            if !entries.is_empty() && refused {
                return Err(E::AccessDenied);
            }
        }
        self.nodes[parent].entries.remove(name);
        self.touch(parent, true);
        self.touch(victim, false);
        Ok(victim)
    }

    /// A directory and those below it.
    fn directories_below(&self, top: usize) -> Vec<usize> {
        let mut found = vec![top];
        for at in 0.. {
            let Some(node) = found.get(at) else { break };
            let entries = self.nodes[*node].entries.values().copied();
            found.extend(entries.filter(|entry| self.nodes[*entry].kind == 2).collect::<Vec<_>>());
        }
        found
    }

    fn is_felled(&self, node: usize) -> bool {
        self.is_removed(node) && !self.nodes[node].entries.is_empty()
    }

    fn remove(&mut self, parent: usize, name: &'static str, directory: bool) -> Outcome {
        let victim = self.find(parent, name)?.ok_or(E::NotFound)?;
        self.may_remove(parent, victim)?;
        match (directory, self.nodes[victim].kind == 2) {
            (false, true) => return Err(E::IsDirectory),
            (true, false) => return Err(E::NotDirectory),
            _ => {}
        }
        if !self.nodes[victim].entries.is_empty() {
            return Err(E::NotEmpty);
        }
        self.nodes[parent].entries.remove(name);
        self.touch(parent, true);
        self.touch(victim, false);
        Ok(victim)
    }

    fn rename(&mut self, from: (usize, &'static str), to: (usize, &'static str), how: How) -> Outcome {
        if self.nodes[from.0].kind != 2 || self.nodes[to.0].kind != 2 {
            return Err(E::NotDirectory);
        }
        let source = self.find(from.0, from.1)?.ok_or(E::NotFound)?;
        let target = self.find(to.0, to.1)?;
        match (how, target) {
            (How::NoReplace, Some(_)) => return Err(E::Exists),
            (How::Exchange, None) => return Err(E::NotFound),
            _ => {}
        }
        // Nothing gets a name in a removed directory. An exchange gives one in each; that comes before permissions.
        if self.is_removed(to.0) || how == How::Exchange && self.is_removed(from.0) {
            return Err(E::NotFound);
        }
        if self.is_above(source, to.0) {
            return Err(E::Invalid);
        }
        if let Some(target) = target
            && self.nodes[target].kind == 2
            && self.is_above(target, from.0)
        {
            return Err(if how == How::Exchange { E::Invalid } else { E::NotEmpty });
        }
        if target == Some(source) {
            return Ok(source);
        }
        self.may_remove(from.0, source)?;
        let is_directory = |model: &Self, node: usize| model.nodes[node].kind == 2;
        match target {
            None => self.may_add_here(to.0)?,
            Some(target) => {
                self.may_remove(to.0, target)?;
                if how != How::Exchange && is_directory(self, source) != is_directory(self, target) {
                    return Err(if is_directory(self, source) { E::NotDirectory } else { E::IsDirectory });
                }
                if how == How::Exchange && from.0 != to.0 && is_directory(self, target) && !self.may(target, 2) {
                    return Err(E::AccessDenied);
                }
            }
        }
        if from.0 != to.0 && is_directory(self, source) && !self.may(source, 2) {
            return Err(E::AccessDenied);
        }
        if let Some(target) = target {
            if how != How::Exchange && !self.nodes[target].entries.is_empty() {
                return Err(E::NotEmpty);
            }
            self.touch(target, false);
        }
        self.nodes[from.0].entries.remove(from.1);
        self.nodes[to.0].entries.insert(to.1, source);
        self.nodes[source].parent = Some(to.0);
        if let (How::Exchange, Some(target)) = (how, target) {
            self.nodes[from.0].entries.insert(from.1, target);
            self.nodes[target].parent = Some(from.0);
        }
        self.touch(source, false);
        self.touch(from.0, true);
        self.touch(to.0, true);
        Ok(source)
    }

    fn chmod(&mut self, node: usize, mode: u32) -> Outcome {
        if self.nodes[node].kind == 3 {
            return Err(E::Unsupported);
        }
        if !self.owns(node) {
            return Err(E::NotPermitted);
        }
        let keeps = self.user.uid == 0 || self.user.in_group(self.nodes[node].gid);
        self.nodes[node].mode = if keeps { mode } else { mode & !0o2000 };
        self.touch(node, false);
        Ok(node)
    }

    fn chown(&mut self, node: usize, uid: u32, gid: u32) -> Outcome {
        let old = self.nodes[node].clone();
        let allowed = self.user.uid == 0
            || (self.user.uid == old.uid && uid == old.uid && (gid == old.gid || self.user.in_group(gid)));
        if !allowed {
            return Err(E::NotPermitted);
        }
        let in_group = self.user.uid == 0 || self.user.in_group(old.gid);
        let new = &mut self.nodes[node];
        (new.uid, new.gid) = (uid, gid);
        if old.kind != 2 {
            new.mode &= !0o4000;
            if old.mode & 0o010 != 0 || !in_group {
                new.mode &= !0o2000;
            }
        }
        self.touch(node, false);
        Ok(node)
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum How {
    Plain,
    NoReplace,
    Exchange,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Make(u32, u32),
    Link,
    Unlink,
    RemoveDir,
    Fell,
    Rename(How),
    Chmod(u32),
    Chown(u32, u32),
    Reap,
    Expire,
}

/// Nodes are picked by number among those that there are.
#[derive(Clone, Copy, Debug)]
struct Step {
    user: usize,
    action: Action,
    one: (usize, &'static str),
    other: (usize, &'static str),
}

fn step() -> impl Strategy<Value = Step> {
    let name = || proptest::sample::select(vec!["a", "b", "c"]);
    let place = || (0..1000usize, name());
    let mode = || prop_oneof![Just(0o777u32), Just(0o1777), Just(0o2775), Just(0o2777), Just(0o700), 0..0o10000u32];
    let action = prop_oneof![
        6 => (prop_oneof![3 => Just(2u32), 2 => Just(1u32), 1 => Just(3u32)], mode()).prop_map(|(kind, mode)| Action::Make(kind, mode)),
        2 => Just(Action::Link),
        2 => Just(Action::Unlink),
        2 => Just(Action::RemoveDir),
        2 => Just(Action::Fell),
        4 => prop_oneof![2 => Just(How::Plain), 1 => Just(How::NoReplace), 2 => Just(How::Exchange)].prop_map(Action::Rename),
        2 => mode().prop_map(Action::Chmod),
        1 => (prop_oneof![Just(0u32), Just(1000), Just(2000)], prop_oneof![Just(0u32), Just(100), Just(300)]).prop_map(|(uid, gid)| Action::Chown(uid, gid)),
        1 => Just(Action::Reap),
        1 => Just(Action::Expire),
    ];
    let user = prop_oneof![2 => Just(0usize), 1 => Just(1), 1 => Just(2), 1 => Just(3)];
    (user, action, place(), place()).prop_map(|(user, action, one, other)| Step { user, action, one, other })
}

struct Both {
    world: World,
    model: Model,
    /// Inode of each of the model's nodes.
    inodes: Vec<u64>,
}

impl Both {
    fn new() -> Self {
        let mut world = World::new();
        world.chmod(ROOT, 0o777).unwrap();
        let attr = world.attr(ROOT);
        let root = Node {
            kind: 2,
            mode: 0o777,
            uid: 0,
            gid: 0,
            mtime: attr.mtime_ns,
            ctime: attr.ctime_ns,
            parent: None,
            entries: BTreeMap::new(),
        };
        let model = Model { nodes: vec![root], user: Credentials::root(), now: 0 };
        Self { world, model, inodes: vec![ROOT] }
    }

    fn run(&mut self, step: Step) {
        let users = [Credentials::root(), user(1000, 100, &[]), user(2000, 200, &[300]), user(3000, 100, &[300])];
        self.world.user = users[step.user].clone();
        self.model.user = users[step.user].clone();
        self.model.now = self.world.now + 1000;
        let (one, other) = (step.one.0 % self.inodes.len(), step.other.0 % self.inodes.len());
        let (from, to) = ((one, step.one.1), (other, step.other.1));
        let (parent, name, inode) = (self.inodes[one], step.one.1, self.inodes[other]);
        let (answer, expected) = match step.action {
            Action::Make(kind, mode) => {
                let answer = match kind {
                    2 => self.world.mkdir(parent, name, mode),
                    1 => self.world.mkfile(parent, name, mode),
                    _ => self.world.symlink(parent, name, "x"),
                };
                if let Ok(inode) = answer {
                    self.inodes.push(inode);
                }
                (answer, self.model.make(one, name, kind, mode))
            }
            Action::Link => (inode_of(self.world.link(inode, parent, name)), self.model.link(other, one, name)),
            Action::Unlink => (inode_of(self.world.unlink(parent, name)), self.model.remove(one, name, false)),
            Action::RemoveDir => (inode_of(self.world.rmdir(parent, name)), self.model.remove(one, name, true)),
            Action::Fell => {
                let answer = inode_of(self.world.fell(parent, name));
                // The sentence names the first of the names that are in the way.
                let refused = |kind| if kind == E::NotPermitted { E::AccessDenied } else { kind };
                (answer.map_err(refused), self.model.fell(one, name).map_err(refused))
            }
            Action::Rename(how) => {
                let mut op = rename_op((parent, name), (inode, to.1));
                (op.no_replace, op.exchange) = (how == How::NoReplace, how == How::Exchange);
                (inode_of(self.world.run(Op::Rename(op))), self.model.rename(from, to, how))
            }
            Action::Chmod(mode) => (inode_of(self.world.chmod(inode, mode)), self.model.chmod(other, mode)),
            Action::Chown(uid, gid) => {
                let answer = inode_of(self.world.chown(inode, Some(uid), Some(gid)));
                (answer, self.model.chown(other, uid, gid))
            }
            // Reaping takes nothing that the model can see, but for what no step can name any more.
            Action::Reap => {
                self.reap();
                return;
            }
            Action::Expire => {
                self.expire();
                return;
            }
        };
        assert_eq!(answer, expected.map(|node| self.inodes[node]), "{step:?}");
        assert_eq!(self.world.machine.check(), Vec::<String>::new(), "{step:?}");
        self.compare();
    }

    /// Frees orphans. A felled directory is none yet.
    fn reap(&mut self) {
        let model = &self.model;
        let gone = (0..self.inodes.len()).filter(|node| model.is_removed(*node) && !model.is_felled(*node));
        let gone: Vec<usize> = gone.collect();
        let reaped: Vec<u64> = gone.iter().map(|node| self.inodes[*node]).collect();
        self.world.reap(&reaped);
        self.forget(&gone);
    }

    /// Removes, as the leader does, all that is below felled directories.
    fn expire(&mut self) {
        self.world.user = Credentials::root();
        let began = self.world.now;
        self.world.expire(3);
        let tops = (0..self.inodes.len()).filter(|node| self.model.is_felled(*node));
        let emptied: Vec<usize> = tops.flat_map(|top| self.model.directories_below(top)).collect();
        let mut unnamed: Vec<usize> = Vec::new();
        for directory in emptied {
            unnamed.extend(std::mem::take(&mut self.model.nodes[directory].entries).into_values());
        }
        // A file that has another name outside: each name went with a command, and a time, of its own.
        unnamed.retain(|node| self.model.names_of(*node) > 0);
        for node in unnamed {
            let ctime = self.world.attr(self.inodes[node]).ctime_ns;
            assert!((began..=self.world.now).contains(&ctime), "{ctime} of a file with one name less");
            self.model.nodes[node].ctime = ctime;
        }
        self.reap();
        self.compare();
    }

    /// Takes reaped nodes out of the model, which numbers the others anew.
    fn forget(&mut self, gone: &[usize]) {
        let kept: Vec<usize> = (0..self.inodes.len()).filter(|node| !gone.contains(node)).collect();
        let position = |node: &usize| kept.iter().position(|other| other == node);
        let nodes = kept.iter().map(|node| {
            let mut node = self.model.nodes[*node].clone();
            node.entries = node.entries.iter().map(|(name, entry)| (*name, position(entry).unwrap())).collect();
            node.parent = node.parent.as_ref().and_then(position);
            node
        });
        self.model.nodes = nodes.collect();
        self.inodes = kept.iter().map(|node| self.inodes[*node]).collect();
    }

    fn compare(&self) {
        for (number, inode) in self.inodes.iter().enumerate() {
            let attr = self.world.attr(*inode);
            let op = Op::ReadDir(meta_op::ReadDir { inode: *inode, ..Default::default() });
            let listed = if attr.kind == 2 { self.world.ask(op).unwrap().entries } else { Vec::new() };
            let entries = listed.iter().map(|entry| (entry.name.as_slice(), entry.inode)).collect::<BTreeMap<_, _>>();
            let node = &self.model.nodes[number];
            let expected = node.entries.iter().map(|(name, node)| (name.as_bytes(), self.inodes[*node])).collect();
            assert_eq!(entries, expected, "entries of {inode}");
            let seen = (attr.kind, attr.mode, attr.uid, attr.gid, attr.nlink, attr.mtime_ns, attr.ctime_ns);
            let nlink = self.model.nlink(number);
            assert_eq!(seen, (node.kind, node.mode, node.uid, node.gid, nlink, node.mtime, node.ctime), "{inode}");
        }
    }
}

fn inode_of(answer: Result<pb::MetaReply, E>) -> Result<u64, E> {
    answer.map(|reply| reply.attr.unwrap().inode)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn names_are_what_a_plain_tree_says(steps in proptest::collection::vec(step(), 1..120)) {
        let mut both = Both::new();
        for step in steps {
            both.run(step);
        }
    }
}
