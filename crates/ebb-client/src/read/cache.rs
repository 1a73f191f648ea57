//! Clean bytes of all files: bytes that were read from members or synced to them.
//!
//! An entry is valid only under a lease. When a lease is taken again, versions are compared, and changed entries are
//! dropped.
//!
//! What was fetched before anybody asked for it is counted: how much, how much of it a program asked for later, and how
//! much went before one did.

use std::collections::BTreeMap;

use bytes::Bytes;
use ebb_types::InodeId;
use parking_lot::Mutex;

use crate::read::gather::Gather;

type Key = (InodeId, u64);

/// For each so many bytes that it may hold the cache may hold one block.
const BLOCK_BYTES_MIN: usize = 1024;
/// However few bytes it may hold.
const BLOCKS_MIN: usize = 64;

/// Cached blocks, the least recently used dropped first.
#[derive(Debug)]
pub(crate) struct BlockCache {
    max: usize,
    inner: Mutex<Inner>,
}

/// For asker bytes are looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asker {
    /// A program asked for them.
    Program,
    /// A look at which blocks are there, without a reader.
    Look,
}

/// Why bytes are put in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// A program asked for them, or for others of their block, or wrote them.
    Demand,
    /// They were fetched ahead.
    Ahead,
}

/// Bytes that were fetched ahead, counted since the cache was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Ahead {
    /// All of them.
    pub fetched: u64,
    /// Asked for later.
    pub used: u64,
    /// Dropped before.
    pub unused: u64,
}

#[derive(Debug, Default)]
struct Inner {
    blocks: BTreeMap<Key, Block>,
    /// Blocks by last use.
    order: BTreeMap<u64, Key>,
    stamp: u64,
    bytes: usize,
    ahead: Ahead,
}

#[derive(Debug, Default)]
struct Block {
    /// Ascending file offsets, no overlap.
    pieces: Vec<Piece>,
    stamp: u64,
}

#[derive(Debug)]
struct Piece {
    offset: u64,
    data: Bytes,
    /// Number of bytes that were fetched ahead and not asked for yet. Which bytes these are is not known: a byte that is
    /// asked for twice counts twice, but never more than the piece has.
    unasked: usize,
}

impl Piece {
    /// The part in `start..end`, a range within the piece. As many of the unasked bytes as fit go with it.
    fn part(&mut self, start: u64, end: u64) -> Self {
        let data = self.data.slice((start - self.offset) as usize..(end - self.offset) as usize);
        let unasked = self.unasked.min(data.len());
        self.unasked -= unasked;
        Self { offset: start, data, unasked }
    }

    fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }
}

impl BlockCache {
    /// A cache of at most `max` bytes.
    pub fn new(max: usize) -> Self {
        Self { max, inner: Mutex::default() }
    }

    /// Most blocks, whatever their size: each block's own record takes some hundred bytes.
    fn blocks_max(&self) -> usize {
        (self.max / BLOCK_BYTES_MIN).max(BLOCKS_MIN)
    }

    /// How many bytes it may hold.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Puts bytes of a file in, over what is there.
    pub fn put(&self, inode: InodeId, block_size: u64, offset: u64, data: &Bytes, cause: Cause) {
        let mut inner = self.inner.lock();
        if cause == Cause::Ahead {
            inner.ahead.fetched += data.len() as u64;
        }
        let end = offset + data.len() as u64;
        let mut at = offset;
        while at < end {
            let stop = end.min((at / block_size + 1) * block_size);
            let data = data.slice((at - offset) as usize..(stop - offset) as usize);
            let unasked = if cause == Cause::Ahead { data.len() } else { 0 };
            inner.put(Piece { offset: at, data, unasked }, (inode, at / block_size));
            at = stop;
        }
        inner.shrink(self.max, self.blocks_max());
    }

    /// Drops `start..end` of a file.
    pub fn remove(&self, inode: InodeId, block_size: u64, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let mut inner = self.inner.lock();
        let keys: Vec<Key> = inner
            .blocks
            .range((inode, start / block_size)..=(inode, (end - 1) / block_size))
            .map(|(key, _)| *key)
            .collect();
        for key in keys {
            inner.cut(key, start, end);
        }
    }

    /// Drops a file.
    pub fn remove_inode(&self, inode: InodeId) {
        self.remove(inode, 1, 0, u64::MAX);
    }

    /// So many bytes were fetched ahead, and had changed when they came.
    pub fn spoiled(&self, bytes: u64) {
        let mut inner = self.inner.lock();
        inner.ahead.fetched += bytes;
        inner.ahead.unused += bytes;
    }

    /// What became of bytes that were fetched ahead.
    pub fn ahead(&self) -> Ahead {
        self.inner.lock().ahead
    }

    /// Gives `gather` the wanted bytes that are here.
    pub fn offer(&self, inode: InodeId, block_size: u64, gather: &mut Gather, asker: Asker) {
        if gather.is_complete() {
            return;
        }
        let mut inner = self.inner.lock();
        let (first, last) = (gather.start() / block_size, (gather.end() - 1) / block_size);
        for index in first..=last {
            let key = (inode, index);
            let Some(block) = inner.blocks.get_mut(&key) else { continue };
            let mut used = 0;
            for piece in &mut block.pieces {
                let taken = gather.offer(piece.offset, &piece.data);
                if asker == Asker::Program {
                    let news = taken.min(piece.unasked);
                    piece.unasked -= news;
                    used += news;
                }
            }
            inner.ahead.used += used as u64;
            inner.touch(key);
        }
    }

    /// Bytes in it.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.inner.lock().bytes
    }
}

impl Inner {
    fn put(&mut self, piece: Piece, key: Key) {
        self.cut(key, piece.offset, piece.end());
        self.bytes += piece.data.len();
        let block = self.blocks.entry(key).or_default();
        let at = block.pieces.partition_point(|other| other.offset < piece.offset);
        block.pieces.insert(at, piece);
        self.touch(key);
    }

    fn cut(&mut self, key: Key, start: u64, end: u64) {
        let Some(block) = self.blocks.get_mut(&key) else { return };
        let before: usize = block.pieces.iter().map(|piece| piece.data.len()).sum();
        let mut left = Vec::with_capacity(block.pieces.len());
        for mut piece in block.pieces.drain(..) {
            let (from, to) = (piece.offset, piece.end());
            if to <= start || from >= end {
                left.push(piece);
                continue;
            }
            if from < start {
                left.push(piece.part(from, start));
            }
            if to > end {
                left.push(piece.part(end, to));
            }
            self.ahead.unused += piece.unasked as u64;
        }
        let after: usize = left.iter().map(|piece| piece.data.len()).sum();
        block.pieces = left;
        self.bytes -= before - after;
        if after == 0 {
            self.order.remove(&block.stamp);
            self.blocks.remove(&key);
        }
    }

    fn touch(&mut self, key: Key) {
        let Some(block) = self.blocks.get_mut(&key) else { return };
        self.order.remove(&block.stamp);
        self.stamp += 1;
        block.stamp = self.stamp;
        self.order.insert(self.stamp, key);
    }

    fn shrink(&mut self, max: usize, blocks_max: usize) {
        while self.bytes > max || self.blocks.len() > blocks_max {
            let Some((_, key)) = self.order.pop_first() else { return };
            if let Some(block) = self.blocks.remove(&key) {
                for piece in block.pieces {
                    self.bytes -= piece.data.len();
                    self.ahead.unused += piece.unasked as u64;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const INODE: InodeId = InodeId::new(7);

    fn read(cache: &BlockCache, inode: InodeId, end: u64) -> Vec<u8> {
        let mut gather = Gather::new(0, end);
        cache.offer(inode, 16, &mut gather, Asker::Program);
        gather.offer_zero(0, end);
        gather.finish().to_vec()
    }

    proptest! {
        #[test]
        fn holds_the_last_bytes_put(ops in prop::collection::vec((0u64..100, 0usize..50, any::<u8>(), any::<bool>()), 1..30)) {
            let cache = BlockCache::new(1 << 20);
            let mut model = vec![0u8; 160];
            for (offset, len, fill, put) in ops {
                let range = offset as usize..offset as usize + len;
                if put {
                    cache.put(INODE, 16, offset, &vec![fill; len].into(), Cause::Demand);
                    model[range].fill(fill);
                } else {
                    cache.remove(INODE, 16, offset, offset + len as u64);
                    model[range].fill(0);
                }
                prop_assert_eq!(&read(&cache, INODE, 160), &model);
            }
            cache.remove_inode(INODE);
            prop_assert_eq!(cache.bytes(), 0);
        }
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let cache = BlockCache::new(48);
        for index in 0..3u64 {
            cache.put(INODE, 16, index * 16, &vec![index as u8 + 1; 16].into(), Cause::Demand);
        }
        assert_eq!(read(&cache, INODE, 16), vec![1; 16]);
        cache.put(INODE, 16, 48, &vec![4; 16].into(), Cause::Demand);
        assert_eq!(cache.bytes(), 48);
        let now = read(&cache, INODE, 64);
        assert_eq!((now[0], now[16], now[32], now[48]), (1, 0, 3, 4));
    }

    #[test]
    fn tiny_blocks_are_bounded_in_number() {
        let cache = BlockCache::new(100 * BLOCK_BYTES_MIN);
        for id in 0..150 {
            cache.put(InodeId::new(id), 16, 0, &vec![1; 1].into(), Cause::Demand);
        }
        assert_eq!((cache.bytes(), cache.inner.lock().order.len()), (100, 100));
        assert_eq!(read(&cache, INODE, 1), vec![0], "the oldest have gone");
    }

    #[test]
    fn bytes_fetched_ahead_count_once_as_used_or_unused() {
        let cache = BlockCache::new(64);
        let put = |at: u64, len: usize, cause| cache.put(INODE, 16, at, &vec![1; len].into(), cause);
        let look = |start, end, asker| cache.offer(INODE, 16, &mut Gather::new(start, end), asker);
        let seen = || (cache.ahead().fetched, cache.ahead().used, cache.ahead().unused);
        put(0, 48, Cause::Ahead);
        put(48, 16, Cause::Demand);
        look(0, 64, Asker::Look);
        assert_eq!(seen(), (48, 0, 0), "who looks what is missing has not asked for it");
        look(0, 10, Asker::Program);
        look(10, 20, Asker::Program);
        assert_eq!(seen(), (48, 20, 0));
        look(0, 16, Asker::Program);
        assert_eq!(seen(), (48, 20, 0), "twice the same");
        // Four bytes in the middle of the third block are written anew; the block's others go with it.
        put(36, 4, Cause::Demand);
        assert_eq!(seen(), (48, 20, 4));
        cache.remove(INODE, 16, 40, 48);
        assert_eq!(seen(), (48, 20, 12));
        // The second block, with 12 bytes that were never asked for, and the rest of the third are the oldest.
        look(0, 16, Asker::Program);
        look(48, 64, Asker::Program);
        put(64, 16, Cause::Demand);
        put(80, 16, Cause::Demand);
        cache.spoiled(5);
        cache.remove_inode(INODE);
        let end = seen();
        assert_eq!(end, (53, 20, 33));
        assert_eq!(end.0, end.1 + end.2, "everything is accounted for when nothing is left");
    }

    #[test]
    fn other_files_stay() {
        let cache = BlockCache::new(1 << 10);
        cache.put(INODE, 16, 0, &vec![1; 16].into(), Cause::Demand);
        cache.put(InodeId::new(8), 16, 0, &vec![2; 16].into(), Cause::Demand);
        cache.remove_inode(INODE);
        assert_eq!(read(&cache, InodeId::new(8), 16), vec![2; 16]);
    }
}
