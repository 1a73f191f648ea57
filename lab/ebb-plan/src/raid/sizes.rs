//! Files and the directories they are in: read, scanned elsewhere, or made from a distribution.

use std::collections::BTreeMap;

use ebb_types::{Result, bail, err};

/// File sizes by directory.
#[derive(Clone, PartialEq, Debug)]
pub struct Sizes {
    /// Their source.
    pub name: String,
    /// Sizes of the files of each directory, in bytes.
    pub directories: Vec<Vec<u64>>,
}

/// A lognormal distribution, which file sizes follow closely enough at the lengths of blocks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Lognormal {
    /// Half the files are smaller.
    pub median_bytes: f64,
    /// Mean size.
    pub mean_bytes: f64,
    /// No file is larger.
    pub largest_bytes: f64,
    /// Files in a directory, on average.
    pub per_directory: u32,
}

impl Lognormal {
    /// The middle of the paper's data on nine clusters: medians of 16 KB to 120 MB (4 MB), means of 22 to 577 MB (100
    /// MB), over 80 % of files below 64 MB (87 %), 30 to 80 % of bytes in files below 1 GB (36 %), largest 5 TB. The
    /// paper gives no number of files in a directory; it is 30 here.
    pub const DISKREDUCE: Self = Self { median_bytes: 4e6, mean_bytes: 100e6, largest_bytes: 5e12, per_directory: 30 };

    /// `count` files at equal distances of probability; directories are dealt so that sizes mix.
    pub fn files(&self, count: u32) -> Result<Sizes> {
        if self.median_bytes <= 0.0 || self.mean_bytes <= self.median_bytes {
            bail!(
                Invalid,
                "a mean of {} B does not go with a median of {} B: sizes are skewed; the nearest possible mean is above it",
                self.mean_bytes,
                self.median_bytes
            );
        }
        let deviation = (2.0 * (self.mean_bytes / self.median_bytes).ln()).sqrt();
        let size = |index: u32| {
            let size =
                self.median_bytes * (deviation * normal_quantile((f64::from(index) + 0.5) / f64::from(count))).exp();
            size.min(self.largest_bytes).max(1.0) as u64
        };
        let directories = count.div_ceil(self.per_directory.max(1)).max(1);
        let mut out = vec![Vec::new(); directories as usize];
        // A stride prime to the number of directories spreads neighbouring sizes over all of them.
        (0..count)
            .for_each(|index| out[(u64::from(index) * 7_919 % u64::from(directories)) as usize].push(size(index)));
        let name = format!("lognormal, median {:.0} MB, mean {:.0} MB", self.median_bytes / 1e6, self.mean_bytes / 1e6);
        Ok(Sizes { name, directories: out })
    }
}

impl Sizes {
    /// Reads a histogram: lines `bytes,count`, files dealt to directories of `per_directory`.
    pub fn parse_histogram(name: &str, text: &str, per_directory: u32) -> Result<Self> {
        let mut reader = csv::ReaderBuilder::new().has_headers(false).trim(csv::Trim::All).from_reader(text.as_bytes());
        let mut files: Vec<u64> = Vec::new();
        for (index, record) in reader.records().enumerate() {
            let line = index + 1;
            let record = record.map_err(|error| err!(Invalid, "{name}, line {line}: {error}"))?;
            let numbers: Option<Vec<u64>> = record.iter().map(|field| field.parse().ok()).collect();
            match numbers.as_deref() {
                Some([bytes, count]) => {
                    if *count > MAX_FILES - files.len() as u64 {
                        bail!(
                            Invalid,
                            "{name} counts more than {MAX_FILES} files; divide all counts by the same number"
                        );
                    }
                    files.extend(std::iter::repeat_n(*bytes, *count as usize));
                }
                None if index == 0 => {}
                _ => bail!(Invalid, "{name}, line {line}: bytes,count is needed"),
            }
        }
        let directories = (files.len() as u64).div_ceil(u64::from(per_directory.max(1))).max(1);
        let mut dealt = vec![Vec::new(); directories as usize];
        files.into_iter().enumerate().for_each(|(index, size)| {
            dealt[(index as u64 * 7_919 % directories) as usize].push(size);
        });
        Self { name: name.to_owned(), directories: dealt }.check()
    }

    /// Reads the output of `find DIR -type f -printf '%s %p\n'`.
    pub fn parse_find(name: &str, text: &str) -> Result<Self> {
        let mut files = Vec::new();
        for (index, line) in text.lines().enumerate().filter(|pair| !pair.1.trim().is_empty()) {
            let parts = line.trim_start().split_once(' ').and_then(|(size, path)| Some((path, size.parse().ok()?)));
            let Some((path, size)) = parts else {
                bail!(
                    Invalid,
                    "{name}, line {}: size and path are needed, as of find -type f -printf '%s %p\\n'",
                    index + 1
                );
            };
            files.push((path.rsplit_once('/').map_or("", |(directory, _)| directory).to_owned(), size));
        }
        Self::from_files(name, files)
    }

    /// Files as (directory, size).
    pub fn from_files(name: &str, files: impl IntoIterator<Item = (String, u64)>) -> Result<Self> {
        let mut directories: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        files.into_iter().for_each(|(directory, size)| directories.entry(directory).or_default().push(size));
        Self { name: name.to_owned(), directories: directories.into_values().collect() }.check()
    }

    fn check(self) -> Result<Self> {
        if self.bytes() == 0 {
            bail!(Invalid, "{} has no file that is longer than 0 bytes", self.name);
        }
        Ok(self)
    }

    /// Bytes of all files.
    #[must_use]
    pub fn bytes(&self) -> u128 {
        self.directories.iter().flatten().map(|size| u128::from(*size)).sum()
    }

    /// Number of files.
    #[must_use]
    pub fn files(&self) -> usize {
        self.directories.iter().map(Vec::len).sum()
    }
}

/// Most files of a histogram.
pub const MAX_FILES: u64 = 20_000_000;

/// The value below which a standard normal variable lies with this probability (Acklam's rational approximation,
/// relative error below 1.2e-9).
fn normal_quantile(p: f64) -> f64 {
    const A: [f64; 6] = [
        -39.696_830_286_653_76,
        220.946_098_424_520_5,
        -275.928_510_446_968_7,
        138.357_751_867_269,
        -30.664_798_066_147_16,
        2.506_628_277_459_239,
    ];
    const B: [f64; 5] = [
        -54.476_098_798_224_06,
        161.585_836_858_040_9,
        -155.698_979_859_886_6,
        66.801_311_887_719_72,
        -13.280_681_552_885_72,
    ];
    const C: [f64; 6] = [
        -0.007_784_894_002_430_293,
        -0.322_396_458_041_136_5,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    const D: [f64; 4] =
        [0.007_784_695_709_041_462, 0.322_467_129_070_039_8, 2.445_134_137_142_996, 3.754_408_661_907_416];
    const LOW: f64 = 0.024_25;
    let horner = |terms: &[f64], x: f64| terms.iter().fold(0.0, |sum, term| sum * x + term);
    let tail = |p: f64| {
        let q = (-2.0 * p.ln()).sqrt();
        horner(&C, q) / (horner(&D, q) * q + 1.0)
    };
    if p < LOW {
        tail(p)
    } else if p > 1.0 - LOW {
        -tail(1.0 - p)
    } else {
        let q = p - 0.5;
        horner(&A, q * q) * q / (horner(&B, q * q) * q * q + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_distribution_agrees_with_the_paper() {
        let sizes = Lognormal::DISKREDUCE.files(200_000).unwrap();
        let files = sizes.files() as f64;
        let mean = sizes.bytes() as f64 / files;
        assert!((22e6..577e6).contains(&mean) && (mean / 100e6 - 1.0).abs() < 0.1, "{mean}");
        let small = sizes.directories.iter().flatten().filter(|size| **size < 64_000_000).count() as f64 / files;
        assert!(small > 0.80, "{small}");
        let below: u128 = sizes
            .directories
            .iter()
            .flatten()
            .filter(|size| **size < 1_000_000_000)
            .map(|size| u128::from(*size))
            .sum();
        let part = below as f64 / sizes.bytes() as f64;
        assert!((0.30..0.80).contains(&part), "{part}");
    }

    #[test]
    fn quantiles_are_known_ones() {
        for (p, z) in [(0.5, 0.0), (0.975, 1.959_963_985), (0.01, -2.326_347_874), (0.841_344_746, 1.0)] {
            assert!((normal_quantile(p) - z).abs() < 1e-7, "{p}: {}", normal_quantile(p));
        }
    }

    #[test]
    fn find_s_output_and_histograms_are_read() {
        let found = Sizes::parse_find("f", "10 a/x\n20 a/y z\n5 b/c\n").unwrap();
        assert_eq!(found.directories, [vec![10, 20], vec![5]]);
        assert!(Sizes::parse_find("f", "10 a\nx b\n").unwrap_err().to_string().contains("line 2"));
        assert!(Sizes::parse_find("f", "").is_err());
        let counted = Sizes::parse_histogram("h", "bytes,count\n100,3\n7,2\n", 2).unwrap();
        assert_eq!((counted.files(), counted.bytes(), counted.directories.len()), (5, 314, 3));
        assert!(Sizes::parse_histogram("h", "100\n", 2).is_err());
        assert!(Sizes::parse_histogram("h", "1,99999999999\n", 2).is_err());
        assert!(Sizes::parse_histogram("h", "1,1\n1,18446744073709551615\n", 2).is_err(), "no sum of both");
    }
}
