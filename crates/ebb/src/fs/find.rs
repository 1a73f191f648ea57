//! `ebb fs find`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use ebb_api::path::EbbPath;
use ebb_cli::output::{print_line, print_name, put_json};
use ebb_cli::units::ByteSize;
use ebb_types::{Attr, FileKind, Result, WallTime};
use globset::GlobMatcher;
use serde_json::json;

use super::glob::{Case, fits, matcher};
use super::list::kind_name;
use super::{Session, walk};

/// Conditions that a file has to meet; without any, every file does.
#[derive(Debug, Args)]
pub struct Criteria {
    /// Pattern of the name, such as `*.csv`.
    #[arg(long)]
    name: Option<String>,
    /// The same without regard to case.
    #[arg(long)]
    iname: Option<String>,
    /// Kind of file.
    #[arg(long = "type", value_name = "KIND")]
    kind: Option<Kind>,
    /// At least so large.
    #[arg(long, value_name = "SIZE")]
    min_size: Option<ByteSize>,
    /// At most so large.
    #[arg(long, value_name = "SIZE")]
    max_size: Option<ByteSize>,
    /// Modified within this time, such as 2h or 7d.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    newer: Option<Duration>,
    /// Not modified within this time.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    older: Option<Duration>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Kind {
    #[value(alias = "f")]
    File,
    #[value(alias = "d")]
    Directory,
    #[value(alias = "l")]
    Link,
}

/// The conditions, ready to be tested.
struct Test {
    names: Vec<GlobMatcher>,
    kind: Option<FileKind>,
    sizes: (u64, u64),
    modified: (WallTime, WallTime),
}

impl Criteria {
    fn test(&self, now: WallTime) -> Result<Test> {
        let mut names = Vec::new();
        for (pattern, case) in [(&self.name, Case::Sensitive), (&self.iname, Case::Insensitive)] {
            if let Some(pattern) = pattern {
                names.push(matcher(pattern.as_bytes(), case)?);
            }
        }
        let kind = self.kind.map(|kind| match kind {
            Kind::File => FileKind::File,
            Kind::Directory => FileKind::Directory,
            Kind::Link => FileKind::Symlink,
        });
        let ago = |age: Duration| WallTime(now.0.saturating_sub(i64::try_from(age.as_nanos()).unwrap_or(i64::MAX)));
        let modified = (self.newer.map_or(WallTime(i64::MIN), ago), self.older.map_or(WallTime(i64::MAX), ago));
        let sizes = (self.min_size.map_or(0, |size| size.0), self.max_size.map_or(u64::MAX, |size| size.0));
        Ok(Test { names, kind, sizes, modified })
    }

    /// Whether sizes matter: then directories, which have none of their own, do not fit.
    const fn is_about_sizes(&self) -> bool {
        self.min_size.is_some() || self.max_size.is_some()
    }
}

impl Test {
    fn is_met(&self, name: &[u8], attr: &Attr) -> bool {
        self.names.iter().all(|matcher| fits(matcher, name))
            && self.kind.is_none_or(|kind| kind == attr.kind)
            && (self.sizes.0..=self.sizes.1).contains(&attr.size)
            && (self.modified.0..=self.modified.1).contains(&attr.mtime)
    }
}

impl Session {
    pub(super) async fn find_files(&self, paths: &[EbbPath], criteria: &Criteria) -> Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let test = criteria.test(WallTime(i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)))?;
        let mut found = Vec::new();
        for top in paths {
            walk::walk(self, top, |path, attr| {
                let is_file_like = !criteria.is_about_sizes() || attr.kind != FileKind::Directory;
                if is_file_like && test.is_met(path.last(), attr) {
                    if self.output.json() {
                        let (kind, mtime_ns) = (kind_name(attr), attr.mtime.0);
                        let mut object = json!({"kind": kind, "size": attr.size, "mtime_ns": mtime_ns});
                        put_json(&mut object, "path", path.as_bytes());
                        found.push(object);
                    } else {
                        print_name(path.as_bytes());
                    }
                }
            })
            .await?;
        }
        if self.output.json() {
            print_line(&json!(found).to_string());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ebb_types::InodeId;

    use super::*;

    const NOW: WallTime = WallTime(1_000_000_000_000);

    fn none() -> Criteria {
        Criteria { name: None, iname: None, kind: None, min_size: None, max_size: None, newer: None, older: None }
    }

    #[test]
    fn every_condition_counts() {
        let ten_seconds_ago = WallTime(NOW.0 - 10_000_000_000);
        let attr = Attr { size: 100, mtime: ten_seconds_ago, ..Attr::empty(InodeId::new(5), FileKind::File) };
        let is_met = |criteria: Criteria| criteria.test(NOW).unwrap().is_met(b"a.CSV", &attr);
        assert!(is_met(none()));
        assert!(!is_met(Criteria { name: Some("*.csv".into()), ..none() }));
        assert!(is_met(Criteria { iname: Some("*.csv".into()), ..none() }));
        assert!(!is_met(Criteria { kind: Some(Kind::Directory), ..none() }));
        assert!(!is_met(Criteria { min_size: Some(ByteSize(101)), ..none() }));
        assert!(!is_met(Criteria { max_size: Some(ByteSize(99)), ..none() }));
        let span = Duration::from_secs;
        assert!(
            is_met(Criteria { newer: Some(span(11)), ..none() })
                && !is_met(Criteria { newer: Some(span(9)), ..none() })
        );
        assert!(
            is_met(Criteria { older: Some(span(9)), ..none() })
                && !is_met(Criteria { older: Some(span(11)), ..none() })
        );
    }
}
