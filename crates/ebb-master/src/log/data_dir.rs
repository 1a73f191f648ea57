//! The master's data directory: its owner, and that only one process uses it.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use ebb_runtime::{DirLock, Runtime};
use ebb_types::{ClusterId, Result, bail};
use ebb_wire::frame::crc32c;

const FORMAT: u32 = 2;
const NAME: &str = "master";

/// A data directory that this process has taken. Held until dropped.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    _lock: DirLock,
}

impl DataDir {
    /// Takes the directory; makes it and its identity file if it is new. Refuses another cluster's, another role's
    /// and one that a later release has written.
    pub async fn open(runtime: &Runtime, path: &Path, cluster: ClusterId) -> Result<Self> {
        let disk = runtime.disk();
        disk.create_dir_all(path).await?;
        let lock = disk.lock_dir(path).await.map_err(|error| {
            error.context(format!("{}: is another master running on this directory?", path.display()))
        })?;
        let identity = path.join(NAME);
        if disk.exists(&identity).await? {
            check(&disk.read_replaced(&identity).await?, &identity, cluster)?;
        } else {
            refuse_strangers(runtime, path).await?;
            disk.replace(&identity, Bytes::from(text(cluster))).await?;
        }
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Three lines, and a fourth with the checksum of those.
pub(super) fn text(cluster: ClusterId) -> String {
    let lines = format!("ebb master\nformat {FORMAT}\ncluster {:016x}\n", cluster.raw());
    let sum = crc32c(lines.as_bytes());
    format!("{lines}checksum {sum:08x}\n")
}

pub(super) fn check(bytes: &[u8], path: &Path, cluster: ClusterId) -> Result<()> {
    let shown = path.display();
    let expected = text(cluster);
    if bytes == expected.as_bytes() {
        return Ok(());
    }
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    let format = text.strip_prefix("ebb master\nformat ").and_then(|rest| rest.lines().next()?.parse::<u32>().ok());
    // A damaged digit is no other format: where there is a sum, it is looked at first.
    let is_whole = !text.contains("checksum ") || is_sum_right(text);
    if let Some(other) = format.filter(|format| *format != FORMAT && is_whole) {
        bail!(Unsupported, "{shown}: data format {other}, this release reads {FORMAT}: use the release that wrote it");
    }
    if let Some(owner) = owner(text) {
        bail!(
            Invalid,
            "{shown}: belongs to cluster {owner:016x}, this is {:016x}; start it with that cluster's settings",
            cluster.raw()
        );
    }
    let differs = bytes.iter().zip(expected.as_bytes()).position(|(found, due)| found != due);
    let at = differs.unwrap_or(bytes.len().min(expected.len()));
    bail!(
        Corrupt,
        "{shown}: damaged at offset {at}: the disk lost or changed bytes; copy the directory away, then restore this file \
         from a saved copy. If the directory is surely cluster {:016x}'s, remove the file and write it anew: printf '{}' > {shown}",
        cluster.raw(),
        expected.escape_default()
    )
}

/// The cluster that a whole identity file names.
fn owner(text: &str) -> Option<u64> {
    let line = text.lines().nth(2).filter(|_| is_sum_right(text))?;
    u64::from_str_radix(line.strip_prefix("cluster ")?, 16).ok()
}

fn is_sum_right(text: &str) -> bool {
    let Some(at) = text.rfind("checksum ") else { return false };
    let sum =
        text[at..].strip_prefix("checksum ").and_then(|sum| u32::from_str_radix(sum.strip_suffix('\n')?, 16).ok());
    sum == Some(crc32c(&text.as_bytes()[..at]))
}

/// A directory without identity must not hold a log: its identity was lost, and beginning anew would hide that.
async fn refuse_strangers(runtime: &Runtime, path: &Path) -> Result<()> {
    for name in runtime.disk().read_dir(path).await? {
        if name.ends_with(".segment") || name.starts_with("checkpoint-") {
            bail!(
                Corrupt,
                "{}: has {name} but no identity file {NAME:?}; restore that file from a saved copy",
                path.display()
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ebb_types::ErrorKind;

    use super::*;

    #[test]
    fn another_format_is_refused_by_name() {
        let cluster = ClusterId::new(7);
        let lines = |format| format!("ebb master\nformat {format}\ncluster {:016x}\n", cluster.raw());
        let summed = |text: String| format!("{text}checksum {:08x}\n", crc32c(text.as_bytes()));
        // The first format had no sum.
        for (format, other) in [(1, lines(1)), (1, summed(lines(1))), (3, summed(lines(3)))] {
            let error = check(other.as_bytes(), Path::new("/m/master"), cluster).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(
                error.to_string().contains(&format!("/m/master: data format {format}, this release reads 2: use")),
                "{error}"
            );
        }
        let damaged = text(cluster).replace("format 2", "format 3");
        let error = check(damaged.as_bytes(), Path::new("/m/master"), cluster).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "a flipped bit is no other format: {error}");
        check(text(cluster).as_bytes(), Path::new("/m/master"), cluster).unwrap();
    }
}
