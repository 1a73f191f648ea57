//! Bytes of a file, in blocks and metablocks.

use std::ops::Range;

/// Unit of checksums: one CRC-32C for each run of this many bytes of a replica, counted from the metablock's start.
/// 16 KiB keeps a 64 MiB replica's table at 16 KiB and a 4 KiB random read at four times its size.
pub const CHUNK_SIZE: u64 = 16 << 10;

/// Default unit of transfer, caching and prefetch.
pub const BLOCK_SIZE_DEFAULT: u64 = 1 << 20;

/// Default unit of placement, replication, versioning and location.
pub const METABLOCK_SIZE_DEFAULT: u64 = 64 << 20;

/// Block and metablock size of a file (metablocks paper, G2: both are settings of its dataset).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Geometry {
    /// Unit of transfer, a multiple of [`CHUNK_SIZE`].
    pub block_size: u64,
    /// Unit of placement, a multiple of `block_size`.
    pub metablock_size: u64,
}

impl Default for Geometry {
    fn default() -> Self {
        Self { block_size: BLOCK_SIZE_DEFAULT, metablock_size: METABLOCK_SIZE_DEFAULT }
    }
}

/// The part of a byte range of a file that lies in one metablock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Which metablock of the file.
    pub metablock_index: u64,
    /// Where in the metablock the piece starts, in bytes.
    pub offset: u64,
    /// How long it is, in bytes.
    pub len: u64,
    /// Where in the file it starts, in bytes.
    pub file_offset: u64,
}

impl Geometry {
    /// Checks the rules between the sizes; the error says which one is broken.
    pub fn check(self) -> Result<(), String> {
        if self.block_size == 0 || !self.block_size.is_multiple_of(CHUNK_SIZE) {
            return Err(format!("block size {} is not a multiple of {CHUNK_SIZE} bytes", self.block_size));
        }
        if self.block_size > 16 << 20 {
            return Err(format!("block size {} is above 16 MiB", self.block_size));
        }
        if self.metablock_size == 0 || !self.metablock_size.is_multiple_of(self.block_size) {
            return Err(format!(
                "metablock size {} is not a multiple of the block size {}",
                self.metablock_size, self.block_size
            ));
        }
        if self.metablock_size > 1 << 30 {
            return Err(format!("metablock size {} is above 1 GiB", self.metablock_size));
        }
        Ok(())
    }

    /// How many metablocks a file of `size` bytes spans.
    #[must_use]
    pub fn metablock_count(self, size: u64) -> u64 {
        size.div_ceil(self.metablock_size)
    }

    /// Cuts a byte range of a file at metablock edges, in order.
    pub fn pieces(self, offset: u64, len: u64) -> impl Iterator<Item = Piece> {
        self.cut(offset, len, self.metablock_size)
    }

    /// Cuts a byte range of a file at block edges, in order.
    pub fn block_pieces(self, offset: u64, len: u64) -> impl Iterator<Item = Piece> {
        self.cut(offset, len, self.block_size)
    }

    /// The part of a block that holds the byte `at` of a file. Parts are counted from the block's start, and have
    /// `part` bytes each but for the last one.
    #[must_use]
    pub fn part_of_block(self, at: u64, part: u64) -> Range<u64> {
        let block = at - at % self.block_size;
        let start = block + (at - block) / part * part;
        start..(start + part).min(block + self.block_size)
    }

    fn cut(self, offset: u64, len: u64, unit: u64) -> impl Iterator<Item = Piece> {
        let end = offset.saturating_add(len);
        let mut at = offset;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let stop = end.min((at / unit + 1).saturating_mul(unit));
            let piece = Piece {
                metablock_index: at / self.metablock_size,
                offset: at % self.metablock_size,
                len: stop - at,
                file_offset: at,
            };
            at = stop;
            Some(piece)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_cut_at_edges_and_cover_the_range() {
        let geometry = Geometry { block_size: 1 << 20, metablock_size: 4 << 20 };
        let pieces: Vec<_> = geometry.pieces((4 << 20) - 10, (4 << 20) + 20).collect();
        assert_eq!(pieces.iter().map(|piece| piece.len).collect::<Vec<_>>(), [10, 4 << 20, 10]);
        assert_eq!(pieces[2].metablock_index, 2);
        assert_eq!(pieces[0].offset, (4 << 20) - 10);
        assert_eq!(geometry.block_pieces(0, (2 << 20) + 1).count(), 3);
        assert_eq!(geometry.pieces(7, 0).count(), 0);
    }

    #[test]
    fn a_block_has_parts_and_no_part_crosses_its_edge() {
        let geometry = Geometry { block_size: 96 << 10, metablock_size: 192 << 10 };
        let part = |at| geometry.part_of_block(at, 64 << 10);
        assert_eq!(part(0), 0..64 << 10);
        assert_eq!(part((64 << 10) - 1), 0..64 << 10);
        assert_eq!(part(64 << 10), 64 << 10..96 << 10);
        assert_eq!(part(96 << 10), 96 << 10..160 << 10);
        assert_eq!(geometry.part_of_block(100_000, 1 << 20), 96 << 10..192 << 10, "a block is one part");
    }

    #[test]
    fn sizes_are_checked() {
        assert!(Geometry::default().check().is_ok());
        assert!(Geometry { block_size: 1000, metablock_size: 1000 }.check().unwrap_err().contains("multiple"));
        assert!(Geometry { block_size: 512 << 10, metablock_size: 512 << 10 }.check().is_ok());
    }
}
