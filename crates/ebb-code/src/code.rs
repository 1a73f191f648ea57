//! A code: how many slots and rows, and the making of rows.

use std::fmt;

use ebb_types::{Result, bail, counted};

use crate::combine::combine;
use crate::kernel::Kernel;
use crate::matrix::coefficient;

/// Most slots of a RAID set.
pub const SLOTS_MAX: usize = 32;
/// Most rows of a RAID set.
pub const ROWS_MAX: usize = 4;

/// Slots and rows of a RAID set. Prints as `8+2`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Code {
    slots: usize,
    rows: usize,
}

/// A slot or row of a RAID set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Part {
    /// The slot with this index.
    Slot(usize),
    /// The row with this index.
    Row(usize),
}

impl Code {
    /// The code with so many slots and rows. Kind `Invalid` if there is none; the sentence names the nearest.
    pub fn new(slots: usize, rows: usize) -> Result<Self> {
        let nearest = Self { slots: slots.clamp(1, SLOTS_MAX), rows: rows.clamp(1, ROWS_MAX) };
        let asked = Self { slots, rows };
        if asked != nearest {
            bail!(
                Invalid,
                "there is no code {asked}: a RAID set has 1 to {SLOTS_MAX} slots and 1 to {ROWS_MAX} rows; the nearest is {nearest}"
            );
        }
        Ok(asked)
    }

    /// Number of slots.
    #[must_use]
    pub const fn slots(self) -> usize {
        self.slots
    }

    /// Number of rows: as many parts may be lost.
    #[must_use]
    pub const fn rows(self) -> usize {
        self.rows
    }

    /// Every slot, then every row.
    pub fn parts(self) -> impl Iterator<Item = Part> {
        (0..self.slots).map(Part::Slot).chain((0..self.rows).map(Part::Row))
    }

    /// Whether the code has this slot or row.
    #[must_use]
    pub const fn has(self, part: Part) -> bool {
        match part {
            Part::Slot(slot) => slot < self.slots,
            Part::Row(row) => row < self.rows,
        }
    }

    /// Makes all rows of one range from the slots' bytes there, with the kernel chosen for this CPU.
    ///
    /// - `slots` has a slice for each slot. An empty slot is an empty slice.
    /// - A slot may be shorter than the rows: its end is followed by zeros. A longer one is refused, as its end would be
    ///   in no row.
    /// - `rows` has a slice for each row, all of one length. Every byte of them is written.
    ///
    /// Kind `Invalid` if a number or length is another; then nothing was written.
    pub fn encode(self, slots: &[&[u8]], rows: &mut [&mut [u8]]) -> Result<()> {
        self.encode_with(Kernel::chosen(), slots, rows)
    }

    /// [`encode`](Self::encode) with a kernel of the caller's choice.
    pub fn encode_with(self, kernel: Kernel, slots: &[&[u8]], rows: &mut [&mut [u8]]) -> Result<()> {
        if slots.len() != self.slots || rows.len() != self.rows {
            let (slots, rows) = (counted(slots.len() as u64, "slot"), counted(rows.len() as u64, "row"));
            bail!(Invalid, "{slots} and {rows} were given to the code {self}");
        }
        let length = rows[0].len();
        if let Some((row, other)) = rows.iter().enumerate().find(|(_, row)| row.len() != length) {
            bail!(Invalid, "row {row} has {} bytes, and row 0 has {length}: make them of one length", other.len());
        }
        if let Some((slot, long)) = slots.iter().enumerate().find(|(_, slot)| slot.len() > length) {
            bail!(Invalid, "slot {slot} has {} bytes, and the rows have only {length}", long.len());
        }
        let coefficients: Vec<Vec<u8>> =
            (0..self.rows).map(|row| (0..self.slots).map(|slot| coefficient(row, slot)).collect()).collect();
        combine(kernel, &coefficients, slots, rows);
        Ok(())
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.slots, self.rows)
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slot(slot) => write!(f, "slot {slot}"),
            Self::Row(row) => write!(f, "row {row}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use ebb_types::ErrorKind;

    use super::*;

    #[test]
    fn a_code_that_does_not_exist_is_refused_with_the_nearest() {
        let error = Code::new(40, 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("no code 40+0") && error.to_string().contains("nearest is 32+1"), "{error}");
        assert_eq!(Code::new(8, 2).unwrap().to_string(), "8+2");
    }

    #[test]
    fn lengths_and_numbers_are_refused_by_name() {
        let code = Code::new(2, 2).unwrap();
        let (mut a, mut b, mut short) = ([9; 4], [9; 4], [9; 3]);
        let error = code.encode(&[&[1; 4]], &mut [&mut a, &mut b]).unwrap_err();
        assert_eq!(error.to_string(), "1 slot and 2 rows were given to the code 2+2");
        let error = code.encode(&[&[1; 3], &[]], &mut [&mut a, &mut short]).unwrap_err();
        assert_eq!(error.to_string(), "row 1 has 3 bytes, and row 0 has 4: make them of one length");
        let error = code.encode(&[&[1; 3], &[2; 5]], &mut [&mut a, &mut b]).unwrap_err();
        assert_eq!(error.to_string(), "slot 1 has 5 bytes, and the rows have only 4");
        assert_eq!((a, b), ([9; 4], [9; 4]), "nothing was written");
        code.encode(&[&[1; 3], &[]], &mut [&mut a, &mut b]).unwrap();
        assert_eq!(a, [1, 1, 1, 0], "row 0 is the XOR");
    }
}
