//! The loop of the vector kernels: memory is passed once.
//!
//! A column is the same few vectors' width of every source. All sources of a column are read once, one after the other, and
//! all sums of it are made in registers and written once. So a byte of a source costs one load, however many rows there
//! are. An order by rows would read the sources once for each row.
//!
//! A column that is all ones (row 0) needs no products. It is known by its coefficients and added up beside the others.

use super::{Sum, scalar};
use crate::{ROWS_MAX, SLOTS_MAX};

/// A vector of bytes, and the multiplication of one kernel.
///
/// # Safety
/// Every function but `table` may be called only on a CPU with the kernel's instructions, and only from a function that
/// enables them. They are inlined there always, and so compiled with these instructions.
pub(super) trait Lanes: Copy {
    /// Bytes of a vector.
    const BYTES: usize;
    /// A coefficient, as the multiplication wants it in memory.
    type Table: Copy + 'static;
    /// A source's vector, made ready for products with any coefficient.
    type Ready: Copy;

    /// The table of a coefficient.
    fn table(coefficient: u8) -> &'static Self::Table;
    /// Zeros.
    unsafe fn zeros() -> Self;
    /// Reads `BYTES` bytes at any address.
    unsafe fn load(from: *const u8) -> Self;
    /// Writes `BYTES` bytes at any address.
    unsafe fn store(self, to: *mut u8);
    /// The sum of two vectors.
    unsafe fn add(self, other: Self) -> Self;
    /// What all products of this vector have in common.
    unsafe fn ready(self) -> Self::Ready;
    /// Coefficient times vector.
    unsafe fn product(table: &Self::Table, vector: Self::Ready) -> Self;
}

/// Writes all sums: whole columns, then single vectors, then what is left.
///
/// # Safety
/// As [`Lanes`] says. Sources and targets have one length. There are at most `SLOTS_MAX` sources and `ROWS_MAX` sums.
#[inline(always)]
pub(super) unsafe fn add_up<L: Lanes>(sources: &[&[u8]], sums: &mut [Sum<'_>]) {
    if let Some(plain) = sums.iter().position(|sum| sum.coefficients.iter().all(|coefficient| *coefficient == 1)) {
        sums.swap(0, plain);
    }
    let is_plain = sums[0].coefficients.iter().all(|coefficient| *coefficient == 1);
    // The widths leave sums, tables and temporary values room in 16 registers.
    // SAFETY: as for this function.
    unsafe {
        match (is_plain, sums.len()) {
            (true, 1) => add_up_of::<L, 1, 0, 4>(sources, sums),
            (true, 2) => add_up_of::<L, 1, 1, 4>(sources, sums),
            (true, 3) => add_up_of::<L, 1, 2, 2>(sources, sums),
            (true, 4) => add_up_of::<L, 1, 3, 2>(sources, sums),
            (false, 1) => add_up_of::<L, 0, 1, 4>(sources, sums),
            (false, 2) => add_up_of::<L, 0, 2, 4>(sources, sums),
            (false, 3) => add_up_of::<L, 0, 3, 2>(sources, sums),
            (false, 4) => add_up_of::<L, 0, 4, 2>(sources, sums),
            (_, other) => unreachable!("{other} sums at a time"),
        }
    }
}

/// [`add_up`] for a known number of plain sums (0 or 1, the first) and of others.
#[inline(always)]
unsafe fn add_up_of<L: Lanes, const PLAIN: usize, const OTHERS: usize, const WIDTH: usize>(
    sources: &[&[u8]],
    sums: &mut [Sum<'_>],
) {
    let length = sums[0].target.len();
    if length < L::BYTES {
        return scalar::add_up(sources, sums, 0);
    }
    let mut work = Work::<L, OTHERS> {
        sources: [std::ptr::null(); SLOTS_MAX],
        count: sources.len(),
        tables: [[L::table(0); OTHERS]; SLOTS_MAX],
    };
    for (index, source) in sources.iter().enumerate() {
        work.sources[index] = source.as_ptr();
        for other in 0..OTHERS {
            work.tables[index][other] = L::table(sums[PLAIN + other].coefficients[index]);
        }
    }
    let mut targets = [std::ptr::null_mut(); ROWS_MAX];
    targets.iter_mut().zip(sums).for_each(|(to, sum)| *to = sum.target.as_mut_ptr());
    let (wide, single) = (WIDTH * L::BYTES, L::BYTES);
    let mut at = 0;
    // SAFETY: `at` and a column's width behind it are within `length`, which all sources and targets have. Targets are
    // borrowed alone, so that they overlap no source and each other nowhere. Instructions: as for this function.
    unsafe {
        while length - at >= wide {
            work.column::<PLAIN, WIDTH>(&targets, at);
            at += wide;
        }
        while length - at >= single {
            work.column::<PLAIN, 1>(&targets, at);
            at += single;
        }
        // The last vector again, further back: a sum may be written twice, as it is not added to what was there.
        if at < length {
            work.column::<PLAIN, 1>(&targets, length - single);
        }
    }
}

/// The sources, and the tables of their coefficients in the sums that are not plain.
struct Work<L: Lanes, const OTHERS: usize> {
    sources: [*const u8; SLOTS_MAX],
    count: usize,
    tables: [[&'static L::Table; OTHERS]; SLOTS_MAX],
}

impl<L: Lanes, const OTHERS: usize> Work<L, OTHERS> {
    /// Makes `WIDTH` vectors of every sum, at byte `at`.
    ///
    /// # Safety
    /// As [`Lanes`] says. Sources may be read, and targets written, in these vectors.
    #[inline(always)]
    unsafe fn column<const PLAIN: usize, const WIDTH: usize>(&self, targets: &[*mut u8; ROWS_MAX], at: usize) {
        // SAFETY: as for this function.
        unsafe {
            let mut plain = [[L::zeros(); WIDTH]; PLAIN];
            let mut others = [[L::zeros(); WIDTH]; OTHERS];
            for (source, tables) in self.sources[..self.count].iter().zip(&self.tables) {
                let mut ready = [L::zeros().ready(); WIDTH];
                for lane in 0..WIDTH {
                    let vector = L::load(source.add(at + lane * L::BYTES));
                    for sum in &mut plain {
                        sum[lane] = sum[lane].add(vector);
                    }
                    ready[lane] = vector.ready();
                }
                for (sum, table) in others.iter_mut().zip(tables) {
                    for lane in 0..WIDTH {
                        sum[lane] = sum[lane].add(L::product(table, ready[lane]));
                    }
                }
            }
            for (sum, target) in plain.iter().chain(&others).zip(targets) {
                for (lane, vector) in sum.iter().enumerate() {
                    vector.store(target.add(at + lane * L::BYTES));
                }
            }
        }
    }
}
