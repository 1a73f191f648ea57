//! AVX2: products by shuffles, which look up 32 nibbles at once.

use std::arch::x86_64::{
    __m256i, _mm_loadu_si128, _mm256_and_si256, _mm256_broadcastsi128_si256, _mm256_loadu_si256, _mm256_set1_epi8,
    _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srli_epi64, _mm256_storeu_si256, _mm256_xor_si256,
};

use super::Sum;
use super::column::{self, Lanes};
use super::tables::{NIBBLES, Nibbles};

/// Writes the sums.
///
/// # Safety
/// As `column::add_up` says, for AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn add_up(sources: &[&[u8]], sums: &mut [Sum<'_>]) {
    // SAFETY: AVX2 is enabled here; the rest is as for this function.
    unsafe { column::add_up::<Avx2>(sources, sums) }
}

#[derive(Clone, Copy)]
struct Avx2(__m256i);

// SAFETY of every block below: a method runs inlined in `add_up`, which enables AVX2 (as `Lanes` says), and its pointer is
// good for 32 bytes. Loads and stores are those without alignment.
impl Lanes for Avx2 {
    const BYTES: usize = 32;
    type Table = Nibbles;
    /// Low nibbles, high nibbles.
    type Ready = (__m256i, __m256i);

    #[inline(always)]
    fn table(coefficient: u8) -> &'static Nibbles {
        &NIBBLES[usize::from(coefficient)]
    }

    #[inline(always)]
    unsafe fn zeros() -> Self {
        // SAFETY: AVX2 is enabled.
        Self(unsafe { _mm256_setzero_si256() })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: 32 bytes may be read, at any alignment.
        Self(unsafe { _mm256_loadu_si256(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: 32 bytes may be written, at any alignment.
        unsafe { _mm256_storeu_si256(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: AVX2 is enabled.
        Self(unsafe { _mm256_xor_si256(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn ready(self) -> (__m256i, __m256i) {
        // SAFETY: AVX2 is enabled.
        unsafe {
            let mask = _mm256_set1_epi8(15);
            (_mm256_and_si256(self.0, mask), _mm256_and_si256(_mm256_srli_epi64::<4>(self.0), mask))
        }
    }

    #[inline(always)]
    unsafe fn product(table: &Nibbles, (low, high): (__m256i, __m256i)) -> Self {
        // SAFETY: AVX2 is enabled, and a table has twice 16 bytes.
        unsafe {
            let half = |at: usize| _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().add(at).cast()));
            Self(_mm256_xor_si256(_mm256_shuffle_epi8(half(0), low), _mm256_shuffle_epi8(half(16), high)))
        }
    }
}
