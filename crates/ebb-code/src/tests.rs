//! The code against a naive model, against other libraries, and its kernels against each other.

mod kernels;
mod model;
mod oracles;

/// Bytes of a seed: the same on every machine.
pub(crate) fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        // xorshift64 (Marsaglia 2003).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// Mutable slices of some byte strings.
pub(crate) fn slices(strings: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
    strings.iter_mut().map(Vec::as_mut_slice).collect()
}
