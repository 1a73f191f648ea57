//! File sizes of a directory as it is.

use std::path::{Path, PathBuf};

use ebb_cli::output::Output;
use ebb_plan::raid::sizes::Sizes;
use ebb_types::{Result, err};

/// Sizes of all regular files below `root`. Links are not followed. A directory that may not be read is left out, with
/// a warning.
pub fn scan(output: Output, root: &Path) -> Result<Sizes> {
    let first = std::fs::read_dir(root).map_err(|error| err!(Invalid, "reading {}: {error}", root.display()))?;
    let bar = output.item_bar(0, "files");
    let mut files = Vec::new();
    let mut left: Vec<(PathBuf, std::fs::ReadDir)> = vec![(root.to_owned(), first)];
    while let Some((directory, entries)) = left.pop() {
        for entry in entries.flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                match std::fs::read_dir(entry.path()) {
                    Ok(entries) => left.push((entry.path(), entries)),
                    Err(error) => output.warn(&format!("left out {}: {error}", entry.path().display())),
                }
            } else if kind.is_file()
                && let Ok(metadata) = entry.metadata()
            {
                files.push((directory.display().to_string(), metadata.len()));
                bar.set_length(files.len() as u64);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    Sizes::from_files(&root.display().to_string(), files)
}
