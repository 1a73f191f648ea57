//! Random numbers from a seed in the arguments: the same seed gives the same plan everywhere.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// A generator.
pub struct Rng(ChaCha8Rng);

impl Rng {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Uniform in `0..bound`; the bias of the wide product is below bound / 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "nothing to choose from");
        u64::try_from((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64).expect("the high half of 128 bits")
    }

    /// Uniform in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// All orders equally likely (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }

    /// `count` distinct numbers below `bound`.
    pub fn distinct(&mut self, bound: u32, count: u32) -> Vec<u32> {
        assert!(count <= bound, "no so many distinct numbers");
        let mut chosen = Vec::with_capacity(count as usize);
        while chosen.len() < count as usize {
            let one = self.below(bound.into()) as u32;
            if !chosen.contains(&one) {
                chosen.push(one);
            }
        }
        chosen
    }
}
