//! The files of a log: one for each segment, with its number in the name.

use std::path::{Path, PathBuf};

use ebb_runtime::Disk;
use ebb_types::Result;

/// The form of the names of a log's segments.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    /// Before the number.
    pub prefix: &'static str,
    /// The number has so many digits at least.
    pub digits: usize,
    /// Behind the number.
    pub suffix: &'static str,
}

impl Names {
    /// The path of a segment.
    #[must_use]
    pub fn path(&self, dir: &Path, number: u64) -> PathBuf {
        dir.join(format!("{}{number:0digits$}{}", self.prefix, self.suffix, digits = self.digits))
    }

    /// The number of the segment with this file name; `None` if it is none of this log.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        let digits = name.strip_prefix(self.prefix)?.strip_suffix(self.suffix)?;
        // `parse` takes a sign, too.
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    }

    /// The numbers of all segments in a directory, in order.
    pub async fn numbers(&self, disk: &Disk, dir: &Path) -> Result<Vec<u64>> {
        let names = disk.read_dir(dir).await?;
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| self.number(name)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_their_number_and_others_have_none() {
        let long = Names { prefix: "log-", digits: 6, suffix: ".segment" };
        let short = Names { prefix: "journal-", digits: 0, suffix: "" };
        assert_eq!(long.path(Path::new("/m"), 12), Path::new("/m/log-000012.segment"));
        assert_eq!(short.path(Path::new("/v"), 12), Path::new("/v/journal-12"));
        for number in [0, 1, 999_999, 1_000_000, u64::MAX] {
            for names in [long, short] {
                let path = names.path(Path::new("/"), number);
                assert_eq!(names.number(path.file_name().unwrap().to_str().unwrap()), Some(number));
            }
        }
        for other in ["", "journal-", "journal-x", "journal-+1", "journal-1.new", "log-000001.unfinished", "1"] {
            assert_eq!(short.number(other), None, "{other}");
            assert_eq!(long.number(other), None, "{other}");
        }
    }
}
