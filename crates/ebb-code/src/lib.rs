//! The erasure code of RAID sets, as pure functions of bytes and plain values.
//!
//! A RAID set has slots, each a metablock of a file, and rows, each a check metablock. Byte `b` of row `i` is the sum over
//! all slots `j` of `coefficient(i, j)` times byte `b` of slot `j`, in GF(2^8). Behind its end a slot is zeros. If no more
//! parts are gone than there are rows, those that are left decode them.
//!
//! Nothing here does I/O, reads a clock or knows a node. A caller brings bytes, and says which parts it has. It gets bytes
//! back, or a plan that says what to read and why.
//! - [`Code::encode`] makes the rows of a range from the slots' bytes.
//! - [`Code::plan_decode`] chooses sources for the parts that are wanted. [`DecodePlan::decode`] makes their bytes.
//! - [`Trailer`] is what a check metablock has behind its row: what it was made of, with every checksum of every slot. So
//!   decoded bytes are compared with what their writer said, and a check metablock tells by itself what it is.
//! - [`sum_of_row_zero`] gives the checksums of row 0 from those of the slots, without a byte of them.
//!
//! What never happens here: a decoded byte is called right. A wrong source gives wrong bytes without a sign. Only the
//! trailer's sums show it, and the caller compares them. It finds a lying source by decoding without each in turn
//! ([`Present::without`]).
//!
//! Reading order: [`field`], [`matrix`], [`code`], [`plan`], `combine` (ragged lengths), [`kernel`] with `kernel/column.rs`
//! (the loop of the vector kernels) and `kernel/tables.rs`; then [`sums`] and [`trailer`].
//!
//! # Kernels
//! A kernel is chosen once, by the CPU. `unsafe` stands in `kernel.rs` and `kernel/` alone. A test holds every kernel that
//! the CPU has against the scalar one, byte by byte, and prints which these are:
//! ```sh
//! cargo test -p ebb-code every_kernel -- --nocapture
//! cargo run -p ebb-code --example kernel      # GB/s of each, beside memcpy and another library
//! ```
//! Kernels that the CPU lacks can be run by an emulator. `qemu-user` 7.2 has AVX2 alone. Bochs 2.7 has GFNI and AVX-512, but
//! returns the complement of every affine transformation, also of the identity's. Miri has both, and looks at each access: a
//! program that includes `field.rs` and the files of `kernel/`, and draws its own cases, runs all four in minutes. It is built
//! with `-Ctarget-feature=+avx2,+gfni,+avx512f,+avx512bw`.
//!
//! What bounds the `avx2` kernel: at 8+2 it takes 42 instructions for 128 bytes of a source, of which 32 are for the four
//! vector units. That is 8 cycles, or 16 bytes a cycle. From memory a range moves 12 bytes for 8 of the slots: 8 are read, 2
//! are written, and these lines are read first. It then moves as many bytes in a second as memcpy does, of which each byte
//! moves three. Stores past the caches would spare the 2 bytes. They are not used, as the rows are summed and sent next.

pub mod code;
mod combine;
pub mod field;
pub mod fuzz;
pub mod kernel;
pub mod matrix;
pub mod plan;
pub mod sums;
#[cfg(test)]
mod tests;
pub mod trailer;

pub use code::{Code, Part, ROWS_MAX, SLOTS_MAX};
pub use kernel::Kernel;
pub use plan::{DecodePlan, Present, Reason, Source, listed};
pub use sums::{ChunkSum, sum_of_row_zero};
pub use trailer::{Slot, Trailer};
