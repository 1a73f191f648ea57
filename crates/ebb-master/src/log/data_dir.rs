//! The master's data directory: who it belongs to, and that only one process uses it.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use ebb_runtime::{DirLock, Runtime};
use ebb_types::{ClusterId, Result, bail, err};

const FORMAT: u32 = 1;
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
            check(&disk.read(&identity).await?, &identity, cluster)?;
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

fn text(cluster: ClusterId) -> String {
    format!("ebb master\nformat {FORMAT}\ncluster {:016x}\n", cluster.raw())
}

fn check(bytes: &[u8], path: &Path, cluster: ClusterId) -> Result<()> {
    let shown = path.display();
    let text = std::str::from_utf8(bytes).map_err(|_| err!(Corrupt, "{shown}: the identity file is not text"))?;
    let mut lines = text.lines();
    if lines.next() != Some("ebb master") {
        bail!(Invalid, "{shown}: not the data directory of a master; choose another directory");
    }
    let format = lines.next().and_then(|line| line.strip_prefix("format ")?.parse::<u32>().ok());
    match format {
        Some(FORMAT) => {}
        Some(other) => bail!(Unsupported, "{shown}: data format {other}, this release reads {FORMAT}"),
        None => bail!(Corrupt, "{shown}: no line with the data format"),
    }
    let owner = lines.next().and_then(|line| u64::from_str_radix(line.strip_prefix("cluster ")?, 16).ok());
    match owner {
        Some(owner) if owner == cluster.raw() => Ok(()),
        Some(owner) => bail!(
            Invalid,
            "{shown}: belongs to cluster {owner:016x}, this is {:016x}; start it with that cluster's settings",
            cluster.raw()
        ),
        None => bail!(Corrupt, "{shown}: no line with the cluster"),
    }
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
