//! `ebb fs ls`, `stat`, `du`, `df`.

use ebb_cli::output::{Table, human_bytes, print_name};
use ebb_cli::path::{EbbPath, text};
use ebb_client::DirEntry;
use ebb_types::{Attr, FileKind, InodeId, Result};
use serde_json::json;

use super::{Session, walk};

impl Session {
    pub(super) async fn ls(&self, path: &EbbPath, long: bool) -> Result<()> {
        let attr = self.resolve_link(path).await?;
        let mut entries = if attr.kind == FileKind::Directory {
            walk::entries(self, attr.inode).await?
        } else {
            let name = path.last().to_vec();
            vec![DirEntry { name, inode: attr.inode, kind: attr.kind, cookie: 0, attr: Some(attr) }]
        };
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        if self.output.json() {
            let list: Vec<_> =
                entries.iter().filter_map(|e| Some(attr_json(&text(&e.name), e.attr.as_ref()?))).collect();
            self.output.print_json(&json!(list));
        } else if long {
            self.output.table(&long_table(&entries));
        } else {
            entries.iter().for_each(|entry| print_name(&entry.name));
        }
        Ok(())
    }

    pub(super) async fn stat(&self, path: &EbbPath) -> Result<()> {
        let attr = self.resolve_link(path).await?;
        if self.output.json() {
            self.output.print_json(&attr_json(&path.to_string(), &attr));
            return Ok(());
        }
        self.output.say(&format!("{path}: {} {}", kind_name(&attr), attr.inode));
        self.output.say(&format!("  mode {:04o}, uid {}, gid {}, {} links", attr.mode, attr.uid, attr.gid, attr.links));
        self.output.say(&format!("  {} bytes ({})", attr.size, human_bytes(attr.size)));
        self.output.say(&format!(
            "  modified {}, changed {}, accessed {}, made {}",
            time(attr.mtime.0),
            time(attr.ctime.0),
            time(attr.atime.0),
            time(attr.btime.0)
        ));
        self.output.say(&format!(
            "  dataset {}: {} copies, block {}, metablock {}",
            attr.storage.dataset.raw(),
            attr.storage.replicas,
            human_bytes(attr.storage.geometry.block_size),
            human_bytes(attr.storage.geometry.metablock_size)
        ));
        Ok(())
    }

    pub(super) async fn du(&self, path: &EbbPath) -> Result<()> {
        let mut bytes = 0;
        let mut files = 0_u64;
        let mut directories = 0_u64;
        walk::walk(self, path, |_, attr| {
            if attr.kind == FileKind::Directory {
                directories += 1;
            } else {
                files += 1;
                bytes += attr.size;
            }
        })
        .await?;
        if self.output.json() {
            self.output.print_json(
                &json!({"path": path.to_string(), "bytes": bytes, "files": files, "directories": directories}),
            );
        } else {
            self.output
                .say(&format!("{bytes} bytes ({}) in {files} files, {directories} directories", human_bytes(bytes)));
        }
        Ok(())
    }

    pub(super) async fn df(&self) -> Result<()> {
        let space = self.client.stat_fs(InodeId::ROOT).await?;
        if self.output.json() {
            self.output.print_json(&json!({
                "capacity_bytes": space.capacity_bytes, "free_bytes": space.free_bytes,
                "available_bytes": space.available_bytes, "used_bytes": space.used_bytes, "inodes": space.inodes, "replicas": space.copies,
            }));
            return Ok(());
        }
        let copies = space.copies;
        self.output.say(&format!(
            "raw: {} of {} free, {} used by replicas; room for {} of new data in {copies} copies; {} inodes",
            human_bytes(space.free_bytes),
            human_bytes(space.capacity_bytes),
            human_bytes(space.used_bytes),
            human_bytes(space.available_bytes),
            space.inodes,
        ));
        Ok(())
    }
}

fn long_table(entries: &[DirEntry]) -> Table {
    let mut table = Table::new(&["MODE", "LINKS", "UID", "GID", "SIZE", "MODIFIED", "NAME"]);
    for entry in entries {
        let Some(attr) = &entry.attr else { continue };
        table.row(vec![
            mode_text(attr),
            attr.links.to_string(),
            attr.uid.to_string(),
            attr.gid.to_string(),
            attr.size.to_string(),
            time(attr.mtime.0),
            text(&entry.name),
        ]);
    }
    table
}

fn attr_json(name: &str, attr: &Attr) -> serde_json::Value {
    json!({
        "name": name, "inode": attr.inode.raw(), "kind": kind_name(attr), "mode": format!("{:04o}", attr.mode),
        "nlink": attr.links, "uid": attr.uid, "gid": attr.gid, "size": attr.size, "mtime_ns": attr.mtime.0,
        "ctime_ns": attr.ctime.0, "atime_ns": attr.atime.0, "dataset": attr.storage.dataset.raw(),
        "replicas": attr.storage.replicas,
    })
}

fn kind_name(attr: &Attr) -> &'static str {
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
