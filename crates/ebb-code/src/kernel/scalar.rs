//! The kernel for every CPU, and for ends that are shorter than a vector. The others are held against it.

use super::Sum;
use super::tables::{NIBBLES, Nibbles};

/// As many bytes of a target are made from all sources, before the next ones: they stay in the first cache.
const RUN: usize = 4 << 10;

/// Writes the sums from byte `from` on.
pub(super) fn add_up(sources: &[&[u8]], sums: &mut [Sum<'_>], from: usize) {
    let length = sums.first().map_or(0, |sum| sum.target.len());
    for start in (from..length).step_by(RUN) {
        let run = start..length.min(start + RUN);
        for sum in sums.iter_mut() {
            let target = &mut sum.target[run.clone()];
            target.fill(0);
            for (source, coefficient) in sources.iter().zip(sum.coefficients) {
                match coefficient {
                    0 => {}
                    1 => add(&source[run.clone()], target),
                    other => add_product(&NIBBLES[usize::from(*other)], &source[run.clone()], target),
                }
            }
        }
    }
}

fn add(source: &[u8], target: &mut [u8]) {
    target.iter_mut().zip(source).for_each(|(to, from)| *to ^= from);
}

fn add_product(nibbles: &Nibbles, source: &[u8], target: &mut [u8]) {
    for (to, from) in target.iter_mut().zip(source) {
        *to ^= nibbles[usize::from(from & 15)] ^ nibbles[16 + usize::from(from >> 4)];
    }
}
