//! The names of a disk: as programs see them, as they are on the platter, and the changes between.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ebb_types::{Result, bail};

use super::references::References;
use crate::virt::Dice;

/// Number of a file on its disk.
pub(super) type InodeNumber = u64;

/// The object of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Node {
    Directory,
    File(InodeNumber),
}

/// Names by their full path. Directories are durable from the start; see [`crate::Disk::create_dir_all`].
///
/// Invariants: every name's directory is there, in `current` and in `durable`. `references` counts the names of all three
/// others: those that lead to a file now, or may after a crash.
#[derive(Clone, Default)]
pub(super) struct Names {
    current: BTreeMap<PathBuf, Node>,
    durable: BTreeMap<PathBuf, Node>,
    pending: Vec<NameChange>,
    references: References,
}

/// A change of names that happens as a whole or not at all.
#[derive(Clone)]
struct NameChange {
    number: u64,
    /// Syncing this directory makes it durable.
    directory: PathBuf,
    /// New meaning of each name; `None`: gone.
    changes: Vec<(PathBuf, Option<Node>)>,
}

impl NameChange {
    /// Whether doing `later` without this one would make up a state that never was.
    fn precedes(&self, later: &Self) -> bool {
        let same = |ours: &(PathBuf, Option<Node>), theirs: &(PathBuf, Option<Node>)| {
            ours.0 == theirs.0 || ours.1.is_some() && ours.1 == theirs.1
        };
        self.changes.iter().any(|ours| later.changes.iter().any(|theirs| same(ours, theirs)))
    }
}

impl Names {
    pub(super) fn get(&self, path: &Path) -> Option<Node> {
        if path.parent().is_none() { Some(Node::Directory) } else { self.current.get(path).copied() }
    }

    /// The file of this name.
    pub(super) fn file(&self, path: &Path) -> Result<InodeNumber> {
        match self.get(path) {
            Some(Node::File(number)) => Ok(number),
            Some(Node::Directory) => bail!(IsDirectory, "{} is a directory", path.display()),
            None => bail!(NotFound, "there is no {}", path.display()),
        }
    }

    /// The directory that a name is in, which must be there.
    pub(super) fn directory_of<'a>(&self, path: &'a Path) -> Result<&'a Path> {
        match path.parent() {
            Some(directory) => self.check_directory(directory).map(|()| directory),
            None => bail!(IsDirectory, "{} is a directory", path.display()),
        }
    }

    pub(super) fn check_directory(&self, path: &Path) -> Result<()> {
        match self.get(path) {
            Some(Node::Directory) => Ok(()),
            Some(Node::File(_)) => bail!(NotDirectory, "{} is no directory", path.display()),
            None => bail!(NotFound, "there is no {}", path.display()),
        }
    }

    pub(super) fn create_dir_all(&mut self, path: &Path) -> Result<()> {
        for directory in path.ancestors() {
            if let Some(Node::File(_)) = self.get(directory) {
                bail!(NotDirectory, "{} is no directory", directory.display());
            }
        }
        for directory in path.ancestors().filter(|directory| directory.parent().is_some()) {
            self.current.insert(directory.to_owned(), Node::Directory);
            self.durable.insert(directory.to_owned(), Node::Directory);
        }
        Ok(())
    }

    pub(super) fn list(&self, path: &Path) -> Result<Vec<String>> {
        self.check_directory(path)?;
        let in_it = self.current.keys().filter(|name| name.parent() == Some(path));
        let mut names: Vec<String> =
            in_it.filter_map(|name| Some(name.file_name()?.to_string_lossy().into_owned())).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Gives a file a name, which must be free.
    pub(super) fn add(&mut self, number: u64, path: &Path, file: InodeNumber) {
        self.change(number, path, vec![(path.to_owned(), Some(Node::File(file)))]);
    }

    pub(super) fn remove(&mut self, number: u64, path: &Path) -> Result<()> {
        self.file(path)?;
        self.change(number, path, vec![(path.to_owned(), None)]);
        Ok(())
    }

    /// Renames a file; syncing the target's directory makes it durable.
    pub(super) fn rename(&mut self, number: u64, source: &Path, target: &Path) -> Result<()> {
        let file = self.file(source)?;
        self.directory_of(target)?;
        if self.get(target) == Some(Node::Directory) {
            bail!(IsDirectory, "{} is a directory", target.display());
        }
        if source != target {
            let changes = vec![(source.to_owned(), None), (target.to_owned(), Some(Node::File(file)))];
            self.change(number, target, changes);
        }
        Ok(())
    }

    /// Everything below a directory is gone, and its unsynced changes with it.
    pub(super) fn wipe(&mut self, directory: &Path) {
        self.pending.retain(|change| !change.directory.starts_with(directory));
        self.wipe_where(|path| path != directory && path.starts_with(directory));
    }

    /// Some names are gone. If a directory is among them, everything in it is, and no change of these is pending.
    pub(super) fn wipe_where(&mut self, is_gone: impl Fn(&Path) -> bool) {
        for names in [&mut self.current, &mut self.durable] {
            names.retain(|path, _| !is_gone(path));
        }
        self.references = self.counted();
    }

    /// Every file by its path.
    pub(super) fn all(&self) -> impl Iterator<Item = (&Path, InodeNumber)> {
        self.current.iter().filter_map(|(path, node)| match node {
            Node::File(file) => Some((path.as_path(), *file)),
            Node::Directory => None,
        })
    }

    fn change(&mut self, number: u64, path: &Path, changes: Vec<(PathBuf, Option<Node>)>) {
        let directory = path.parent().expect("the caller has looked at the directory").to_owned();
        apply(&mut self.current, &changes, &mut self.references);
        changes.iter().filter_map(|(_, node)| *node).for_each(|node| self.references.add(node));
        self.pending.push(NameChange { number, directory, changes });
    }

    /// Makes changes up to `number` in a directory durable, and those that they build on.
    pub(super) fn sync(&mut self, number: u64, directory: &Path) {
        let mut wanted = vec![false; self.pending.len()];
        for index in (0..self.pending.len()).rev() {
            let change = &self.pending[index];
            let later = index + 1..self.pending.len();
            wanted[index] = change.number <= number && change.directory == directory
                || later.into_iter().any(|later| wanted[later] && change.precedes(&self.pending[later]));
        }
        let mut wanted = wanted.into_iter();
        let pending = std::mem::take(&mut self.pending);
        for change in pending {
            if wanted.next() == Some(true) {
                keep(&mut self.durable, &change, &mut self.references);
            } else {
                self.pending.push(change);
            }
        }
    }

    /// Makes all changes up to `number` durable in the directories that `lies` chooses. No change there builds on one
    /// elsewhere.
    pub(super) fn sync_all(&mut self, number: u64, lies: impl Fn(&Path) -> bool) {
        for change in std::mem::take(&mut self.pending) {
            if change.number <= number && lies(&change.directory) {
                keep(&mut self.durable, &change, &mut self.references);
            } else {
                self.pending.push(change);
            }
        }
    }

    /// Memory is lost: each unsynced change in the directories that `lies` chooses is lost or kept, but none is kept
    /// without those it builds on. Returns how many were lost and kept.
    pub(super) fn crash(&mut self, dice: &mut Dice, lies: impl Fn(&Path) -> bool) -> (u64, u64) {
        let mut lost: Vec<NameChange> = Vec::new();
        let mut kept = 0;
        for change in std::mem::take(&mut self.pending) {
            if !lies(&change.directory) {
                self.pending.push(change);
            } else if dice.coin() && !lost.iter().any(|before| before.precedes(&change)) {
                keep(&mut self.durable, &change, &mut self.references);
                kept += 1;
            } else {
                lost.push(change);
            }
        }
        self.current.retain(|path, _| !lies(path));
        let there = self.durable.iter().filter(|(path, _)| lies(path));
        self.current.extend(there.map(|(path, node)| (path.clone(), *node)));
        self.references = self.counted();
        (lost.len() as u64, kept)
    }

    /// Power is lost, and every unsynced change with it.
    pub(super) fn lose_unsynced(&mut self) {
        self.pending.clear();
        self.current = self.durable.clone();
        self.references = self.counted();
    }

    /// Whether a name leads to a file, now or after a crash.
    pub(super) fn lead_to(&self, file: InodeNumber) -> bool {
        self.references.has(file)
    }

    /// Files that have lost their last name since the last call. One may have got another since.
    pub(super) fn take_unnamed(&mut self) -> Vec<InodeNumber> {
        self.references.take_unnamed()
    }

    /// All names, counted anew.
    fn counted(&self) -> References {
        let pending = self.pending.iter().flat_map(|change| change.changes.iter().filter_map(|(_, node)| *node));
        let mut references = References::default();
        self.current
            .values()
            .chain(self.durable.values())
            .copied()
            .chain(pending)
            .for_each(|node| references.add(node));
        references
    }
}

/// Makes a pending change durable.
fn keep(durable: &mut BTreeMap<PathBuf, Node>, change: &NameChange, references: &mut References) {
    apply(durable, &change.changes, references);
    change.changes.iter().filter_map(|(_, node)| *node).for_each(|node| references.drop_one(node));
}

fn apply(names: &mut BTreeMap<PathBuf, Node>, changes: &[(PathBuf, Option<Node>)], references: &mut References) {
    for (path, node) in changes {
        // A rename takes a name away before it gives one: a file may be without any in between.
        let before = match node {
            Some(node) => {
                references.add(*node);
                names.insert(path.clone(), *node)
            }
            None => names.remove(path),
        };
        if let Some(before) = before {
            references.drop_one(before);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn with_directory() -> Names {
        let mut names = Names::default();
        names.create_dir_all(Path::new("/d/e")).unwrap();
        names
    }

    #[test]
    fn a_crash_keeps_the_old_name_or_the_new_one() {
        let mut seen = BTreeSet::new();
        for seed in 0..64 {
            let mut names = with_directory();
            names.add(1, Path::new("/d/a"), 1);
            names.sync(1, Path::new("/d"));
            names.add(2, Path::new("/d/a.new"), 2);
            names.rename(3, Path::new("/d/a.new"), Path::new("/d/a")).unwrap();
            names.crash(&mut Dice::new(seed, "names"), |_| true);
            let (a, new) = (names.file(Path::new("/d/a")).unwrap(), names.file(Path::new("/d/a.new")).ok());
            seen.insert((a, new));
        }
        assert_eq!(seen, BTreeSet::from([(1, None), (1, Some(2)), (2, None)]));
    }

    #[test]
    fn syncing_a_directory_saves_its_names_and_no_others() {
        for seed in 0..16 {
            let mut names = with_directory();
            names.add(1, Path::new("/d/a"), 1);
            names.add(2, Path::new("/d/e/b"), 2);
            names.rename(3, Path::new("/d/e/b"), Path::new("/d/b")).unwrap();
            names.remove(4, Path::new("/d/a")).unwrap();
            names.sync(3, Path::new("/d"));
            names.crash(&mut Dice::new(seed, "names"), |_| true);
            assert_eq!(names.file(Path::new("/d/b")).unwrap(), 2);
            assert!(names.get(Path::new("/d/e/b")).is_none());
        }
    }

    #[test]
    fn syncing_everything_saves_names_everywhere_up_to_then() {
        let mut later = BTreeSet::new();
        for seed in 0..32 {
            let mut names = with_directory();
            names.add(1, Path::new("/d/a"), 1);
            names.add(2, Path::new("/d/e/b"), 2);
            names.rename(3, Path::new("/d/a"), Path::new("/d/e/a")).unwrap();
            names.sync_all(3, |_| true);
            names.add(4, Path::new("/d/c"), 3);
            names.crash(&mut Dice::new(seed, "names"), |_| true);
            assert_eq!(names.file(Path::new("/d/e/a")).unwrap(), 1);
            assert_eq!(names.file(Path::new("/d/e/b")).unwrap(), 2);
            assert!(names.get(Path::new("/d/a")).is_none());
            later.insert(names.get(Path::new("/d/c")).is_some());
        }
        assert_eq!(later.len(), 2, "changes after the sync may be lost");
    }

    #[test]
    fn listing_shows_one_level() {
        let mut names = with_directory();
        names.add(1, Path::new("/d/z"), 1);
        names.add(2, Path::new("/d/e/deep"), 2);
        assert_eq!(names.list(Path::new("/d")).unwrap(), ["e", "z"]);
        assert!(names.list(Path::new("/d/z")).is_err());
        assert!(names.create_dir_all(Path::new("/d/z/q")).is_err());
    }

    proptest! {
        /// The counts are those of the names. Each file that has lost its last name is among those taken.
        #[test]
        fn the_counts_are_those_of_all_names(steps in proptest::collection::vec((0_u8..6, 0_usize..4, 0_usize..4), 1..60)) {
            let paths = ["/d/a", "/d/b", "/d/e/a", "/d/e/b"].map(Path::new);
            let (mut names, mut living) = (with_directory(), BTreeSet::new());
            for (number, (step, one, other)) in (1_u64..).zip(steps) {
                let (one, other) = (paths[one], paths[other]);
                match step {
                    0 if names.get(one).is_none() => {
                        names.add(number, one, number);
                        living.insert(number);
                    }
                    1 => drop(names.remove(number, one)),
                    2 => drop(names.rename(number, one, other)),
                    3 => names.sync(number - number % 3, one.parent().unwrap()),
                    4 => names.sync_all(number - number % 3, |_| true),
                    5 if number % 5 == 0 => {
                        names.crash(&mut Dice::new(number, "names"), |_| true);
                        living.retain(|file| names.lead_to(*file));
                    }
                    _ => {}
                }
                prop_assert!(names.references.has_counts_of(&names.counted()));
                for file in names.take_unnamed() {
                    if !names.lead_to(file) {
                        living.remove(&file);
                    }
                }
                prop_assert!(living.iter().all(|file| names.lead_to(*file)), "lost without a word");
            }
        }
    }
}
