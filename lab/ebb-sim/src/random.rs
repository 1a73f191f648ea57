//! Pseudo-random numbers from a seed alone.

/// SplitMix64 (Steele, Lea, Flood 2014). Streams with different keys have nothing in common, so that the choice for one
/// block does not depend on how many were made for others.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of `key` under `seed`.
    #[must_use]
    pub fn new(seed: u64, key: u64) -> Self {
        let mut random = Self(seed ^ 0x6a09_e667_f3bc_c908);
        random.0 = random.next_u64() ^ key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        random.next_u64();
        random
    }

    /// 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// One of 0..`end`; 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from((u128::from(self.next_u64()) * end as u128) >> 64).expect("below a usize")
    }

    /// In [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Log-normal around 1 with deviation `spread` (1.1: two thirds lie within 10 %).
    pub fn spread(&mut self, spread: f64) -> f64 {
        // A sum of twelve uniform numbers is normal enough, and the same on every machine.
        let normal: f64 = (0..12).map(|_| self.unit()).sum::<f64>() - 6.0;
        (spread.ln() * normal).exp()
    }
}
