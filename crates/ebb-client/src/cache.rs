//! Clean bytes of all files: what members hold, as it was read from them or synced to them.
//!
//! Only a lease makes an entry believable; whoever takes the lease again compares versions and drops what changed.

use std::collections::BTreeMap;

use bytes::Bytes;
use ebb_types::InodeId;
use parking_lot::Mutex;

use crate::gather::Gather;

type Key = (InodeId, u64);

/// Cached blocks, the least recently used dropped first.
#[derive(Debug)]
pub(crate) struct BlockCache {
    max: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    blocks: BTreeMap<Key, Block>,
    /// Blocks by last use.
    order: BTreeMap<u64, Key>,
    stamp: u64,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Block {
    /// Ascending file offsets, no overlap.
    pieces: Vec<(u64, Bytes)>,
    stamp: u64,
}

impl BlockCache {
    /// A cache of at most `max` bytes.
    pub fn new(max: usize) -> Self {
        Self { max, inner: Mutex::default() }
    }

    /// How many bytes it may hold.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Puts bytes of a file in, over what is there.
    pub fn put(&self, inode: InodeId, block_size: u64, offset: u64, data: &Bytes) {
        let mut inner = self.inner.lock();
        let end = offset + data.len() as u64;
        let mut at = offset;
        while at < end {
            let stop = end.min((at / block_size + 1) * block_size);
            let piece = data.slice((at - offset) as usize..(stop - offset) as usize);
            inner.put(at, piece, (inode, at / block_size));
            at = stop;
        }
        inner.shrink(self.max);
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

    /// Gives `gather` what it wants and this has.
    pub fn offer(&self, inode: InodeId, block_size: u64, gather: &mut Gather) {
        if gather.is_complete() {
            return;
        }
        let mut inner = self.inner.lock();
        let (first, last) = (gather.start() / block_size, (gather.end() - 1) / block_size);
        for index in first..=last {
            let key = (inode, index);
            let Some(block) = inner.blocks.get(&key) else { continue };
            for (offset, data) in &block.pieces {
                gather.offer(*offset, data);
            }
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
    fn put(&mut self, offset: u64, data: Bytes, key: Key) {
        let end = offset + data.len() as u64;
        self.cut(key, offset, end);
        self.bytes += data.len();
        let block = self.blocks.entry(key).or_default();
        let at = block.pieces.partition_point(|piece| piece.0 < offset);
        block.pieces.insert(at, (offset, data));
        self.touch(key);
    }

    fn cut(&mut self, key: Key, start: u64, end: u64) {
        let Some(block) = self.blocks.get_mut(&key) else { return };
        let before: usize = block.pieces.iter().map(|piece| piece.1.len()).sum();
        let mut left = Vec::with_capacity(block.pieces.len());
        for (offset, data) in block.pieces.drain(..) {
            let stop = offset + data.len() as u64;
            if stop <= start || offset >= end {
                left.push((offset, data));
                continue;
            }
            if offset < start {
                left.push((offset, data.slice(..(start - offset) as usize)));
            }
            if stop > end {
                left.push((end, data.slice((end - offset) as usize..)));
            }
        }
        let after: usize = left.iter().map(|piece| piece.1.len()).sum();
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

    fn shrink(&mut self, max: usize) {
        while self.bytes > max {
            let Some((_, key)) = self.order.pop_first() else { return };
            if let Some(block) = self.blocks.remove(&key) {
                self.bytes -= block.pieces.iter().map(|piece| piece.1.len()).sum::<usize>();
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
        cache.offer(inode, 16, &mut gather);
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
                    cache.put(INODE, 16, offset, &vec![fill; len].into());
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
            cache.put(INODE, 16, index * 16, &vec![index as u8 + 1; 16].into());
        }
        assert_eq!(read(&cache, INODE, 16), vec![1; 16]);
        cache.put(INODE, 16, 48, &vec![4; 16].into());
        assert_eq!(cache.bytes(), 48);
        let now = read(&cache, INODE, 64);
        assert_eq!((now[0], now[16], now[32], now[48]), (1, 0, 3, 4));
    }

    #[test]
    fn other_files_stay() {
        let cache = BlockCache::new(1 << 10);
        cache.put(INODE, 16, 0, &vec![1; 16].into());
        cache.put(InodeId::new(8), 16, 0, &vec![2; 16].into());
        cache.remove_inode(INODE);
        assert_eq!(read(&cache, InodeId::new(8), 16), vec![2; 16]);
    }
}
