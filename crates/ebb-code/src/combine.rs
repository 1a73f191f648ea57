//! Sums of multiples of byte strings of any lengths.

use crate::kernel::{Kernel, Sum};

/// Writes to each target the sum of the sources, each times its coefficient: `coefficients[target][source]`.
///
/// A source that is shorter than a target is followed by zeros. Bytes behind the longest target are not read. The range
/// is cut where a source or target ends, so that a kernel meets slices of one length only.
pub(crate) fn combine(kernel: Kernel, coefficients: &[Vec<u8>], sources: &[&[u8]], targets: &mut [&mut [u8]]) {
    assert_eq!(coefficients.len(), targets.len(), "a line for each target");
    assert!(coefficients.iter().all(|line| line.len() == sources.len()), "a coefficient for each source");
    let mut ends: Vec<usize> = sources.iter().map(|source| source.len()).collect();
    ends.extend(targets.iter().map(|target| target.len()));
    ends.sort_unstable();
    ends.dedup();
    let mut start = 0;
    for end in ends.into_iter().filter(|end| *end > 0) {
        let reaching: Vec<usize> = (0..sources.len()).filter(|source| sources[*source].len() >= end).collect();
        let parts: Vec<&[u8]> = reaching.iter().map(|source| &sources[*source][start..end]).collect();
        let lines: Vec<Vec<u8>> =
            coefficients.iter().map(|line| reaching.iter().map(|source| line[*source]).collect()).collect();
        let long = lines.iter().zip(targets.iter_mut()).filter(|(_, target)| target.len() >= end);
        let mut sums: Vec<Sum<'_>> =
            long.map(|(coefficients, target)| Sum { coefficients, target: &mut target[start..end] }).collect();
        kernel.add_up(&parts, &mut sums);
        start = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shorter_sources_are_followed_by_zeros_and_each_target_has_its_own_length() {
        let coefficients = [vec![1, 1, 1], vec![0, 2, 0]];
        let (mut sum, mut double) = ([9; 5], [9; 2]);
        combine(
            Kernel::chosen(),
            &coefficients,
            &[&[1], &[0x80, 2, 4], &[8, 8, 8, 8, 8, 8, 8]],
            &mut [&mut sum, &mut double],
        );
        assert_eq!((sum, double), ([0x89, 10, 12, 8, 8], [0x1D, 4]));
        let mut behind = [9; 3];
        combine(Kernel::chosen(), &[vec![]], &[], &mut [&mut behind]);
        assert_eq!(behind, [0; 3], "a sum of nothing");
    }
}
