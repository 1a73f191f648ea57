//! The possible outcomes of a power failure, as a choice: each unsynced sector is on the platter or not.
//!
//! A crash draws one outcome by chance. Here the disk is kept as it is at a moment, and any outcome of a failure at that
//! moment can be put on it, one after the other: of a few sectors all subsets can be tried.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::State;
use super::inode::{Change, Inode, SECTOR};
use super::names::{InodeNumber, Names};

/// A disk at a moment: its synced state, and the changes that a power failure may leave or lose.
#[derive(Clone)]
pub struct PowerCut {
    names: Names,
    inodes: BTreeMap<InodeNumber, Inode>,
    parts: Vec<(InodeNumber, Part)>,
}

/// Something that a power failure leaves as a whole or not at all.
#[derive(Clone)]
enum Part {
    /// A sector of a write, or the piece of it that the write has.
    Sector { offset: u64, data: Bytes },
    /// The length that a write at the end of a file gives it; without the bytes it reads as zeros.
    Length(u64),
    /// Any other change.
    Whole(Change),
}

impl PowerCut {
    pub(super) fn of(state: &State) -> Self {
        let mut parts = Vec::new();
        for (number, inode) in &state.inodes {
            let mut len = inode.durable.len();
            for (_, change) in &inode.pending {
                match change {
                    Change::Write { offset, data } => {
                        let whole: Vec<u8> = data.iter().flat_map(|buffer| buffer.iter().copied()).collect();
                        let end = offset + whole.len() as u64;
                        parts.extend(sectors(*offset, &Bytes::from(whole)).map(|sector| (*number, sector)));
                        if end > len {
                            parts.push((*number, Part::Length(end)));
                            len = end;
                        }
                    }
                    other => parts.push((*number, Part::Whole(other.clone()))),
                }
            }
        }
        Self { names: state.names.clone(), inodes: state.inodes.clone(), parts }
    }

    /// How many parts there are, each of which may be there or not: `1 << len` outcomes.
    #[must_use]
    pub fn part_count(&self) -> usize {
        self.parts.len()
    }

    /// Puts the synced state on the disk and the parts for which `keeps` is true. Names that were not synced are lost.
    pub(super) fn restore(&self, state: &mut State, keeps: impl Fn(usize) -> bool) {
        state.names = self.names.clone();
        state.names.lose_unsynced();
        state.inodes = self.inodes.clone();
        state.inodes.values_mut().for_each(Inode::forget_unsynced);
        for (_, (number, part)) in self.parts.iter().enumerate().filter(|(at, _)| keeps(*at)) {
            let durable = &mut state.inode(*number).durable;
            match part {
                Part::Sector { offset, data } => durable.write(*offset, data),
                Part::Length(end) => durable.set_len(durable.len().max(*end)),
                Part::Whole(change) => change.apply(durable),
            }
        }
        for inode in state.inodes.values_mut() {
            inode.current = inode.durable.clone();
            inode.open_count = 0;
        }
        state.locks.clear();
        state.in_flight.clear();
        state.collect();
    }
}

fn sectors(offset: u64, data: &Bytes) -> impl Iterator<Item = Part> {
    let end = offset + data.len() as u64;
    let count = end.div_ceil(SECTOR) - offset / SECTOR;
    (0..count).map(move |number| {
        let start = ((offset / SECTOR + number) * SECTOR).max(offset);
        let stop = ((offset / SECTOR + number + 1) * SECTOR).min(end);
        Part::Sector { offset: start, data: data.slice((start - offset) as usize..(stop - offset) as usize) }
    })
}
