//! GFNI: a product is one affine transformation, of 32 bytes with AVX2, of 64 with AVX-512.

use std::arch::x86_64::{
    __m256i, __m512i, _mm256_gf2p8affine_epi64_epi8, _mm256_loadu_si256, _mm256_set1_epi64x, _mm256_setzero_si256,
    _mm256_storeu_si256, _mm256_xor_si256, _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512, _mm512_set1_epi64,
    _mm512_setzero_si512, _mm512_storeu_si512, _mm512_xor_si512,
};

use super::Sum;
use super::column::{self, Lanes};
use super::tables::AFFINE;

/// Writes the sums, 32 bytes at a time.
///
/// # Safety
/// As `column::add_up` says, for AVX2 and GFNI.
#[target_feature(enable = "avx2,gfni")]
pub(super) unsafe fn add_up_256(sources: &[&[u8]], sums: &mut [Sum<'_>]) {
    // SAFETY: AVX2 and GFNI are enabled here; the rest is as for this function.
    unsafe { column::add_up::<Gfni256>(sources, sums) }
}

/// Writes the sums, 64 bytes at a time.
///
/// # Safety
/// As `column::add_up` says, for AVX-512 (F and BW) and GFNI.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
pub(super) unsafe fn add_up_512(sources: &[&[u8]], sums: &mut [Sum<'_>]) {
    // SAFETY: AVX-512 and GFNI are enabled here; the rest is as for this function.
    unsafe { column::add_up::<Gfni512>(sources, sums) }
}

#[derive(Clone, Copy)]
struct Gfni256(__m256i);

#[derive(Clone, Copy)]
struct Gfni512(__m512i);

/// The two differ in names alone: each instruction is there for both widths.
macro_rules! lanes {
    ($name:ident, $bytes:literal, $zeros:ident, $load:ident, $store:ident, $xor:ident, $spread:ident, $affine:ident) => {
        impl Lanes for $name {
            const BYTES: usize = $bytes;
            type Table = u64;
            type Ready = Self;

            #[inline(always)]
            fn table(coefficient: u8) -> &'static u64 {
                &AFFINE[usize::from(coefficient)]
            }

            #[inline(always)]
            unsafe fn zeros() -> Self {
                // SAFETY: the kernel's instructions are enabled, as `Lanes` says.
                Self(unsafe { $zeros() })
            }

            #[inline(always)]
            unsafe fn load(from: *const u8) -> Self {
                // SAFETY: a vector's bytes may be read, at any alignment.
                Self(unsafe { $load(from.cast()) })
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut u8) {
                // SAFETY: a vector's bytes may be written, at any alignment.
                unsafe { $store(to.cast(), self.0) }
            }

            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                // SAFETY: the kernel's instructions are enabled, as `Lanes` says.
                Self(unsafe { $xor(self.0, other.0) })
            }

            #[inline(always)]
            unsafe fn ready(self) -> Self {
                self
            }

            #[inline(always)]
            unsafe fn product(table: &u64, vector: Self) -> Self {
                // SAFETY: the kernel's instructions are enabled, as `Lanes` says.
                Self(unsafe { $affine::<0>(vector.0, $spread(table.cast_signed())) })
            }
        }
    };
}

lanes!(
    Gfni256,
    32,
    _mm256_setzero_si256,
    _mm256_loadu_si256,
    _mm256_storeu_si256,
    _mm256_xor_si256,
    _mm256_set1_epi64x,
    _mm256_gf2p8affine_epi64_epi8
);
lanes!(
    Gfni512,
    64,
    _mm512_setzero_si512,
    _mm512_loadu_si512,
    _mm512_storeu_si512,
    _mm512_xor_si512,
    _mm512_set1_epi64,
    _mm512_gf2p8affine_epi64_epi8
);
