//! Encode, lose parts, decode; compared with sums that are made byte by byte as the definition has them.

use proptest::prelude::*;

use super::{bytes, slices};
use crate::field::multiply;
use crate::matrix::coefficient;
use crate::{Code, Part, Present};

/// A RAID set: slots of different lengths, some empty, and its rows as the definition has them.
#[derive(Debug)]
struct Model {
    code: Code,
    slots: Vec<Vec<u8>>,
    rows: Vec<Vec<u8>>,
}

impl Model {
    fn new(code: Code, seed: u64, lengths: &[usize]) -> Self {
        let slots: Vec<Vec<u8>> = (seed..).zip(lengths).map(|(seed, length)| bytes(seed, *length)).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let row = |row: usize| {
            let at = |at: usize| {
                let terms = slots.iter().enumerate().filter_map(|(slot, bytes)| Some((slot, *bytes.get(at)?)));
                terms.fold(0, |sum, (slot, byte)| sum ^ multiply(coefficient(row, slot), byte))
            };
            (0..longest).map(at).collect()
        };
        let rows = (0..code.rows()).map(row).collect();
        Self { code, slots, rows }
    }

    fn part(&self, part: Part) -> &[u8] {
        match part {
            Part::Slot(slot) => &self.slots[slot],
            Part::Row(row) => &self.rows[row],
        }
    }
}

/// A code, lengths of its slots, and an order in which parts are lost.
fn raid_set() -> impl Strategy<Value = (Model, Vec<Part>)> {
    let length = prop_oneof![4 => 0_usize..300, 1 => Just(0), 1 => Just(160)];
    (1_usize..=12, 1_usize..=4, any::<u64>())
        .prop_flat_map(move |(slots, rows, seed)| {
            let code = Code::new(slots, rows).unwrap();
            let order = Just(code.parts().collect::<Vec<_>>()).prop_shuffle();
            (Just((code, seed)), prop::collection::vec(length.clone(), slots), order)
        })
        .prop_map(|((code, seed), lengths, order)| (Model::new(code, seed, &lengths), order))
}

proptest! {
    #[test]
    fn rows_are_those_of_the_definition((model, _) in raid_set()) {
        let slots: Vec<&[u8]> = model.slots.iter().map(Vec::as_slice).collect();
        let mut rows: Vec<Vec<u8>> = model.rows.iter().map(|row| vec![0xEE; row.len()]).collect();
        model.code.encode(&slots, &mut slices(&mut rows)).unwrap();
        prop_assert_eq!(&rows, &model.rows);
    }

    /// Any parts, as many as there are rows, are lost and made again, slots and rows at once, each to its own length.
    #[test]
    fn whatever_is_lost_comes_back((model, order) in raid_set(), known: bool) {
        let lost = &order[..model.code.rows().min(order.len())];
        let mut present = Present::all(model.code);
        if known {
            present.zeros = (0..model.code.slots()).filter(|slot| model.slots[*slot].is_empty()).collect();
        }
        for part in lost {
            present = present.without(*part);
        }
        let plan = model.code.plan_decode(&present, lost).unwrap();
        let sources: Vec<&[u8]> = plan.sources().iter().map(|source| model.part(source.part)).collect();
        let mut found: Vec<Vec<u8>> = lost.iter().map(|part| vec![0xEE; model.part(*part).len()]).collect();
        plan.decode(&sources, &mut slices(&mut found)).unwrap();
        for (part, bytes) in lost.iter().zip(&found) {
            prop_assert_eq!(bytes.as_slice(), model.part(*part), "{} by {}", part, plan);
        }
        let reaching = model.code.slots() - present.zeros.len();
        let is_needed = lost.iter().any(|part| !matches!(part, Part::Slot(slot) if present.zeros.contains(slot)));
        prop_assert_eq!(plan.sources().len(), if is_needed { reaching } else { 0 });
    }

    /// One more loss, and it is refused; unless rows alone are wanted of slots that are all there.
    #[test]
    fn one_loss_too_many_is_refused((model, order) in raid_set()) {
        let slots: Vec<Part> = (0..model.code.slots()).map(Part::Slot).collect();
        prop_assume!(model.code.slots() > model.code.rows());
        let mut lost: Vec<Part> = order.into_iter().filter(|part| slots.contains(part)).collect();
        lost.truncate(model.code.rows() + 1);
        let present = lost.iter().fold(Present::all(model.code), |present, part| present.without(*part));
        let error = model.code.plan_decode(&present, &lost[..1]).unwrap_err();
        prop_assert!(error.to_string().contains("1 more of the parts"), "{}", error);
    }
}

/// Goal: a source that lies is found. Method: one of nine sources of 8+2 is changed; slot 2 is decoded with each of the
/// others left out, and only without the liar it comes right.
#[test]
fn a_lying_source_is_found_by_leaving_each_out() {
    let code = Code::new(8, 2).unwrap();
    let mut model = Model::new(code, 4, &[100; 8]);
    model.slots[5][17] ^= 4;
    let present = Present::all(code).without(Part::Slot(2));
    let decode_without = |left_out: Part| {
        let plan = code.plan_decode(&present.clone().without(left_out), &[Part::Slot(2)]).unwrap();
        let sources: Vec<&[u8]> = plan.sources().iter().map(|source| model.part(source.part)).collect();
        let mut found = vec![0; 100];
        plan.decode(&sources, &mut [&mut found]).unwrap();
        found
    };
    for part in present.parts.iter().copied() {
        assert_eq!(decode_without(part) == model.slots[2], part == Part::Slot(5), "without {part}");
    }
}

/// A plan is of fewest sources: without any one of them, what the others span lacks the wanted part.
#[test]
fn every_source_of_a_plan_is_needed() {
    let code = Code::new(6, 3).unwrap();
    for (first, second) in [(0, 1), (2, 5), (4, 3)] {
        let present = Present::all(code).without(Part::Slot(first)).without(Part::Slot(second));
        for wanted in [Part::Slot(first), Part::Row(2)] {
            let present = present.clone().without(wanted);
            let plan = code.plan_decode(&present, &[wanted]).unwrap();
            assert_eq!(plan.sources().len(), 6);
            assert!(plan.coefficients(0).iter().all(|factor| *factor != 0), "{plan}");
        }
    }
}
