//! The site of the measurements: a dataset for each setting, and files of text for one measurement each.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use ebb_cli::admin;
use ebb_cli::directory::ClusterDir;
use ebb_client::{Access, Client, ClientOptions, Created, NewFile, NewName};
use ebb_figures::metablocks::{SETTINGS, Setting};
use ebb_runtime::Runtime;
use ebb_types::{Credentials, ErrorKind, HostName, InodeId, Prefetch, Result, Role, bail, err};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{CreateDataset, Op, SetDataset};
use ebb_worker::Pattern;
use ebb_worker::lines::LineCount;

/// Directory of all datasets, below the root.
pub const DIRECTORY: &str = "lab-metablocks";
/// The text that is searched for.
pub const NEEDLE: &[u8] = b"the needle in the hay";
/// Host of programs that are no tasks: it is no node.
const HOST: &str = "client";
/// Read cache of a reader: a fraction of the file, as a file is larger than memory in the paper.
pub const CACHE_BYTES: usize = 64 << 20;
/// Bytes of one write.
const WRITE: usize = 1 << 20;
/// Time limit for the removal of the last files, after which their directory can be removed.
const REMOVAL: Duration = Duration::from_secs(10);

/// Datasets of a cluster, and text.
pub struct Site {
    /// The cluster.
    pub cluster: ClusterDir,
    /// Its workers: host and address.
    pub workers: Vec<(HostName, String)>,
    /// Time.
    pub runtime: Runtime,
    client: Client,
    directory: InodeId,
    /// Root and id, by [`SETTINGS`].
    datasets: Vec<(InodeId, u64)>,
    text: Text,
}

/// A file of text. It is removed with [`Site::unlink`].
pub struct Made {
    /// Its inode.
    pub inode: InodeId,
    /// Its path.
    pub path: String,
    setting: Setting,
}

impl Site {
    /// Makes a dataset for each setting.
    pub async fn make(cluster: ClusterDir, size: u64) -> Result<Self> {
        let workers = admin::workers(&cluster).await?;
        if workers.is_empty() {
            bail!(Unavailable, "no worker runs here: `ebb cluster up` starts one on each host");
        }
        let runtime = Runtime::real();
        let client = admin::client(&cluster, &HostName::new(HOST), Role::Operator).await?;
        let root = Credentials::root();
        let made = client
            .make_dir(&root, NewName { parent: InodeId::ROOT, name: DIRECTORY.as_bytes(), mode: 0o755, umask: 0 })
            .await;
        let made = made.map_err(|error| match error.kind() {
            ErrorKind::Exists => err!(Exists, "/{DIRECTORY} is there from an earlier run: ebb fs rm -r /{DIRECTORY}"),
            _ => error,
        })?;
        let directory = made.inode;
        let text = Text::new(size);
        let mut site = Self { cluster, workers, runtime, client, directory, datasets: Vec::new(), text };
        for setting in SETTINGS {
            let dataset = pb::Dataset {
                path: format!("/{DIRECTORY}/{}", setting.name),
                layout: "striped".to_owned(),
                replicas: 1,
                block_size: setting.geometry.block_size,
                metablock_size: setting.geometry.metablock_size,
                prefetch: setting.prefetch.to_raw(),
                ..Default::default()
            };
            let create = Op::CreateDataset(CreateDataset { dataset: Some(dataset), ..Default::default() });
            let Some(made) = site.client.meta(&root, create).await?.dataset else {
                bail!(Protocol, "a dataset was made, and the answer has no data on it");
            };
            site.datasets.push((InodeId::new(made.root_inode), made.id));
        }
        Ok(site)
    }

    /// Block servers.
    pub fn nodes(&self) -> usize {
        self.client.nodes().len()
    }

    /// Bytes of a file of text.
    pub fn size(&self) -> u64 {
        self.text.size
    }

    /// Lines of it that hold [`NEEDLE`].
    pub fn needles(&self) -> u64 {
        self.text.needles
    }

    fn dataset(&self, setting: Setting) -> (InodeId, u64) {
        let place = SETTINGS.iter().position(|known| *known == setting);
        self.datasets[place.expect("only settings of the list are measured")]
    }

    /// A client with an empty cache.
    pub async fn client(&self, change: impl FnOnce(&mut ClientOptions)) -> Result<Client> {
        let host = HostName::new(HOST);
        let mut options = admin::client_options(&self.cluster, &host, Role::Operator)?;
        options.read_cache_bytes = CACHE_BYTES;
        change(&mut options);
        Client::connect(self.runtime.clone(), self.cluster.connector(&self.runtime, &host, Role::Operator)?, options)
            .await
    }

    /// The shared client, for work that is not measured.
    pub fn bystander(&self) -> &Client {
        &self.client
    }

    /// Writes a file of text to a setting's dataset, with this prefetch; it is committed, and in no client's memory.
    pub async fn file(&self, setting: Setting, prefetch: Prefetch) -> Result<Made> {
        let root = Credentials::root();
        let (directory, dataset) = self.dataset(setting);
        let set = SetDataset { dataset, prefetch: Some(prefetch.to_raw()), ..Default::default() };
        self.client.meta(&root, Op::SetDataset(set)).await?;
        let writer = self.client(|_| ()).await?;
        let created = writer.create(&root, NewFile::exclusive(directory, b"text", Access::Write));
        let Created { handle, attr, .. } = created.await?;
        let mut at = 0;
        while at < self.text.size {
            let data = self.text.piece(at, WRITE);
            let len = data.len() as u64;
            writer.write(handle, at, data).await?;
            at += len;
        }
        writer.fsync(handle).await?;
        writer.close(handle).await;
        writer.disconnect().await?;
        let path = format!("/{DIRECTORY}/{}/text", setting.name);
        Ok(Made { inode: attr.inode, path, setting })
    }

    /// Removes a file.
    pub async fn unlink(&self, file: Made) -> Result<()> {
        let (directory, _) = self.dataset(file.setting);
        self.client.unlink(&Credentials::root(), directory, b"text").await
    }

    /// Mount point for programs.
    pub fn mountpoint(&self) -> PathBuf {
        self.cluster.path.join(DIRECTORY)
    }

    /// Removes everything.
    pub async fn remove(self) -> Result<()> {
        let root = Credentials::root();
        let removed = async {
            for (setting, (directory, _)) in SETTINGS.iter().zip(&self.datasets) {
                match self.client.unlink(&root, *directory, b"text").await {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                    // It is gone already, unless a measurement failed.
                    _ => self.client.remove_dir(&root, self.directory, setting.name.as_bytes()).await?,
                }
            }
            self.client.remove_dir(&root, InodeId::ROOT, DIRECTORY.as_bytes()).await
        };
        let removed = self.runtime.timeout(REMOVAL, "the removal of the measured files", removed).await;
        self.client.disconnect().await?;
        removed
    }
}

/// Lines of about a hundred bytes, some with the needle, over and over.
struct Text {
    size: u64,
    needles: u64,
    /// The lines of one turn.
    turn: usize,
    /// Enough turns that a piece at any offset is contiguous.
    turns: Bytes,
}

impl Text {
    fn new(size: u64) -> Self {
        let mut lines = Vec::new();
        // A turn is no multiple of a block, so that lines lie over edges of blocks and metablocks.
        for number in 0..9973_u32 {
            lines.extend_from_slice(format!("{number:06} ").as_bytes());
            if number % 100 == 7 {
                lines.extend_from_slice(NEEDLE);
            }
            let filler = 70 + (number.wrapping_mul(2_654_435_761) >> 27) as usize;
            lines.extend((0..filler).map(|at| b'a' + ((number as usize * 7 + at * at) % 26) as u8));
            lines.push(b'\n');
        }
        let turn = lines.len();
        let turns = Bytes::from(lines.repeat(2 + WRITE / turn));
        let count = |text: &[u8]| {
            let pattern = Pattern::new(Bytes::from_static(NEEDLE)).expect("a needle is a part of a line");
            let mut count = LineCount::new(pattern, 0, text.len() as u64);
            count.feed(text);
            count.lines()
        };
        let rest = usize::try_from(size % turn as u64).unwrap_or(0);
        let needles = size / turn as u64 * count(&turns[..turn]) + count(&turns[..rest]);
        Self { size, needles, turn, turns }
    }

    /// The bytes from an offset, at most `len`.
    fn piece(&self, at: u64, len: usize) -> Bytes {
        let start = usize::try_from(at % self.turn as u64).unwrap_or(0);
        let len = usize::try_from(self.size - at).unwrap_or(usize::MAX).min(len);
        self.turns.slice(start..start + len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_the_needles_that_it_says_wherever_it_is_cut() {
        for size in [1, 1000, 3_000_017, 2 * WRITE as u64] {
            let text = Text::new(size);
            let mut whole = Vec::new();
            while (whole.len() as u64) < size {
                whole.extend_from_slice(&text.piece(whole.len() as u64, 70_001));
            }
            assert_eq!(whole.len() as u64, size);
            let lines = whole.split(|byte| *byte == b'\n');
            let found = lines.filter(|line| line.windows(NEEDLE.len()).any(|part| part == NEEDLE)).count();
            assert_eq!(found as u64, text.needles);
        }
        assert_ne!(Text::new(1).turn % (16 << 10), 0, "lines must lie over edges");
    }
}
