//! The same matrix in another library gives the same rows, and it decodes them.

use rusty_erasure::{Matrix, coder};

use super::{bytes, slices};
use crate::matrix::coefficient;
use crate::{Code, Part, Present};

/// Unit lines for the slots, then the code's.
fn matrix_of(code: Code) -> Matrix {
    let mut entries = Vec::new();
    for part in code.parts() {
        entries.extend((0..code.slots()).map(|slot| match part {
            Part::Slot(own) => u8::from(own == slot),
            Part::Row(row) => coefficient(row, slot),
        }));
    }
    Matrix::from_bytes(code.slots() + code.rows(), code.slots(), entries).expect("as many entries as it has")
}

#[test]
fn rows_are_those_of_rusty_erasure_for_every_code() {
    for (slots, rows) in (1..=32).flat_map(|slots| (1..=4).map(move |rows| (slots, rows))) {
        let code = Code::new(slots, rows).unwrap();
        let length = 1000 + slots * 7 + rows;
        let data: Vec<Vec<u8>> = (0..slots).map(|slot| bytes(slot as u64, length)).collect();
        let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let (mut ours, mut theirs) = (vec![vec![1; length]; rows], vec![vec![2; length]; rows]);
        code.encode(&data, &mut slices(&mut ours)).unwrap();
        coder(matrix_of(code)).unwrap().encode(&data, &mut slices(&mut theirs)).unwrap();
        assert!(ours == theirs, "{code}");
    }
}

/// For every pair of losses of 8+2: both libraries make the same bytes of the same sources.
#[test]
fn pairs_that_are_lost_are_decoded_alike() {
    let code = Code::new(8, 2).unwrap();
    let data: Vec<Vec<u8>> = (0..8).map(|slot| bytes(slot, 777)).collect();
    let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let mut rows = vec![vec![0; 777]; 2];
    code.encode(&data, &mut slices(&mut rows)).unwrap();
    let parts: Vec<&[u8]> = data.iter().copied().chain(rows.iter().map(Vec::as_slice)).collect();
    let theirs = coder(matrix_of(code)).unwrap();
    for (first, second) in (0..10).flat_map(|first| (first + 1..10).map(move |second| (first, second))) {
        let lost = [first, second].map(|index| code.parts().nth(index).unwrap());
        let present = Present::all(code).without(lost[0]).without(lost[1]);
        let plan = code.plan_decode(&present, &lost).unwrap();
        let index = |part: Part| code.parts().position(|other| other == part).unwrap();
        let sources: Vec<&[u8]> = plan.sources().iter().map(|source| parts[index(source.part)]).collect();
        let mut found = vec![vec![0; 777]; 2];
        plan.decode(&sources, &mut slices(&mut found)).unwrap();
        assert!(found[0] == parts[first] && found[1] == parts[second], "{plan}");
        let shards: Vec<Option<&[u8]>> =
            parts.iter().enumerate().map(|(at, part)| (at != first && at != second).then_some(*part)).collect();
        let mut others = vec![vec![1; 777]; 2];
        theirs.recover(&shards, &[first, second], &mut slices(&mut others)).unwrap();
        assert!(found == others, "{plan}");
    }
}
