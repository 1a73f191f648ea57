//! What a copy of several files did, counted.

use ebb_cli::output::{Output, counted, human_bytes};
use ebb_types::{Error, Result};
use serde_json::json;

use super::Copied;

/// Counts of one command. Failures are reported as they come, and kept for the end.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub directories: u64,
    files: u64,
    bytes: u64,
    links: u64,
    skipped: u64,
    failures: Vec<(String, Error)>,
}

impl Tally {
    /// Adds the end of one copy, and reports it if it failed.
    pub fn add(&mut self, output: Output, label: String, done: Result<Copied>) {
        match done {
            Ok(Copied::File(bytes)) => {
                self.files += 1;
                self.bytes += bytes;
            }
            Ok(Copied::Link) => self.links += 1,
            Ok(Copied::Skipped) => self.skipped += 1,
            Err(error) => {
                output.warn(&format!("{label}: {error}"));
                self.failures.push((label, error));
            }
        }
    }

    /// Adds something that cannot be copied: neither a file nor a directory nor a link.
    pub fn leave_out(&mut self, output: Output, label: &str) {
        output.warn(&format!("{label}: neither file, directory nor link: left out"));
        self.skipped += 1;
    }

    /// Reports the counts. False: something was not copied.
    pub fn report(self, output: Output) -> bool {
        let is_whole = self.failures.is_empty();
        if output.json() {
            output.print_json(&self.json());
        } else {
            output.say(&self.sentence());
        }
        is_whole
    }

    /// Why a part was not copied, if so.
    pub fn trouble(&self) -> Option<String> {
        if let Some((path, error)) = self.failures.first() {
            return Some(format!("{path}: {error}"));
        }
        (self.skipped > 0).then(|| format!("{} cannot be copied", counted(self.skipped, "special file")))
    }

    fn json(&self) -> serde_json::Value {
        let failures = self.failures.iter();
        let failures: Vec<_> = failures.map(|(path, error)| json!({"path": path, "error": error.detail()})).collect();
        json!({
            "files": self.files, "bytes": self.bytes, "directories": self.directories, "links": self.links,
            "skipped": self.skipped, "failed": failures,
        })
    }

    fn sentence(&self) -> String {
        let mut done = format!("{} copied ({})", counted(self.files, "file"), human_bytes(self.bytes));
        for (count, noun) in [(self.directories, "new directory"), (self.links, "link")] {
            if count > 0 {
                done += &format!(", {}", counted(count, noun));
            }
        }
        if self.skipped > 0 {
            done += &format!(", {} skipped", self.skipped);
        }
        if !self.failures.is_empty() {
            done += &format!(", {} not copied", self.failures.len());
        }
        done.replace("directorys", "directories")
    }
}

#[cfg(test)]
mod tests {
    use ebb_types::err;

    use super::*;

    #[test]
    fn counts_read_as_a_sentence() {
        let mut tally = Tally::default();
        assert_eq!(tally.sentence(), "0 files copied (0 B)");
        let output = Output::new(true);
        tally.directories = 2;
        for done in [Ok(Copied::File(1 << 20)), Ok(Copied::Link), Ok(Copied::Skipped), Err(err!(Exists, "/f exists"))] {
            tally.add(output, "/f".to_owned(), done);
        }
        assert_eq!(tally.sentence(), "1 file copied (1.0 MiB), 2 new directories, 1 link, 1 skipped, 1 not copied");
        assert_eq!(tally.json()["failed"][0]["error"], "/f exists");
        assert!(!tally.report(output));
    }
}
