//! Every kernel of this CPU gives the bytes of the scalar one.

use proptest::prelude::*;

use super::{bytes, slices};
use crate::combine::combine;
use crate::field::multiply;
use crate::{Code, Kernel, Part, Present};

fn scalar() -> Kernel {
    *Kernel::all_available().last().expect("scalar is always there")
}

/// Bytes around what is written, which no kernel may touch.
const MARGIN: usize = 70;

/// The sums by one kernel, into the middle of targets that begin at any alignment.
fn sums(kernel: Kernel, coefficients: &[Vec<u8>], sources: &[&[u8]], lengths: &[usize], shift: usize) -> Vec<Vec<u8>> {
    let mut targets: Vec<Vec<u8>> = lengths.iter().map(|length| vec![0xEE; length + 2 * MARGIN]).collect();
    let mut middles: Vec<&mut [u8]> = targets
        .iter_mut()
        .zip(lengths)
        .map(|(target, length)| &mut target[MARGIN - shift..MARGIN - shift + length])
        .collect();
    combine(kernel, coefficients, sources, &mut middles);
    for (target, length) in targets.iter().zip(lengths) {
        let (start, end) = (MARGIN - shift, MARGIN - shift + length);
        let is_untouched = target[..start].iter().chain(&target[end..]).all(|byte| *byte == 0xEE);
        assert!(is_untouched, "{kernel} wrote beside {length} bytes");
    }
    targets
}

/// Goal: no kernel differs from the scalar one in a byte. Method: sources of any number, lengths and alignments, sums of
/// any number and coefficients, 0, 1 and whole lines of 1 among them.
#[test]
fn every_kernel_gives_the_bytes_of_the_scalar_one() {
    println!("this CPU has {:?}; {} is chosen", Kernel::all_available(), Kernel::chosen());
    let length = || prop_oneof![0_usize..700, Just(256), 0_usize..40, 4000_usize..9000];
    let line = |count: usize| {
        prop_oneof![
            3 => prop::collection::vec(any::<u8>(), count),
            1 => Just(vec![1; count]),
            1 => prop::collection::vec(0_u8..3, count),
        ]
    };
    let input = (0_usize..=32, 1_usize..=4).prop_flat_map(move |(count, targets)| {
        let sources =
            prop::collection::vec((any::<u64>(), prop_oneof![2 => Just(600), 3 => length()], 0_usize..64), count);
        let targets = prop::collection::vec((line(count), prop_oneof![3 => Just(600), 2 => length()]), targets);
        (sources, targets, 0_usize..64)
    });
    proptest!(|((sources, targets, shift) in input)| {
        let held: Vec<Vec<u8>> = sources.iter().map(|(seed, length, offset)| bytes(*seed, length + offset)).collect();
        let parts: Vec<&[u8]> = held.iter().zip(&sources).map(|(bytes, (.., offset))| &bytes[*offset..]).collect();
        let (coefficients, lengths): (Vec<Vec<u8>>, Vec<usize>) = targets.into_iter().unzip();
        let due = sums(scalar(), &coefficients, &parts, &lengths, shift);
        for kernel in Kernel::all_available() {
            let found = sums(kernel, &coefficients, &parts, &lengths, shift);
            prop_assert!(found == due, "{}", kernel);
        }
    });
}

/// The scalar kernel is held against the definition, so that all are.
#[test]
fn the_scalar_kernel_multiplies_every_byte_by_every_coefficient() {
    let every: Vec<u8> = (0..=255).collect();
    for coefficient in 0..=255 {
        for kernel in Kernel::all_available() {
            let mut target = vec![7; 256];
            combine(kernel, &[vec![coefficient]], &[&every], &mut [&mut target]);
            assert!((0..=255).all(|byte: u8| target[usize::from(byte)] == multiply(coefficient, byte)), "{kernel}");
        }
    }
}

#[test]
fn kernels_have_names_and_one_is_chosen() {
    let all = Kernel::all_available();
    assert_eq!(Kernel::chosen(), all[0]);
    assert_eq!(scalar().to_string(), "scalar");
    let mut names: Vec<&str> = all.iter().map(|kernel| kernel.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all.len());
}

/// A code's calls with a kernel of the caller's choice.
#[test]
fn a_kernel_may_be_given() {
    let code = Code::new(5, 3).unwrap();
    let data: Vec<Vec<u8>> = (0..5).map(|slot| bytes(slot, 100 + slot as usize)).collect();
    let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    for kernel in Kernel::all_available() {
        let mut rows = vec![vec![0; 104]; 3];
        code.encode_with(kernel, &data, &mut slices(&mut rows)).unwrap();
        let present = Present::all(code).without(Part::Slot(4));
        let plan = code.plan_decode(&present, &[Part::Slot(4)]).unwrap();
        let mut found = vec![0; 104];
        plan.decode_with(kernel, &[data[0], data[1], data[2], data[3], &rows[0]], &mut [&mut found]).unwrap();
        assert_eq!(found, data[4], "{kernel}");
    }
}
