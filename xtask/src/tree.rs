//! The files of the workspace, as git sees them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// All text files that git tracks, or that are new and not ignored.
#[derive(Default)]
pub struct Tree {
    /// In order of path.
    pub files: Vec<SourceFile>,
}

/// One file.
pub struct SourceFile {
    /// From the root, with `/`.
    pub path: String,
    /// Content.
    pub text: String,
}

/// The root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_owned()
}

impl Tree {
    /// Reads the tree; the error is a sentence.
    pub fn load() -> Result<Self, String> {
        let list = Command::new("git")
            .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
            .current_dir(root())
            .output()
            .map_err(|error| format!("cannot run git: {error}"))?;
        if !list.status.success() {
            return Err(format!("git ls-files failed: {}", String::from_utf8_lossy(&list.stderr).trim()));
        }
        let mut files = Vec::new();
        for path in String::from_utf8_lossy(&list.stdout).split('\0').filter(|path| !path.is_empty()) {
            // A listed file that is missing was deleted and not yet committed.
            if let Ok(text) = std::fs::read_to_string(root().join(path)) {
                files.push(SourceFile { path: path.to_owned(), text });
            }
        }
        files.sort_by(|left, right| left.path.cmp(&right.path));
        Ok(Self { files })
    }

    /// An artificial tree for a test.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let file = |(path, text): &(&str, &str)| SourceFile { path: (*path).to_owned(), text: (*text).to_owned() };
        Self { files: files.iter().map(file).collect() }
    }

    /// The text of a file.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|file| file.path == path).map(|file| file.text.as_str())
    }

    /// Files with names that end in `suffix`.
    pub fn ending(&self, suffix: &str) -> impl Iterator<Item = &SourceFile> {
        self.files.iter().filter(move |file| file.path.ends_with(suffix))
    }

    /// Whether there is such a file, or a directory with files in it.
    pub fn has(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        path.is_empty() || self.files.iter().any(|file| file.path == path || file.path.starts_with(&folder))
    }

    /// Name and manifest of each package.
    pub fn packages(&self) -> impl Iterator<Item = (&str, &str)> {
        self.ending("Cargo.toml").filter_map(|file| {
            let folder = file.path.strip_suffix("/Cargo.toml")?;
            let name = folder.rsplit_once('/').map_or(folder, |(_, name)| name);
            Some((name, file.text.as_str()))
        })
    }
}

impl SourceFile {
    /// Lines with their numbers, from 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines())
    }
}
