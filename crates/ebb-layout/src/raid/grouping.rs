//! Which metablocks make a RAID set together.
//!
//! Metablocks of one file mostly die together, and so do those of one directory: then a RAID set goes as a whole, and
//! leaves no bytes behind that it has to keep for the others. A check metablock is as long as the longest of its slots,
//! so metablocks of like length go together, and a RAID set that is nearly full waits for nothing.

use std::collections::VecDeque;
use std::time::Duration;

use ebb_types::InodeId;

/// What grouping wants to know of a metablock.
pub trait Grouped {
    /// Its file.
    fn file(&self) -> InodeId;
    /// The directory of its file.
    fn directory(&self) -> InodeId;
    /// Its length in bytes.
    fn len_bytes(&self) -> u64;
    /// For how long it has been due.
    fn waited(&self) -> Duration;
}

/// Metablocks that may share a RAID set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Within {
    /// Those of one file.
    File,
    /// Those of the files of one directory.
    Directory,
    /// Any of a dataset.
    Dataset,
}

/// When a RAID set is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ready {
    /// If its padding is at most an eighth of its check bytes.
    LittlePadding,
    /// If one of its metablocks has been due for so long.
    Waited(Duration),
    /// In any case.
    Always,
}

/// One step of grouping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// Which metablocks may share a RAID set.
    pub within: Within,
    /// When it is made.
    pub ready: Ready,
}

/// The steps up to those that wait.
pub const AT_ONCE: [Step; 2] = [
    Step { within: Within::File, ready: Ready::LittlePadding },
    Step { within: Within::Directory, ready: Ready::LittlePadding },
];

/// The part of its check bytes that a RAID set's padding may be.
const PADDING_PART: u128 = 8;

/// Whether the zeros behind the shorter slots, empty ones included, are at most an eighth of the check bytes. Without a
/// byte they are not.
#[must_use]
pub fn has_little_padding(lengths: impl Iterator<Item = u64>, slots: usize) -> bool {
    let (mut longest, mut bytes) = (0, 0);
    for len in lengths.take(slots) {
        longest = longest.max(u128::from(len));
        bytes += u128::from(len);
    }
    let whole = longest * slots as u128;
    whole > 0 && (whole - bytes) * PADDING_PART <= whole
}

/// Chooses RAID sets among metablocks that are in order: longest first, and neighbours of one file side by side.
pub trait Packer {
    /// A RAID set that may be made.
    type Draft;

    /// Of how many metablocks a RAID set may be chosen.
    fn reach(&self) -> usize;

    /// A RAID set with the first of these metablocks, and their places in the list; none if that one finds no others.
    fn draft(&mut self, window: &[usize], step: Step) -> Option<(Vec<usize>, Self::Draft)>;

    /// Makes it.
    fn accept(&mut self, draft: Self::Draft, step: Step);
}

/// Goes through the steps with those metablocks that `left` names, and leaves those there that no step took.
///
/// A RAID set of one metablock is never made: its row would be a copy.
pub fn group<M: Grouped, P: Packer>(
    members: &[M],
    left: &mut Vec<usize>,
    steps: &[Step],
    slots: usize,
    packer: &mut P,
) {
    for step in steps {
        let key = |index: usize| match step.within {
            Within::File => members[index].file(),
            Within::Directory => members[index].directory(),
            Within::Dataset => InodeId::default(),
        };
        let is_young = |member: &M| matches!(step.ready, Ready::Waited(delay) if member.waited() < delay);
        left.sort_unstable_by_key(|index| {
            let member = &members[*index];
            let neighbours = (member.directory(), member.file(), *index);
            (key(*index), is_young(member), std::cmp::Reverse(member.len_bytes()), neighbours)
        });
        let mut remaining = Vec::new();
        for together in left.chunk_by(|one, other| key(*one) == key(*other)) {
            let mut cut = Cut { members, step: *step, slots, queue: together.iter().copied().collect() };
            while let Some(first) = cut.queue.front() {
                if is_young(&members[*first]) {
                    break;
                }
                if !cut.make_one(packer) {
                    remaining.extend(cut.queue.pop_front());
                }
            }
            remaining.extend(cut.queue);
        }
        *left = remaining;
    }
}

/// A group of metablocks that is cut into RAID sets.
struct Cut<'m, M> {
    members: &'m [M],
    step: Step,
    slots: usize,
    queue: VecDeque<usize>,
}

impl<M: Grouped> Cut<'_, M> {
    /// Makes a RAID set with the first metablock of the queue; false if there is none to make.
    fn make_one<P: Packer>(&mut self, packer: &mut P) -> bool {
        let len = |index: &usize| self.members[*index].len_bytes();
        let is_little = self.step.ready == Ready::LittlePadding;
        if is_little && !has_little_padding(self.queue.iter().map(len), self.slots) {
            return false;
        }
        // Longer ones would lengthen the row: of those that wait still there may be some behind the others.
        let longest = self.queue.front().map_or(0, len);
        let window: Vec<usize> =
            self.queue.iter().copied().filter(|index| len(index) <= longest).take(packer.reach()).collect();
        let Some((places, draft)) = packer.draft(&window, self.step) else { return false };
        let chosen: Vec<usize> = places.into_iter().map(|place| window[place]).collect();
        assert_eq!(chosen.first(), window.first(), "a RAID set is drafted around the first metablock");
        if chosen.len() < 2 || is_little && !has_little_padding(chosen.iter().map(len), self.slots) {
            return false;
        }
        packer.accept(draft, self.step);
        self.remove(&chosen);
        true
    }

    fn remove(&mut self, chosen: &[usize]) {
        let mut found = 0;
        let mut passed = Vec::new();
        while found < chosen.len()
            && let Some(index) = self.queue.pop_front()
        {
            if chosen.contains(&index) { found += 1 } else { passed.push(index) }
        }
        passed.into_iter().rev().for_each(|index| self.queue.push_front(index));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// File, directory, length, hours of waiting.
    struct Piece(u64, u64, u64, u64);

    impl Grouped for Piece {
        fn file(&self) -> InodeId {
            InodeId::new(self.0)
        }

        fn directory(&self) -> InodeId {
            InodeId::new(self.1)
        }

        fn len_bytes(&self) -> u64 {
            self.2
        }

        fn waited(&self) -> Duration {
            Duration::from_secs(self.3 * 3600)
        }
    }

    /// Takes whatever comes first.
    struct First {
        slots: usize,
        made: Vec<(Vec<usize>, Within)>,
    }

    impl Packer for First {
        type Draft = Vec<usize>;

        fn reach(&self) -> usize {
            self.slots
        }

        fn draft(&mut self, window: &[usize], _: Step) -> Option<(Vec<usize>, Vec<usize>)> {
            Some(((0..window.len()).collect(), window.to_vec()))
        }

        fn accept(&mut self, draft: Vec<usize>, step: Step) {
            self.made.push((draft, step.within));
        }
    }

    fn grouped(pieces: &[Piece]) -> (Vec<(Vec<usize>, Within)>, Vec<usize>) {
        let mut packer = First { slots: 4, made: Vec::new() };
        let mut left = (0..pieces.len()).collect();
        let waits = Step { within: Within::Dataset, ready: Ready::Waited(Duration::from_secs(24 * 3600)) };
        group(pieces, &mut left, &[AT_ONCE[0], AT_ONCE[1], waits], 4, &mut packer);
        (packer.made, left)
    }

    #[test]
    fn files_come_first_then_directories_and_the_rest_waits() {
        let file = |file: u64, count: usize, directory: u64, waited: u64| {
            (0..count).map(move |_| Piece(file, directory, 64, waited))
        };
        // A file of five, one of three beside it, and one of two elsewhere.
        let young: Vec<Piece> = file(1, 5, 7, 0).chain(file(2, 3, 7, 0)).chain(file(3, 2, 8, 0)).collect();
        let (made, left) = grouped(&young);
        assert_eq!(made, [(vec![0, 1, 2, 3], Within::File), (vec![4, 5, 6, 7], Within::Directory)]);
        assert_eq!(left, [8, 9], "two of four are half padding, and wait");
        let old: Vec<Piece> = file(1, 5, 7, 24).chain(file(2, 3, 8, 0)).chain(file(3, 1, 9, 0)).collect();
        let (made, left) = grouped(&old);
        assert_eq!(made[1], (vec![4, 5, 6, 7], Within::Dataset), "one that has waited draws others along");
        assert_eq!(left, [8]);
    }

    #[test]
    fn one_metablock_makes_no_raid_set() {
        assert_eq!(grouped(&[Piece(1, 1, 64, 99)]), (Vec::new(), vec![0]));
        let (made, left) = grouped(&[Piece(1, 1, 64, 99), Piece(2, 2, 1, 0)]);
        assert_eq!((made, left), (vec![(vec![0, 1], Within::Dataset)], Vec::new()));
    }

    #[test]
    fn a_long_one_does_not_keep_short_ones_from_each_other() {
        let pieces = [Piece(1, 1, 64, 0), Piece(2, 1, 8, 0), Piece(3, 1, 8, 0), Piece(4, 1, 8, 0), Piece(5, 1, 7, 0)];
        let (made, left) = grouped(&pieces);
        assert_eq!((made, left), (vec![(vec![1, 2, 3, 4], Within::Directory)], vec![0]));
        let longer = [Piece(1, 1, 8, 30), Piece(2, 2, 64, 0), Piece(3, 3, 8, 0)];
        assert_eq!(grouped(&longer), (vec![(vec![0, 2], Within::Dataset)], vec![1]), "it would lengthen the row");
    }

    #[test]
    fn an_eighth_of_padding_is_little() {
        let full = |count: usize, len: u64| std::iter::repeat_n(len, count);
        assert!(has_little_padding(full(8, 64), 8) && has_little_padding(full(7, 64), 8));
        assert!(!has_little_padding(full(6, 64), 8) && !has_little_padding(full(7, 64).chain([0]).skip(1), 8));
        assert!(!has_little_padding(full(8, 0), 8) && !has_little_padding(full(3, 64), 4));
        assert!(has_little_padding(full(4, u64::MAX), 4));
    }
}
