//! The coefficients of the code, and the inverses of parts of their matrix.

use crate::field::{invert, multiply};

/// The coefficient of slot `slot` in row `row`.
///
/// These are a Cauchy matrix, `1 / (x ^ y)` with `x = 128 + row` and `y = slot`, whose columns are scaled so that row 0 is
/// all ones. Every square submatrix of a Cauchy matrix can be inverted, and scaling does not change that. So any as many
/// rows as slots are gone decode them. Row 0 is the XOR of the slots, which makes one row a RAID 5.
///
/// It depends on row and slot alone. So a RAID set with fewer slots is one with empty slots, and a row keeps its bytes
/// whatever the number of other rows.
#[must_use]
pub const fn coefficient(row: usize, slot: usize) -> u8 {
    assert!(row < crate::ROWS_MAX && slot < crate::SLOTS_MAX, "a place of the largest code");
    let (row, slot) = (row as u8, slot as u8);
    multiply(128 ^ slot, invert((128 + row) ^ slot))
}

/// The inverse of a square matrix, by elimination; none if it has none.
pub(crate) fn inverse(mut matrix: Vec<Vec<u8>>) -> Option<Vec<Vec<u8>>> {
    let size = matrix.len();
    let unit = |row| (0..size).map(|column| u8::from(column == row)).collect();
    let mut inverse: Vec<Vec<u8>> = (0..size).map(unit).collect();
    for column in 0..size {
        let pivot = (column..size).find(|row| matrix[*row][column] != 0)?;
        matrix.swap(column, pivot);
        inverse.swap(column, pivot);
        let scale = invert(matrix[column][column]);
        for half in [&mut matrix, &mut inverse] {
            half[column].iter_mut().for_each(|entry| *entry = multiply(*entry, scale));
        }
        for row in (0..size).filter(|row| *row != column) {
            let factor = matrix[row][column];
            for half in [&mut matrix, &mut inverse] {
                let (from, to) = (half[column].clone(), &mut half[row]);
                to.iter_mut().zip(from).for_each(|(to, from)| *to ^= multiply(from, factor));
            }
        }
    }
    Some(inverse)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ROWS_MAX, SLOTS_MAX};

    /// Calls `visit` with each choice of `size` of the numbers below `of`.
    fn choices(of: usize, size: usize, visit: &mut impl FnMut(&[usize])) {
        fn extend(chosen: &mut Vec<usize>, of: usize, size: usize, visit: &mut impl FnMut(&[usize])) {
            if chosen.len() == size {
                return visit(chosen);
            }
            for next in chosen.last().map_or(0, |last| last + 1)..of {
                chosen.push(next);
                extend(chosen, of, size, visit);
                chosen.pop();
            }
        }
        extend(&mut Vec::new(), of, size, visit);
    }

    #[test]
    fn row_zero_is_all_ones() {
        assert!((0..SLOTS_MAX).all(|slot| coefficient(0, slot) == 1));
        // By hand: 128 / 129, 130 / 131.
        assert_eq!(multiply(coefficient(1, 0), 129), 128);
        assert_eq!(multiply(coefficient(3, 2), 129), 130);
    }

    /// Whatever is lost, as many rows decode it. All 60,000 submatrices of the largest code, and so of every other.
    #[test]
    fn every_square_submatrix_has_an_inverse() {
        let mut tried = 0;
        for size in 1..=ROWS_MAX {
            choices(ROWS_MAX, size, &mut |rows| {
                choices(SLOTS_MAX, size, &mut |slots| {
                    let part = |row: &usize| slots.iter().map(|slot| coefficient(*row, *slot)).collect();
                    assert!(inverse(rows.iter().map(part).collect()).is_some(), "rows {rows:?}, slots {slots:?}");
                    tried += 1;
                });
            });
        }
        assert_eq!(tried, 4 * 32 + 6 * 496 + 4 * 4960 + 35_960);
    }

    #[test]
    fn an_inverse_times_its_matrix_is_one_and_a_singular_matrix_has_none() {
        let matrix: Vec<Vec<u8>> = (0..3).map(|row| (4..7).map(|slot| coefficient(row, slot)).collect()).collect();
        let found = inverse(matrix.clone()).expect("a part of the code");
        for (row, column) in (0..3).flat_map(|row| (0..3).map(move |column| (row, column))) {
            let entry = (0..3).fold(0, |sum, at| sum ^ multiply(matrix[row][at], found[at][column]));
            assert_eq!(entry, u8::from(row == column));
        }
        assert_eq!(inverse(vec![vec![3, 5], vec![3, 5]]), None);
        assert_eq!(inverse(vec![vec![0, 1], vec![1, 0]]), Some(vec![vec![0, 1], vec![1, 0]]));
    }
}
