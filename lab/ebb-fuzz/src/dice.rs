//! Numbers that look like chance and are a function of a seed.

/// A generator (SplitMix64; Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Each case of each target has its own: any one can be made again without those before it.
    #[must_use]
    pub fn of_case(target: &str, seed: u64, case: u64) -> Self {
        // FNV-1a: names that differ give other throws.
        let name = target
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let mut dice = Self(name ^ seed.rotate_left(32));
        dice.0 = dice.throw() ^ case;
        dice
    }

    /// The next number.
    pub fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One below `end`; 0 if that is 0.
    pub fn below(&mut self, end: usize) -> usize {
        if end == 0 { 0 } else { (self.throw() % end as u64) as usize }
    }

    /// True once in so many throws.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of these, of which there is at least one.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// A range within `len` elements, mostly a short one.
    pub fn range(&mut self, len: usize) -> std::ops::Range<usize> {
        let start = self.below(len + 1);
        let most = if self.one_in(4) { len } else { 16 };
        start..len.min(start + self.below(most + 1))
    }

    /// A number at the edge of something, or near what was there.
    pub fn number(&mut self, was: u64) -> u64 {
        const EDGES: [u64; 24] = [
            0,
            1,
            2,
            3,
            7,
            0x7f,
            0x80,
            0xff,
            0x100,
            0xffff,
            1 << 14,
            1 << 20,
            1 << 30,
            i32::MAX as u64,
            1 << 31,
            u32::MAX as u64,
            1 << 32,
            1 << 40,
            1 << 62,
            i64::MAX as u64,
            1 << 63,
            u64::MAX - 7,
            u64::MAX - 1,
            u64::MAX,
        ];
        match self.below(8) {
            0 => was.wrapping_add(1),
            1 => was.wrapping_sub(1),
            2 => was.wrapping_mul(2),
            3 => self.below(20) as u64,
            4 => self.throw() >> self.below(64),
            _ => *self.pick(&EDGES),
        }
    }
}
