//! The shape of a record on disk.

use std::ops::Range;

use ebb_wire::frame::crc32c;

/// A frame as its first bytes describe it. All offsets count from the frame's beginning.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The bytes that the checksum covers.
    pub summed: Range<usize>,
    /// Their CRC-32C.
    pub sum: u32,
    /// Offset of the next frame: the length with padding.
    pub len: usize,
    /// Number of the batch that it belongs to; 0 in a log that does not number its batches.
    pub batch: u64,
    /// Whether it ends its batch.
    pub ends_batch: bool,
}

/// The form of a log's frames.
pub trait Framing {
    /// Frames begin at multiples of so many bytes.
    const STEP: usize;

    /// The frame at the start of `bytes`, without a check of its checksum. `None` if no frame of this log can begin so,
    /// or if it would not end within `bytes`.
    fn read_frame(&self, bytes: &[u8]) -> Option<Frame>;
}

/// The frame at the start of `bytes`, if its checksum fits.
pub fn whole_frame<F: Framing>(framing: &F, bytes: &[u8]) -> Option<Frame> {
    let frame = framing.read_frame(bytes)?;
    let summed = bytes.get(frame.summed.clone())?;
    // A frame without length would be read again and again.
    assert!(frame.len > 0 && frame.len >= frame.summed.end, "a frame ends behind the bytes of its checksum");
    (crc32c(summed) == frame.sum).then_some(frame)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// `E`, length of the payload, batch, flag of the last of its batch, CRC-32C of payload, payload.
    pub struct Plain;

    impl Framing for Plain {
        const STEP: usize = 1;

        fn read_frame(&self, bytes: &[u8]) -> Option<Frame> {
            let head = bytes.first_chunk::<8>().filter(|head| head[0] == b'E')?;
            let len = 8 + usize::from(head[1]);
            let sum = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
            let frame = Frame { summed: 8..len, sum, len, batch: head[2].into(), ends_batch: head[3] == 1 };
            (len <= bytes.len()).then_some(frame)
        }
    }

    /// A frame of [`Plain`].
    pub fn plain(batch: u8, payload: &[u8]) -> Vec<u8> {
        let head = [b'E', payload.len() as u8, batch, 1];
        [&head[..], &crc32c(payload).to_le_bytes(), payload].concat()
    }

    #[test]
    fn a_frame_is_whole_to_its_last_byte() {
        let bytes = plain(3, b"some bytes");
        let frame = whole_frame(&Plain, &bytes).unwrap();
        assert_eq!((frame.len, frame.batch, frame.ends_batch), (bytes.len(), 3, true));
        for cut in 0..bytes.len() {
            assert_eq!(whole_frame(&Plain, &bytes[..cut]), None);
        }
        for at in 8..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            assert_eq!(whole_frame(&Plain, &flipped), None, "byte {at}");
        }
    }
}
