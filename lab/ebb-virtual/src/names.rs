//! A directory as a map from names to files: the operations of programs, and their answers.
//!
//! Each file has contents of its own, so that a read of a whole file shows which file a name led to. [`check`] decides
//! whether a history of such operations is possible. Clients of a virtual cluster make one ([`work`]), and so do
//! programs on real mounts.

pub mod check;
#[cfg(test)]
mod tests;
pub mod work;

/// Names of a directory under test at most.
pub const NAMES_MAX: usize = 8;

/// A file, by its contents. Never made twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct File(pub u32);

/// A name of the directory, below [`NAMES_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Name(pub usize);

/// Which file each name leads to.
pub type Directory = [Option<File>; NAMES_MAX];

/// An operation of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// A file that only its maker knew takes the name, also from another file: rename(2) of a temporary file.
    Put(Name, File),
    /// As `Put`, if no file has the name: link(2), or RENAME_NOREPLACE.
    PutNew(Name, File),
    /// A file is made under the name if nothing has it, and filled then: O_EXCL.
    Make(Name, File),
    /// A new file takes the name, also from another file, and is filled then: what Hadoop's programs do to a file that exists.
    MakeOver(Name, File),
    /// rename(2) from one name to another.
    Move(Name, Name),
    /// As `Move`, with RENAME_NOREPLACE.
    MoveNew(Name, Name),
    /// RENAME_EXCHANGE.
    Exchange(Name, Name),
    /// unlink(2).
    Unlink(Name),
    /// stat(2): whether something has the name. A listing is a look at each name, all between its beginning and its end: it
    /// does not show all names as they were in one moment.
    Look(Name),
    /// open(2), and a read of everything.
    Read(Name),
}

/// Its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Done; of a look: something has the name.
    Done,
    /// EEXIST.
    Exists,
    /// ENOENT.
    Missing,
    /// The contents of this file.
    File(File),
    /// No contents: a file that is made and not filled yet.
    Empty,
    /// No answer, or an error that leaves open whether it was done: it may be done at any time between its start and
    /// its end, or never.
    Unknown,
}

/// One operation of a history. All times are of one clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// The client.
    pub client: usize,
    /// The operation.
    pub operation: Operation,
    /// The answer.
    pub answer: Answer,
    /// Taken before the call, in nanoseconds.
    pub start: u64,
    /// Taken after it. Where the answer is not known: the time after which it is certainly not done any more;
    /// `u64::MAX`, if that is not known.
    pub end: u64,
}

impl Operation {
    /// Whether it can change a directory.
    #[must_use]
    pub fn changes(self) -> bool {
        !matches!(self, Self::Look(_) | Self::Read(_))
    }

    /// The names that it is about.
    pub fn names(self) -> impl Iterator<Item = Name> {
        let (one, other) = match self {
            Self::Move(one, other) | Self::MoveNew(one, other) | Self::Exchange(one, other) => (one, Some(other)),
            Self::Put(name, _) | Self::PutNew(name, _) | Self::Make(name, _) | Self::MakeOver(name, _) => (name, None),
            Self::Unlink(name) | Self::Look(name) | Self::Read(name) => (name, None),
        };
        std::iter::once(one).chain(other)
    }

    /// Its possible effect on a directory: the answer, and the directory after it. `None`: this answer is wrong here.
    /// `is_filled_later` is true for a file that was empty at first.
    #[must_use]
    pub fn apply(
        self,
        before: &Directory,
        answer: Answer,
        is_filled_later: impl Fn(File) -> bool,
    ) -> Option<Directory> {
        let mut after = *before;
        let at = |name: Name| before[name.0];
        let is_right = match (self, answer) {
            (Self::Put(name, file) | Self::MakeOver(name, file), Answer::Done) => {
                after[name.0] = Some(file);
                true
            }
            (Self::PutNew(name, file) | Self::Make(name, file), Answer::Done) => {
                after[name.0] = Some(file);
                at(name).is_none()
            }
            (Self::PutNew(name, _) | Self::Make(name, _), Answer::Exists) => at(name).is_some(),
            (Self::Move(from, to), Answer::Done) => {
                (after[to.0], after[from.0]) = (at(from), None);
                at(from).is_some()
            }
            (Self::MoveNew(from, to), Answer::Done) => {
                (after[to.0], after[from.0]) = (at(from), None);
                at(from).is_some() && at(to).is_none()
            }
            (Self::MoveNew(_, to), Answer::Exists) => at(to).is_some(),
            (Self::Move(from, _) | Self::MoveNew(from, _), Answer::Missing) => at(from).is_none(),
            (Self::Exchange(one, other), Answer::Done) => {
                after.swap(one.0, other.0);
                at(one).is_some() && at(other).is_some()
            }
            (Self::Exchange(one, other), Answer::Missing) => at(one).is_none() || at(other).is_none(),
            (Self::Unlink(name), Answer::Done) => {
                after[name.0] = None;
                at(name).is_some()
            }
            (Self::Look(name), Answer::Done) => at(name).is_some(),
            (Self::Unlink(name) | Self::Look(name) | Self::Read(name), Answer::Missing) => at(name).is_none(),
            (Self::Read(name), Answer::File(file)) => at(name) == Some(file),
            (Self::Read(name), Answer::Empty) => at(name).is_some_and(is_filled_later),
            _ => false,
        };
        is_right.then_some(after)
    }
}
