//! Whether a history of names is linearizable: whether one order of all operations, in which none begins before another
//! one that had ended by then, gives every answer (Herlihy and Wing, "Linearizability", TOPLAS 1990).
//!
//! The search goes through the history once, by time, and keeps every *configuration* that the answers so far allow: a
//! directory, and which of the operations under way have taken effect. An operation has to have taken effect when it
//! ends (Wing and Gong, JPDC 1993; taking effect as late as possible after Lowe, "Testing for linearizability", CCPE
//! 2017). Configurations are kept in a set, so that none is looked at twice.
//!
//! Two rules keep the set small. An operation that changes nothing takes effect as soon as its answer is right: it
//! stands in no other's way. An operation without a known answer takes effect only if another one needs it.

use std::collections::{BTreeMap, BTreeSet};

use super::{Answer, Directory, File, Name, Operation, Record};

/// Configurations at a time at most.
const CONFIGURATIONS_MAX: usize = 300_000;
/// Operations under way at a time at most, those without an answer among them.
pub const OPEN_MAX: usize = 128;
/// Directories that a refusal shows at most.
const SHOWN_MAX: usize = 4;
/// Operations on the same names that a refusal shows at most: the last ones.
const STORY_MAX: usize = 24;

/// The verdict on a history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// An order explains it.
    Linear,
    /// None does; why, for people.
    Illegal(String),
    /// Too many operations were under way at a time to decide.
    Undecided(String),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Configuration {
    directory: Directory,
    /// Slots of operations under way that have taken effect.
    done: u128,
}

/// Operations under way, by slot.
struct Open<'a> {
    slots: [Option<&'a Record>; OPEN_MAX],
    /// The slots that are taken, a bit for each.
    taken: u128,
    /// Of these, the ones whose answer is not known.
    unknown: u128,
    /// Files that were made empty.
    filled_later: &'a BTreeSet<File>,
}

/// The verdict on a history of a directory that was `first` before anything began. Operations may come in any order.
#[must_use]
pub fn check(first: Directory, history: &[Record]) -> Verdict {
    let filled_later: BTreeSet<File> = history
        .iter()
        .filter_map(|record| match record.operation {
            Operation::Make(_, file) | Operation::MakeOver(_, file) => Some(file),
            _ => None,
        })
        .collect();
    let mut open = Open { slots: [None; OPEN_MAX], taken: 0, unknown: 0, filled_later: &filled_later };
    let mut slot_of = BTreeMap::new();
    let mut configurations = BTreeSet::from([Configuration { directory: first, done: 0 }]);
    for (is_end, index) in events(history) {
        let record = &history[index];
        if !is_end {
            let Some(slot) = open.enter(record) else {
                return Verdict::Undecided(format!("{OPEN_MAX} operations are under way at {}", record.start));
            };
            slot_of.insert(index, slot);
            configurations = configurations.into_iter().map(|one| open.settled(one)).collect();
            continue;
        }
        let Some(slot) = slot_of.remove(&index) else { continue };
        let Some(mut next) = open.all_with(&configurations, slot) else {
            return Verdict::Undecided(format!("more than {CONFIGURATIONS_MAX} configurations at {}", record.end));
        };
        if record.answer == Answer::Unknown {
            // Not done until now, so never.
            next.extend(configurations.iter().filter(|one| one.done >> slot & 1 == 0));
        }
        if next.is_empty() {
            return Verdict::Illegal(open.refusal(record, &configurations) + &story(history, record));
        }
        open.leave(slot);
        configurations = open.without_idle(next);
    }
    Verdict::Linear
}

/// Beginnings and ends by time, as (is an end, index). A beginning in the moment of an end may come before it.
fn events(history: &[Record]) -> Vec<(bool, usize)> {
    let mut events = Vec::with_capacity(history.len() * 2);
    for (index, record) in history.iter().enumerate() {
        match (record.answer, record.operation.changes()) {
            (Answer::Unknown, false) => {}
            (Answer::Unknown, true) if record.end == u64::MAX => events.push((record.start, false, index)),
            _ => events.extend([(record.start, false, index), (record.end, true, index)]),
        }
    }
    events.sort_unstable();
    events.into_iter().map(|(_, is_end, index)| (is_end, index)).collect()
}

/// Earlier operations on the same names, for people.
fn story(history: &[Record], wrong: &Record) -> String {
    let names: BTreeSet<Name> = wrong.operation.names().collect();
    let is_about = |record: &&Record| record.operation.names().any(|name| names.contains(&name));
    let mut before: Vec<&Record> =
        history.iter().filter(|record| record.start <= wrong.end && *record != wrong).filter(is_about).collect();
    // An operation without an end is shown where it began.
    before.sort_unstable_by_key(|record| if record.answer == Answer::Unknown { record.start } else { record.end });
    let mut text = format!("the last of {} operations on the same names, by their ends:\n", before.len());
    for record in &before[before.len().saturating_sub(STORY_MAX)..] {
        text += &format!("  {}\n", describe(record));
    }
    text
}

/// The numbers of the bits that are set.
fn bits(mut set: u128) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(lowest)
    })
}

impl<'a> Open<'a> {
    /// The slot of an operation that begins; none if all are taken.
    fn enter(&mut self, record: &'a Record) -> Option<usize> {
        let slot = (!self.taken).trailing_zeros() as usize;
        *self.slots.get_mut(slot)? = Some(record);
        self.taken |= 1 << slot;
        if record.answer == Answer::Unknown {
            self.unknown |= 1 << slot;
        }
        Some(slot)
    }

    fn leave(&mut self, slot: usize) {
        self.slots[slot] = None;
        (self.taken, self.unknown) = (self.taken & !(1 << slot), self.unknown & !(1 << slot));
    }

    /// The directory after an operation takes effect; none: its answer would be wrong.
    fn after(&self, record: &Record, directory: &Directory) -> Option<Directory> {
        let answer = if record.answer == Answer::Unknown { Answer::Done } else { record.answer };
        record.operation.apply(directory, answer, |file| self.filled_later.contains(&file))
    }

    /// With everything done that changes nothing and is answered rightly here.
    fn settled(&self, mut one: Configuration) -> Configuration {
        for (slot, record) in self.under_way(one) {
            let is_known = record.answer != Answer::Unknown;
            if is_known && self.after(record, &one.directory) == Some(one.directory) {
                one.done |= 1 << slot;
            }
        }
        one
    }

    /// Operations that have not taken effect yet.
    fn under_way(&self, one: Configuration) -> impl Iterator<Item = (usize, &'a Record)> {
        bits(self.taken & !one.done).filter_map(|slot| self.slots[slot].map(|record| (slot, record)))
    }

    /// Every configuration in which the operation of this slot has taken effect, with the slot free again. `None`: they
    /// are too many.
    fn all_with(&self, from: &BTreeSet<Configuration>, slot: usize) -> Option<BTreeSet<Configuration>> {
        let (mut found, mut seen) = (BTreeSet::new(), BTreeSet::new());
        let mut waiting: Vec<Configuration> = from.iter().copied().collect();
        while let Some(one) = waiting.pop() {
            if one.done >> slot & 1 == 1 {
                found.insert(Configuration { done: one.done & !(1 << slot), ..one });
                continue;
            }
            for (other, record) in self.under_way(one) {
                let Some(directory) = self.after(record, &one.directory).filter(|after| *after != one.directory) else {
                    continue;
                };
                let next = self.settled(Configuration { directory, done: one.done | 1 << other });
                if seen.insert(next) {
                    waiting.push(next);
                }
            }
            if seen.len() > CONFIGURATIONS_MAX {
                return None;
            }
        }
        Some(found)
    }

    /// Without those that have used an operation of unknown end for nothing.
    fn without_idle(&self, all: BTreeSet<Configuration>) -> BTreeSet<Configuration> {
        if self.unknown == 0 {
            return all;
        }
        let is_needed = |one: &&Configuration| {
            let mut spared = bits(self.unknown & one.done).map(|slot| 1 << slot);
            !spared.any(|bit: u128| all.contains(&Configuration { done: one.done & !bit, ..**one }))
        };
        all.iter().filter(is_needed).copied().collect()
    }

    fn refusal(&self, record: &Record, configurations: &BTreeSet<Configuration>) -> String {
        let mut text = format!("no order explains {}\nwith these under way:\n", describe(record));
        for other in self.slots.iter().flatten().filter(|other| **other != record) {
            text += &format!("  {}\n", describe(other));
        }
        text += "after one of these directories:\n";
        for one in configurations.iter().take(SHOWN_MAX) {
            let names = one.directory.iter().enumerate();
            let names = names.filter_map(|(name, file)| file.map(|File(file)| format!("n{name}=f{file}")));
            text += &format!("  {}\n", names.collect::<Vec<_>>().join(" "));
        }
        text
    }
}

/// An operation as people read it; times in microseconds.
#[must_use]
pub fn describe(record: &Record) -> String {
    let name = |Name(name): Name| format!("n{name}");
    let verb = match record.operation {
        Operation::Put(at, File(file)) => format!("put f{file} at {}", name(at)),
        Operation::PutNew(at, File(file)) => format!("put f{file} at {} if it is free", name(at)),
        Operation::Make(at, File(file)) => format!("make f{file} at {}", name(at)),
        Operation::MakeOver(at, File(file)) => format!("make f{file} at {} over what is there", name(at)),
        Operation::Move(from, to) => format!("move {} to {}", name(from), name(to)),
        Operation::MoveNew(from, to) => format!("move {} to {} if it is free", name(from), name(to)),
        Operation::Exchange(one, other) => format!("exchange {} and {}", name(one), name(other)),
        Operation::Unlink(at) => format!("unlink {}", name(at)),
        Operation::Look(at) => format!("look at {}", name(at)),
        Operation::Read(at) => format!("read {}", name(at)),
    };
    let (start, end) = (record.start / 1000, record.end / 1000);
    format!("client {}: {verb}: {:?}, from {start} to {end} us", record.client, record.answer)
}
