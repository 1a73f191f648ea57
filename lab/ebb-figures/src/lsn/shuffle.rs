//! A reducer's fetching: from up to five hosts at a time, each with all that its finished maps have for the reducer, merged to disk
//! when memory is full. The rules are those of the simulator's reducer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use ebb_client::Access;
use ebb_sim::cluster::Hardware;
use ebb_types::{Credentials, Result};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::bed::{Host, PIECE, SCALE};
use super::task::Written;

/// A piece of a map's output that is for one reducer. No less than a piece is read, so pieces go to reducers whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// Its reducer.
    pub reducer: usize,
    /// Where it lies in the map's output.
    pub offset: u64,
    /// Its bytes, as they are stored.
    pub len: u32,
}

/// Deals the pieces of all maps' outputs to reducers: each to the one that has got least so far.
#[must_use]
pub fn deal(maps: usize, reducers: usize, output_bytes: u64) -> Vec<Vec<Share>> {
    let mut got: BTreeSet<(u64, usize)> = (0..reducers).map(|reducer| (0, reducer)).collect();
    let deal_one = |_| {
        let mut shares = Vec::new();
        for offset in (0..output_bytes).step_by(PIECE as usize) {
            let len = PIECE.min(output_bytes - offset);
            let Some((bytes, reducer)) = got.pop_first() else { break };
            got.insert((bytes + len, reducer));
            shares.push(Share { reducer, offset, len: len as u32 });
        }
        shares
    };
    (0..maps).map(deal_one).collect()
}

/// What a reducer reads of one map's output.
#[derive(Clone, Debug)]
pub struct Part {
    /// The output.
    pub file: Written,
    /// The pieces of it.
    pub pieces: Vec<(u64, u32)>,
}

#[derive(Default)]
struct State {
    /// Hosts with something ready from which nothing is being fetched, in turn.
    turn: VecDeque<usize>,
    ready: BTreeMap<usize, Vec<Part>>,
    busy: BTreeSet<usize>,
    /// Bytes of the paper's data in memory, and those of a merge that is under way.
    held: f64,
    merging: f64,
    /// Maps that have ended, and those that are fetched.
    told: usize,
    fetched: usize,
}

/// The fetching of one reducer.
pub struct Fetching {
    maps: usize,
    buffer: f64,
    state: Mutex<State>,
    changes: watch::Sender<u64>,
}

impl Fetching {
    /// Nothing is fetched of so many maps.
    #[must_use]
    pub fn new(maps: usize, hardware: &Hardware) -> Self {
        let changes = watch::Sender::new(0);
        Self { maps, buffer: hardware.merge_buffer_bytes, state: Mutex::default(), changes }
    }

    /// A map on this host has ended, with so much for the reducer.
    pub fn map_ended(&self, host: usize, part: Part) {
        let mut state = self.state.lock();
        state.told += 1;
        if part.pieces.is_empty() {
            state.fetched += 1;
        } else {
            let ready = state.ready.entry(host).or_default();
            ready.push(part);
            let is_first = ready.len() == 1;
            if is_first && !state.busy.contains(&host) {
                state.turn.push_back(host);
            }
        }
        drop(state);
        self.tell();
    }

    fn tell(&self) {
        self.changes.send_modify(|version| *version += 1);
    }

    /// Every reducer begins with its own host, or all would storm the first.
    pub fn begin_with(&self, host: usize) {
        let mut state = self.state.lock();
        state.turn.make_contiguous().sort_unstable();
        let first = state.turn.iter().position(|other| *other >= host).unwrap_or(0);
        state.turn.rotate_left(first);
    }

    /// One of the reducer's connections: fetches until everything is there.
    pub async fn copy(self: Arc<Self>, host: Host) -> Result<()> {
        let mut changes = self.changes.subscribe();
        loop {
            changes.mark_unchanged();
            let next = {
                let mut state = self.state.lock();
                if state.fetched == self.maps {
                    return Ok(());
                }
                let has_room = state.held + state.merging < 2.0 * self.buffer;
                let source = if has_room { state.turn.pop_front() } else { None };
                source.map(|source| {
                    state.busy.insert(source);
                    (source, state.ready.remove(&source).unwrap_or_default())
                })
            };
            let Some((source, parts)) = next else {
                changes.changed().await.ok();
                continue;
            };
            let mut bytes = 0;
            for part in &parts {
                bytes += fetch(&host, part).await?;
            }
            let mut state = self.state.lock();
            state.held += bytes as f64 * SCALE as f64;
            state.fetched += parts.len();
            state.busy.remove(&source);
            if state.ready.contains_key(&source) {
                state.turn.push_back(source);
            }
            drop(state);
            self.tell();
        }
    }

    /// The bytes of the next merge, as soon as memory is full or everything is there; none: all was merged.
    pub async fn next_merge(&self) -> Option<f64> {
        let mut changes = self.changes.subscribe();
        loop {
            changes.mark_unchanged();
            {
                let mut state = self.state.lock();
                let is_whole = state.fetched == self.maps;
                if state.held >= self.buffer || (is_whole && state.held > 0.0) {
                    state.merging = std::mem::take(&mut state.held);
                    return Some(state.merging);
                }
                if is_whole {
                    return None;
                }
            }
            changes.changed().await.ok();
        }
    }

    /// The merge has ended.
    pub fn merged(&self) {
        self.state.lock().merging = 0.0;
        self.tell();
    }
}

async fn fetch(host: &Host, part: &Part) -> Result<u64> {
    let handle = host.client.open(&Credentials::root(), part.file.inode, Access::Read).await?.0;
    let mut bytes = 0;
    for (offset, len) in &part.pieces {
        host.client.read(handle, *offset, *len).await?;
        bytes += u64::from(*len);
    }
    host.client.close(handle).await;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_goes_to_one_reducer_and_all_get_as_much() {
        for (maps, reducers, bytes) in
            [(160, 40, 4 * PIECE), (40, 40, 64 * PIECE), (160, 40, PIECE + 10_000), (4, 1, 9)]
        {
            let shares = deal(maps, reducers, bytes);
            let mut got = vec![0; reducers];
            for share in shares.iter().flatten() {
                got[share.reducer] += u64::from(share.len);
            }
            assert_eq!(got.iter().sum::<u64>(), maps as u64 * bytes);
            assert!(got.iter().max().unwrap() - got.iter().min().unwrap() <= PIECE, "{got:?}");
        }
    }
}
