//! Which instructions do the arithmetic: chosen once, by the CPU.
//!
//! | kernel | for 32 or 64 bytes of a source and one row |
//! |---|---|
//! | `gfni-avx512`, `gfni-avx2` | one affine transformation (`gf2p8affineqb`) and one XOR |
//! | `avx2` | two shuffles as tables of the nibbles' products, and two XORs; three more to split a source, for all rows |
//! | `scalar` | two table lookups for each byte |
//!
//! All give the same bytes. `column.rs` has the loop that the first three share.

use std::fmt;
use std::sync::OnceLock;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod column;
#[cfg(target_arch = "x86_64")]
mod gfni;
mod scalar;
mod tables;

use crate::{ROWS_MAX, SLOTS_MAX};

/// A kernel that this CPU has. Prints as its name.
///
/// Invariant: a value exists only on a CPU with the instructions of its kind. The field is private for that reason.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kernel(Kind);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    #[cfg(target_arch = "x86_64")]
    GfniAvx512,
    #[cfg(target_arch = "x86_64")]
    GfniAvx2,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Scalar,
}

/// A target, and the coefficient of each source in it.
#[derive(Debug)]
pub(crate) struct Sum<'a> {
    pub(crate) coefficients: &'a [u8],
    pub(crate) target: &'a mut [u8],
}

impl Kernel {
    /// The fastest one of this CPU. The CPU is asked once.
    #[must_use]
    pub fn chosen() -> Self {
        static CHOSEN: OnceLock<Kernel> = OnceLock::new();
        *CHOSEN.get_or_init(|| Self::all_available()[0])
    }

    /// Every kernel that this CPU has, the fastest first. `scalar` is always there.
    #[must_use]
    pub fn all_available() -> Vec<Self> {
        let mut kinds = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            let has_avx2 = is_x86_feature_detected!("avx2");
            let has_gfni = is_x86_feature_detected!("gfni");
            // With BW, as compilers use it beside F wherever a kernel of bytes may want it; no CPU has GFNI without.
            let has_avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
            kinds.extend((has_avx512 && has_gfni).then_some(Kind::GfniAvx512));
            kinds.extend((has_avx2 && has_gfni).then_some(Kind::GfniAvx2));
            kinds.extend(has_avx2.then_some(Kind::Avx2));
        }
        kinds.push(Kind::Scalar);
        kinds.into_iter().map(Self).collect()
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Kind::GfniAvx512 => "gfni-avx512",
            #[cfg(target_arch = "x86_64")]
            Kind::GfniAvx2 => "gfni-avx2",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => "avx2",
            Kind::Scalar => "scalar",
        }
    }

    /// Writes to each target the sum of the sources, each times its coefficient. All are of one length.
    pub(crate) fn add_up(self, sources: &[&[u8]], sums: &mut [Sum<'_>]) {
        let Some(length) = sums.first().map(|sum| sum.target.len()) else { return };
        assert!(sources.len() <= SLOTS_MAX, "{} sources", sources.len());
        assert!(sources.iter().all(|source| source.len() == length), "sources as long as targets");
        assert!(sums.iter().all(|sum| sum.target.len() == length && sum.coefficients.len() == sources.len()));
        for sums in sums.chunks_mut(ROWS_MAX) {
            match self.0 {
                // SAFETY: the CPU has AVX-512F and GFNI, by the invariant of `Kernel`. All lengths are equal: checked above.
                #[cfg(target_arch = "x86_64")]
                Kind::GfniAvx512 => unsafe { gfni::add_up_512(sources, sums) },
                // SAFETY: the CPU has AVX2 and GFNI, by the invariant of `Kernel`. All lengths are equal: checked above.
                #[cfg(target_arch = "x86_64")]
                Kind::GfniAvx2 => unsafe { gfni::add_up_256(sources, sums) },
                // SAFETY: the CPU has AVX2, by the invariant of `Kernel`. All lengths are equal: checked above.
                #[cfg(target_arch = "x86_64")]
                Kind::Avx2 => unsafe { avx2::add_up(sources, sums) },
                Kind::Scalar => scalar::add_up(sources, sums, 0),
            }
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
