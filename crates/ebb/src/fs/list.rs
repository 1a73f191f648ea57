//! `ebb fs ls` and `stat`.

use std::collections::BTreeMap;

use ebb_api::path::{EbbPath, text};
use ebb_api::users;
use ebb_cli::output::{Output, Table, counted, human_bytes, print_name, put_json};
use ebb_client::DirEntry;
use ebb_types::{Attr, DatasetId, FileKind, Result};
use serde_json::json;

use super::command::LsArgs;

use super::Session;

impl Session {
    pub(super) async fn ls(&self, args: &LsArgs) -> Result<()> {
        let paths = self.expand(args.paths.clone()).await?;
        let (mut files, mut directories) = (Vec::new(), Vec::new());
        for path in &paths {
            let attr = self.caller.resolve_link(path).await?;
            if attr.kind == FileKind::Directory && !args.directory {
                directories.push((path.clone(), attr.inode));
            } else {
                // Several files may have one name.
                let is_plain = paths == args.paths && paths.len() == 1 && !args.directory;
                let name = if is_plain { path.last() } else { path.as_bytes() };
                files.push(DirEntry {
                    name: name.to_vec(),
                    inode: attr.inode,
                    kind: attr.kind,
                    cookie: 0,
                    attr: Some(attr),
                    map: None,
                });
            }
        }
        let has_heads = args.recursive || paths.len() > 1;
        // People see no datasets in a listing.
        let datasets = if self.output.json() { self.datasets().await? } else { Datasets::default() };
        let mut listing = Listing { output: self.output, args, datasets, objects: Vec::new(), is_first: true };
        if !files.is_empty() || directories.is_empty() {
            listing.show(None, files);
        }
        directories.reverse();
        while let Some((path, inode)) = directories.pop() {
            let entries = self.caller.entries(inode).await.map_err(|error| self.caller.explain(error, &path))?;
            if args.recursive {
                let below = entries.iter().filter(|entry| entry.kind == FileKind::Directory);
                let mut below: Vec<_> = below.map(|entry| (path.join(&entry.name), entry.inode)).collect();
                below.sort_by(|one, other| other.0.cmp(&one.0));
                directories.extend(below);
            }
            listing.show(Some(&path).filter(|_| has_heads), entries);
        }
        if self.output.json() {
            self.output.print_json(&json!(listing.objects));
        }
        Ok(())
    }

    pub(super) async fn stat(&self, paths: &[EbbPath]) -> Result<()> {
        let mut objects = Vec::new();
        let datasets = self.datasets().await?;
        for path in paths {
            let attr = self.caller.resolve_link(path).await?;
            let target = match attr.kind {
                FileKind::Symlink => Some(self.caller.client.read_link(&self.caller.credentials, attr.inode).await?),
                _ => None,
            };
            if self.output.json() {
                let mut object = attr_json(path.as_bytes(), &attr, &datasets);
                if let Some(target) = target {
                    put_json(&mut object, "target", &target);
                }
                objects.push(object);
            } else {
                self.say_attr(path, &attr, &datasets, target.as_deref());
            }
        }
        if self.output.json() {
            // One path has always been answered by one object.
            let answer = if let [object] = objects.as_slice() { object.clone() } else { json!(objects) };
            self.output.print_json(&answer);
        }
        Ok(())
    }

    /// The datasets' paths.
    async fn datasets(&self) -> Result<Datasets> {
        let all = crate::dataset::datasets(&self.caller.client).await?;
        Ok(Datasets(all.into_iter().map(|dataset| (DatasetId::new(dataset.id), dataset.path)).collect()))
    }

    fn say_attr(&self, path: &EbbPath, attr: &Attr, datasets: &Datasets, target: Option<&[u8]>) {
        let points = target.map(|target| format!(" to {}", text(target))).unwrap_or_default();
        self.output.say(&format!("{path}: {}{points}, inode {}", kind_name(attr), attr.inode.raw()));
        self.output.say(&format!(
            "  mode {:04o}, owner {}, group {}, {}",
            attr.mode,
            users::user_name(attr.uid),
            users::group_name(attr.gid),
            counted(attr.links.into(), "link")
        ));
        self.output.say(&format!("  {} bytes ({})", attr.size, human_bytes(attr.size)));
        self.output.say(&format!(
            "  modified {}, changed {}, accessed {}, made {}",
            time(attr.mtime.0),
            time(attr.ctime.0),
            time(attr.atime.0),
            time(attr.btime.0)
        ));
        self.output.say(&format!(
            "  dataset {}: {}, block {}, metablock {}",
            datasets.path(attr),
            counted(attr.storage.replicas.into(), "copy"),
            human_bytes(attr.storage.geometry.block_size),
            human_bytes(attr.storage.geometry.metablock_size)
        ));
    }
}

/// The datasets' paths by number.
#[derive(Default)]
struct Datasets(BTreeMap<DatasetId, String>);

impl Datasets {
    /// The path of a file's dataset; empty if its directory has been removed.
    fn path(&self, attr: &Attr) -> &str {
        self.0.get(&attr.storage.dataset).map_or("", String::as_str)
    }
}

/// The output of one `ls`, directory by directory.
struct Listing<'a> {
    output: Output,
    args: &'a LsArgs,
    datasets: Datasets,
    objects: Vec<serde_json::Value>,
    is_first: bool,
}

impl Listing<'_> {
    /// Shows the entries of a directory, with its path above them if there are several.
    fn show(&mut self, directory: Option<&EbbPath>, mut entries: Vec<DirEntry>) {
        sort(&mut entries, self.args);
        if self.output.json() {
            let objects = entries.iter().filter_map(|entry| {
                let mut object = attr_json(&entry.name, entry.attr.as_ref()?, &self.datasets);
                if let Some(directory) = directory {
                    put_json(&mut object, "path", directory.join(&entry.name).as_bytes());
                }
                Some(object)
            });
            self.objects.extend(objects);
            return;
        }
        if let Some(directory) = directory {
            self.output.say(&format!("{}{directory}:", if self.is_first { "" } else { "\n" }));
        }
        self.is_first = false;
        if self.args.long {
            self.output.table(&long_table(&entries, self.args.human));
        } else {
            entries.iter().for_each(|entry| print_name(&entry.name));
        }
    }
}

fn sort(entries: &mut [DirEntry], args: &LsArgs) {
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    let attr = |entry: &DirEntry| entry.attr;
    if args.time {
        entries.sort_by_key(|entry| std::cmp::Reverse(attr(entry).map(|attr| attr.mtime)));
    } else if args.size {
        entries.sort_by_key(|entry| std::cmp::Reverse(attr(entry).map(|attr| attr.size)));
    }
    if args.reverse {
        entries.reverse();
    }
}

fn long_table(entries: &[DirEntry], is_human: bool) -> Table {
    let mut table = Table::new(&["MODE", "LINKS", "OWNER", "GROUP", "SIZE", "MODIFIED", "NAME"]);
    let mut users = users::Names::default();
    for entry in entries {
        let Some(attr) = &entry.attr else { continue };
        table.row(vec![
            mode_text(attr),
            attr.links.to_string(),
            users.user(attr.uid),
            users.group(attr.gid),
            if is_human { human_bytes(attr.size) } else { attr.size.to_string() },
            time(attr.mtime.0),
            text(&entry.name),
        ]);
    }
    table
}

fn attr_json(name: &[u8], attr: &Attr, datasets: &Datasets) -> serde_json::Value {
    let mut object = json!({
        "inode": attr.inode.raw(), "kind": kind_name(attr), "mode": format!("{:04o}", attr.mode),
        "nlink": attr.links, "uid": attr.uid, "gid": attr.gid, "size": attr.size, "mtime_ns": attr.mtime.0,
        "ctime_ns": attr.ctime.0, "atime_ns": attr.atime.0, "dataset": datasets.path(attr),
        "replicas": attr.storage.replicas,
    });
    put_json(&mut object, "name", name);
    object
}

pub(super) fn kind_name(attr: &Attr) -> &'static str {
    match attr.kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::CharDevice => "char-device",
        FileKind::BlockDevice => "block-device",
    }
}

/// `drwxr-xr-x`, as ls prints it.
fn mode_text(attr: &Attr) -> String {
    let letter = match attr.kind {
        FileKind::File => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::CharDevice => 'c',
        FileKind::BlockDevice => 'b',
    };
    let mut text = String::from(letter);
    for (shift, special, set, unset) in [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')] {
        let bits = attr.mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, attr.mode & special != 0) {
            (true, true) => set,
            (false, true) => unset,
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// `2026-11-21 20:15:07` UTC (days to date after Howard Hinnant's civil_from_days).
pub fn time(ns: i64) -> String {
    let seconds = ns.div_euclid(1_000_000_000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use ebb_types::InodeId;

    use super::*;

    #[test]
    fn modes_and_times_read_as_ls_prints_them() {
        let attr = Attr { mode: 0o1777, ..Attr::empty(InodeId::ROOT, FileKind::Directory) };
        assert_eq!(mode_text(&attr), "drwxrwxrwt");
        let attr = Attr { mode: 0o4644, ..Attr::empty(InodeId::ROOT, FileKind::File) };
        assert_eq!(mode_text(&attr), "-rwSr--r--");
        assert_eq!(time(0), "1970-01-01 00:00:00");
        assert_eq!(time(951_782_400_000_000_000), "2000-02-29 00:00:00");
        assert_eq!(time(-1), "1969-12-31 23:59:59");
    }
}
