//! Randomness from a seed that was handed in.

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014). Small, fast, and
/// every seed is a good one; the layouts need nothing stronger.
pub struct Rng(u64);

impl Rng {
    /// A generator whose stream depends on every part.
    pub fn new(parts: &[u64]) -> Self {
        Self(hash(parts))
    }

    /// The next 64 random bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Uniform in `0..bound`, by the high half of a wide product: the bias is below bound / 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "nothing to choose from");
        u64::try_from((u128::from(self.next()) * u128::from(bound)) >> 64).expect("the high half of 128 bits")
    }

    /// One of `items`, all equally likely.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        let bound = u64::try_from(items.len()).expect("a length fits in 64 bits");
        items[usize::try_from(self.below(bound)).expect("below a length that is a usize")]
    }
}

/// One number from many, each of which matters.
pub fn hash(parts: &[u64]) -> u64 {
    parts.iter().fold(0x6562_625f_6c61_796f, |state, part| mix(state ^ mix(part.wrapping_add(0x9e37_79b9_7f4a_7c15))))
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
