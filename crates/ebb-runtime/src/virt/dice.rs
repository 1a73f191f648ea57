//! Seeded randomness, split by purpose.
//!
//! Each purpose draws from its own ChaCha stream of the one seed, so that one draw more in one place does not shift the
//! draws of all others: a failing seed keeps failing while its cause is looked for.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// A stream of random values for one purpose.
#[derive(Clone, Debug)]
pub struct Dice(ChaCha8Rng);

impl Dice {
    /// The stream of `seed` for `purpose`.
    #[must_use]
    pub fn new(seed: u64, purpose: &str) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(name_hash(purpose));
        Self(rng)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Fills `out`.
    pub fn fill(&mut self, out: &mut [u8]) {
        self.0.fill_bytes(out);
    }

    /// A number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no number below 0");
        // The bias of the high half of a 128-bit product is below bound / 2^64 (Lemire, arXiv:1805.10941).
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// An index into something of this length, which must not be 0.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// A number in `[low, high]`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "the range {low}..={high} is empty");
        match (high - low).checked_add(1) {
            Some(count) => low + self.below(count),
            None => self.bits(),
        }
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        // A double holds 53 bits exactly.
        (self.bits() >> 11) as f64 / ((1_u64 << 53) as f64) < probability
    }

    /// True half of the time.
    pub fn coin(&mut self) -> bool {
        self.bits() & 1 == 1
    }

    /// A span of at most `max`.
    pub fn span(&mut self, max: Duration) -> Duration {
        Duration::from_nanos(self.between(0, nanos(max)))
    }

    /// A span between two.
    pub fn span_between(&mut self, low: Duration, high: Duration) -> Duration {
        Duration::from_nanos(self.between(nanos(low), nanos(high)))
    }

    /// One of these, which must not be empty.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.index(from.len())]
    }

    /// Puts them into a random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last + 1));
        }
    }
}

/// Nanoseconds of a span, cut off at a length that no virtual run reaches.
pub(super) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// FNV-1a, 64 bits: stable over builds and machines, which the standard library's hashers do not promise.
fn name_hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purposes_and_seeds_have_streams_of_their_own() {
        let first = |seed, purpose| Dice::new(seed, purpose).bits();
        assert_eq!(first(1, "disk"), first(1, "disk"));
        assert_ne!(first(1, "disk"), first(1, "net"));
        assert_ne!(first(1, "disk"), first(2, "disk"));
    }

    #[test]
    fn numbers_stay_in_range_and_reach_its_ends() {
        let mut dice = Dice::new(7, "test");
        let mut seen = [false; 5];
        for _ in 0..1000 {
            seen[dice.below(5) as usize] = true;
            assert!((3..=9).contains(&dice.between(3, 9)));
        }
        assert_eq!(seen, [true; 5]);
        assert_eq!(dice.between(4, 4), 4);
        let _ = dice.between(0, u64::MAX);
    }

    #[test]
    fn chances_are_as_likely_as_they_say() {
        let mut dice = Dice::new(7, "test");
        let hits = (0..10_000).filter(|_| dice.chance(0.2)).count();
        assert!((1_800..2_200).contains(&hits), "{hits} of 10000");
        assert!(!dice.chance(0.0));
        assert!(dice.chance(1.0));
    }

    #[test]
    fn a_shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..100).collect();
        Dice::new(7, "test").shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
