//! `ebb fs du`, `count` and `df`.

use std::collections::BTreeSet;

use ebb_api::path::EbbPath;
use ebb_cli::output::{Table, counted, human_bytes, put_json};
use ebb_types::{Attr, FileKind, InodeId, Result};
use serde_json::{Value, json};

use super::command::{CountArgs, DuArgs};
use super::{Session, walk};

/// What is below a path. A file with several names counts once, under the name that is met first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    bytes: u64,
    /// Space in metablocks, of one copy.
    allocated: u64,
    /// The same of all copies.
    stored: u64,
    files: u64,
    directories: u64,
}

/// Inodes with several names that were counted.
#[derive(Debug, Default)]
struct Seen(BTreeSet<InodeId>);

impl Usage {
    fn add(&mut self, attr: &Attr, seen: &mut Seen) {
        if attr.kind == FileKind::Directory {
            self.directories += 1;
            return;
        }
        self.files += 1;
        if attr.links > 1 && !seen.0.insert(attr.inode) {
            return;
        }
        self.bytes += attr.size;
        self.allocated += attr.allocated_bytes;
        self.stored += attr.allocated_bytes * u64::from(attr.storage.replicas);
    }

    fn json(&self, path: &EbbPath) -> Value {
        let mut object = json!({
            "bytes": self.bytes, "allocated_bytes": self.allocated,
            "stored_bytes": self.stored, "files": self.files, "directories": self.directories,
        });
        put_json(&mut object, "path", path.as_bytes());
        object
    }
}

impl Session {
    pub(super) async fn du(&self, args: &DuArgs) -> Result<()> {
        let mut table = Table::new(&["BYTES", "STORED", "FILES", "DIRECTORIES", "PATH"]);
        let mut objects = Vec::new();
        let mut seen = Seen::default();
        for path in self.expand(args.paths.clone()).await? {
            let (total, children) = self.usage(&path, &mut seen).await?;
            let mut object = total.json(&path);
            if !args.summarize {
                children.iter().for_each(|(path, usage)| table.row(row(usage, path, args.human)));
                object["children"] = json!(children.iter().map(|(path, usage)| usage.json(path)).collect::<Vec<_>>());
            }
            table.row(row(&total, &path, args.human));
            objects.push(object);
        }
        self.show(&table, objects);
        Ok(())
    }

    pub(super) async fn count(&self, args: &CountArgs) -> Result<()> {
        let mut table = Table::new(&["DIRECTORIES", "FILES", "BYTES", "PATH"]);
        let mut objects = Vec::new();
        for path in self.expand(args.paths.clone()).await? {
            let (total, _) = self.usage(&path, &mut Seen::default()).await?;
            let bytes = bytes(total.bytes, args.human);
            table.row(vec![total.directories.to_string(), total.files.to_string(), bytes, path.to_string()]);
            objects.push(total.json(&path));
        }
        self.show(&table, objects);
        Ok(())
    }

    fn show(&self, table: &Table, objects: Vec<Value>) {
        if !self.output.json() {
            return self.output.table(table);
        }
        // One path has always been answered by one object.
        let answer = if let [object] = objects.as_slice() { object.clone() } else { json!(objects) };
        self.output.print_json(&answer);
    }

    /// What is below a path, and below each entry of a directory, in order of their names.
    async fn usage(&self, path: &EbbPath, seen: &mut Seen) -> Result<(Usage, Vec<(EbbPath, Usage)>)> {
        let top = self.caller.resolve_link(path).await?;
        let mut total = Usage::default();
        total.add(&top, seen);
        let mut children = Vec::new();
        if top.kind == FileKind::Directory {
            let mut entries = self.caller.entries(top.inode).await?;
            entries.sort_by(|one, other| one.name.cmp(&other.name));
            for entry in entries {
                let child = path.join(&entry.name);
                let mut usage = Usage::default();
                walk::walk(self, &child, |_, attr| usage.add(attr, seen)).await?;
                total.bytes += usage.bytes;
                total.allocated += usage.allocated;
                total.stored += usage.stored;
                total.files += usage.files;
                total.directories += usage.directories;
                children.push((child, usage));
            }
        }
        Ok((total, children))
    }

    pub(super) async fn df(&self) -> Result<()> {
        let space = self.caller.client.stat_fs(InodeId::ROOT).await?;
        if self.output.json() {
            self.output.print_json(&json!({
                "capacity_bytes": space.capacity_bytes, "free_bytes": space.free_bytes,
                "available_bytes": space.available_bytes, "used_bytes": space.used_bytes, "inodes": space.inodes,
                "replicas": space.copies,
            }));
            return Ok(());
        }
        self.output.say(&format!(
            "raw: {} of {} free, {} used by replicas; room for {} of new data in {}; {}",
            human_bytes(space.free_bytes),
            human_bytes(space.capacity_bytes),
            human_bytes(space.used_bytes),
            human_bytes(space.available_bytes),
            counted(space.copies.into(), "copy"),
            counted(space.inodes, "inode"),
        ));
        Ok(())
    }
}

fn row(usage: &Usage, path: &EbbPath, is_human: bool) -> Vec<String> {
    vec![
        bytes(usage.bytes, is_human),
        bytes(usage.stored, is_human),
        usage.files.to_string(),
        usage.directories.to_string(),
        path.to_string(),
    ]
}

fn bytes(count: u64, is_human: bool) -> String {
    if is_human { human_bytes(count) } else { count.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_two_names_counts_once() {
        let file = Attr { size: 100, links: 2, allocated_bytes: 60, ..Attr::empty(InodeId::new(5), FileKind::File) };
        let (mut usage, mut seen) = (Usage::default(), Seen::default());
        usage.add(&file, &mut seen);
        usage.add(&file, &mut seen);
        usage.add(&Attr::empty(InodeId::new(6), FileKind::Directory), &mut seen);
        assert_eq!(usage, Usage { bytes: 100, allocated: 60, stored: 60, files: 2, directories: 1 });
    }
}
