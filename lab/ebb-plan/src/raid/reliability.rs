//! Bytes lost per year by a Markov model (DiskReduce, Sec. 4 and Fig. 3).
//!
//! Disk failures are Poisson events. A set of `n` members that may lose `m` goes through states 0, 1, .. `m + 1` lost
//! members: from `j` it loses one more at rate `(n - j) lambda` and, all repairs running at once, one is repaired at rate
//! `j / T`. `T` is the time to detect a failure and to rebuild the disk with the bandwidth of all disks together.

use ebb_types::{Result, bail};

use super::Scheme;

const YEAR_S: f64 = 365.25 * 86_400.0;

/// The model's input. Sizes are in powers of 1000, as in the paper.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Inputs {
    /// User data.
    pub user_bytes: f64,
    /// Time until a failure is noticed and repair starts.
    pub detection_s: f64,
    /// Capacity of a disk.
    pub disk_bytes: f64,
    /// Part of it in use.
    pub disk_use: f64,
    /// Length of a block.
    pub block_bytes: f64,
    /// Bandwidth that each disk gives to repair.
    pub repair_bytes_per_s: f64,
    /// Disks that fail in a year, as a share.
    pub failures_per_year: f64,
}

/// The model's results.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Loss {
    /// Disks that hold it all.
    pub disks: f64,
    /// Sets.
    pub sets: f64,
    /// Detection and rebuilding of one disk.
    pub repair_s: f64,
    /// Number of sets that lose data in a year.
    pub losses_per_year: f64,
    /// Data bytes lost with one such set.
    pub bytes_per_loss: f64,
    /// Expected bytes lost per year.
    pub bytes_lost_per_year: f64,
    /// Expected bytes lost per year, with the chain solved exactly instead of to first order.
    pub bytes_lost_per_year_exact: f64,
}

impl Inputs {
    /// The paper's parameters: 1 TB disks 80 % full, 64 MB blocks, 25 MB/s of repair for each disk, 2 % failures a
    /// year.
    #[must_use]
    pub const fn paper(user_bytes: f64, detection_s: f64) -> Self {
        Self {
            user_bytes,
            detection_s,
            disk_bytes: 1e12,
            disk_use: 0.8,
            block_bytes: 64e6,
            repair_bytes_per_s: 25e6,
            failures_per_year: 0.02,
        }
    }

    /// `Invalid`, with the nearest possible value, for an impossible number.
    pub fn check(&self) -> Result<()> {
        for (value, name) in [
            (self.user_bytes, "user bytes"),
            (self.disk_bytes, "bytes of a disk"),
            (self.block_bytes, "bytes of a block"),
            (self.repair_bytes_per_s, "bytes of repair per second"),
            (self.failures_per_year, "failures of a disk per year"),
        ] {
            if !(value.is_finite() && value > 0.0) {
                bail!(
                    Invalid,
                    "{value} {name}: it must be above 0; the nearest possible value is the smallest above it"
                );
            }
        }
        if !(self.disk_use > 0.0 && self.disk_use <= 1.0) {
            bail!(Invalid, "disks cannot be {:.0} % full; the nearest possible value is 100 %", self.disk_use * 100.0);
        }
        if !(self.detection_s.is_finite() && self.detection_s >= 0.0) {
            bail!(Invalid, "{} s to detect a failure; the nearest possible value is 0", self.detection_s);
        }
        Ok(())
    }
}

/// Expected loss of a scheme.
#[must_use]
pub fn loss(inputs: &Inputs, scheme: Scheme) -> Loss {
    let (members, data) = (f64::from(scheme.members()), f64::from(scheme.data()));
    let used = inputs.disk_bytes * inputs.disk_use;
    let disks = inputs.user_bytes * members / data / used;
    let sets = inputs.user_bytes / (data * inputs.block_bytes);
    // Bytes read and written for one disk: a copy is read once, a code reads as many members as carry data.
    let work = (data + 1.0) * used;
    let repair_s = inputs.detection_s + work / (disks * inputs.repair_bytes_per_s);
    let lambda = inputs.failures_per_year;
    let repair_years = repair_s / YEAR_S;
    let lost = scheme.tolerates() + 1;
    // The share of the lost members that carries data.
    let bytes_per_loss = f64::from(lost) * data / members * inputs.block_bytes;
    let losses_per_year = sets * first_order(scheme, lambda, repair_years);
    Loss {
        disks,
        sets,
        repair_s,
        losses_per_year,
        bytes_per_loss,
        bytes_lost_per_year: losses_per_year * bytes_per_loss,
        bytes_lost_per_year_exact: sets / years_to_loss(scheme, lambda, repair_years) * bytes_per_loss,
    }
}

/// `n (n-1) .. (n-m) lambda^(m+1) T^m / m!`, for two losses `n (n-1) (n-2) lambda^3 T^2 / 2`.
fn first_order(scheme: Scheme, lambda: f64, repair_years: f64) -> f64 {
    let members = scheme.members();
    let failures: f64 = (0..=scheme.tolerates()).map(|lost| f64::from(members - lost) * lambda).product();
    let repairs: f64 = (1..=scheme.tolerates()).map(|lost| repair_years / f64::from(lost)).product();
    failures * repairs
}

/// Mean years until one set loses data, from the chain itself: the time from `j` to `j + 1` lost members is
/// `(1 + j / T * time before) / ((n - j) lambda)`.
fn years_to_loss(scheme: Scheme, lambda: f64, repair_years: f64) -> f64 {
    let mut step = 0.0;
    let mut total = 0.0;
    for lost in 0..=scheme.tolerates() {
        let failures = f64::from(scheme.members() - lost) * lambda;
        let repairs = f64::from(lost) / repair_years.max(f64::MIN_POSITIVE);
        step = (1.0 + if lost == 0 { 0.0 } else { repairs * step }) / failures;
        total += step;
    }
    total
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CODE: Scheme = Scheme::Code { data: 8, check: 2 };

    fn lost(user_bytes: f64, detection_s: f64, scheme: Scheme) -> f64 {
        loss(&Inputs::paper(user_bytes, detection_s), scheme).bytes_lost_per_year
    }

    #[test]
    fn the_code_has_its_minimum_near_310_tb() {
        let sizes: Vec<f64> = (80..1000).map(|tb| f64::from(tb) * 1e12).collect();
        let best = sizes.iter().min_by(|one, other| lost(**one, 600.0, CODE).total_cmp(&lost(**other, 600.0, CODE)));
        assert!((best.unwrap() - 310e12).abs() < 15e12, "{best:?}");
    }

    #[test]
    fn with_instant_detection_larger_systems_lose_less() {
        for scheme in [CODE, Scheme::Copies(3)] {
            let curve: Vec<f64> = [80e12, 1e15, 10e15].iter().map(|size| lost(*size, 0.0, scheme)).collect();
            assert!((curve[0] / curve[1] - 12.5).abs() < 0.01 && curve[1] > curve[2], "{curve:?}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(Inputs::paper(0.0, 0.0).check().is_err());
        assert!(
            Inputs { disk_use: 1.2, ..Inputs::paper(1.0, 0.0) }.check().unwrap_err().to_string().ends_with("100 %")
        );
        assert!(Inputs::paper(1.0, -1.0).check().is_err() && Inputs::paper(1e15, 600.0).check().is_ok());
    }

    proptest! {
        #[test]
        fn first_order_is_the_chain_where_repair_is_quick(data in 1_u32..20, check in 0_u32..4, size in 1e14..1e17_f64) {
            let scheme = if data == 1 { Scheme::Copies(check + 1) } else { Scheme::Code { data, check } };
            let found = loss(&Inputs::paper(size, 600.0), scheme);
            let ratio = found.bytes_lost_per_year / found.bytes_lost_per_year_exact;
            prop_assert!((ratio - 1.0).abs() < 1e-2, "{} {:?}", ratio, found);
        }

        #[test]
        fn more_check_blocks_never_lose_more(data in 2_u32..12, check in 1_u32..5) {
            let size = 1e15;
            let fewer = lost(size, 600.0, Scheme::Code { data, check });
            let more = lost(size, 600.0, Scheme::Code { data, check: check + 1 });
            prop_assert!(more < fewer);
        }
    }
}
