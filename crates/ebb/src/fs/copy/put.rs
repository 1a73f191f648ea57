//! `ebb fs put`: from this machine into the file system.

use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use ebb_api::path::EbbPath;
use ebb_client::{Client, Handle};
use ebb_types::{Error, ErrorKind, FileKind, HostName, InodeId, Result, bail, err};
use indicatif::ProgressBar;

use super::landing::{Landing, Place, Verdict, new_directory};
use super::tally::Tally;
use super::{Copied, CopyArgs, Job, Kept, Tools};
use crate::fs::{STEP, Session};

/// A file or a symbolic link to copy in.
struct PutJob {
    source: PathBuf,
    place: Place,
    content: Content,
}

enum Content {
    /// A file, and the hosts for its first copies. Without hosts, the layout decides.
    File(Arc<[HostName]>),
    /// A symbolic link.
    Link,
}

impl Job for PutJob {
    fn label(&self) -> String {
        self.source.display().to_string()
    }

    async fn run(self, tools: Arc<Tools>) -> Result<Copied> {
        match &self.content {
            Content::File(hosts) => put_file(&tools, &self.source, self.place, hosts).await,
            Content::Link => {
                let target = fs::read_link(&self.source).map_err(|error| err!(Io, "{error}"))?;
                tools.link(&self.place, target.as_os_str().as_bytes()).await
            }
        }
    }
}

impl Session {
    /// Copies files in. False: something was not copied.
    pub(in crate::fs) async fn put(
        &self,
        sources: &[PathBuf],
        target: &EbbPath,
        args: CopyArgs,
        hosts: &[String],
    ) -> Result<bool> {
        let hosts = self.known_hosts(hosts)?;
        let into = self.caller.find(target).await?.is_some_and(|attr| attr.kind == FileKind::Directory);
        if sources.len() > 1 && !into {
            bail!(NotDirectory, "{target} is not a directory: several files go only into one");
        }
        if let [source] = sources
            && (source.as_os_str() == "-" || !fs::metadata(source).is_ok_and(|metadata| metadata.is_dir()))
        {
            return self.put_one(source, target, into, args, &hosts).await;
        }
        let mut tally = Tally::default();
        for source in sources {
            if let Err(error) = self.put_tree(source, target, into, args, &hosts, &mut tally).await {
                tally.add(self.output, source.display().to_string(), Err(error));
            }
        }
        Ok(tally.report(self.output))
    }

    /// Hosts by name; `Invalid` for one without a node, on which nothing could lie.
    fn known_hosts(&self, names: &[String]) -> Result<Arc<[HostName]>> {
        let nodes = self.caller.client.nodes();
        if let Some(strange) = names.iter().find(|name| !nodes.iter().any(|node| node.host == **name)) {
            let known: Vec<&str> = nodes.iter().map(|node| node.host.as_str()).collect();
            bail!(Invalid, "--hosts {strange}: no node is there; nodes are on {}", known.join(", "));
        }
        Ok(names.iter().map(|name| HostName::new(name.clone())).collect())
    }

    /// Copies one file in, or standard input.
    async fn put_one(
        &self,
        source: &Path,
        target: &EbbPath,
        into: bool,
        args: CopyArgs,
        hosts: &Arc<[HostName]>,
    ) -> Result<bool> {
        if source.as_os_str() == "-" {
            let tools = self.tools(args.rules(), ProgressBar::hidden());
            let place = self.place(target).await?;
            let done = put_stdin(&tools, place, hosts).await.map_err(|error| error.context(target))?;
            return Ok(self.one(target.to_string(), done));
        }
        let metadata = fs::metadata(source).map_err(|error| Error::from_io(&error, source.display()))?;
        let target = target_of(source, target, into);
        let bar = self.output.byte_bar(metadata.len(), &format!("put {}", source.display()));
        let tools = self.tools(args.rules(), bar);
        let place = self.place(&target).await?;
        let done = put_file(&tools, source, place, hosts).await;
        tools.bar.finish_and_clear();
        Ok(self.one(target.to_string(), done.map_err(|error| error.context(&target))?))
    }

    async fn put_tree(
        &self,
        source: &Path,
        target: &EbbPath,
        into: bool,
        args: CopyArgs,
        hosts: &Arc<[HostName]>,
        tally: &mut Tally,
    ) -> Result<()> {
        let metadata = fs::metadata(source).map_err(|error| Error::from_io(&error, source.display()))?;
        if metadata.is_dir() && !args.recursive {
            bail!(IsDirectory, "a directory: give -r to copy it with all below");
        }
        let target = target_of(source, target, into);
        let total = if metadata.is_dir() { local_bytes(source) } else { metadata.len() };
        let tools = self.tools(args.rules(), self.output.byte_bar(total, &format!("put {}", source.display())));
        let mut jobs = Vec::new();
        if metadata.is_dir() {
            self.put_directories(source, &metadata, &target, hosts, &mut jobs, tally).await?;
        } else {
            let content = Content::File(Arc::clone(hosts));
            jobs.push(PutJob { source: source.to_owned(), place: self.place(&target).await?, content });
        }
        self.copy_all(&tools, jobs, tally).await;
        tools.bar.finish_and_clear();
        Ok(())
    }

    /// Makes the directories of a local tree, and lists its files and symbolic links. A directory that cannot be made
    /// or read is a failure of its own.
    async fn put_directories(
        &self,
        source: &Path,
        metadata: &Metadata,
        target: &EbbPath,
        hosts: &Arc<[HostName]>,
        jobs: &mut Vec<PutJob>,
        tally: &mut Tally,
    ) -> Result<()> {
        let place = self.place(target).await?;
        let mut pending = vec![(source.to_owned(), place, metadata.mode())];
        while let Some((directory, place, mode)) = pending.pop() {
            let listed = async {
                let (inode, is_new) = self.ensure_directory(&place, mode).await?;
                tally.directories += u64::from(is_new);
                let entries = fs::read_dir(&directory).map_err(|error| err!(Io, "{error}"))?;
                let entries: std::io::Result<Vec<_>> = entries.collect();
                Ok((inode, entries.map_err(|error| err!(Io, "{error}"))?))
            };
            let (inode, entries) = match listed.await {
                Ok(listed) => listed,
                Err(error) => {
                    tally.add(self.output, directory.display().to_string(), Err(error));
                    continue;
                }
            };
            for entry in entries {
                let (local, name) = (entry.path(), entry.file_name().as_bytes().to_vec());
                let place = Place { parent: inode, name };
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => {
                        let mode = entry.metadata().map_or(0o777, |metadata| metadata.mode());
                        pending.push((local, place, mode));
                    }
                    Ok(kind) if kind.is_symlink() => {
                        jobs.push(PutJob { source: local, place, content: Content::Link });
                    }
                    Ok(kind) if kind.is_file() => {
                        jobs.push(PutJob { source: local, place, content: Content::File(Arc::clone(hosts)) });
                    }
                    Ok(_) => tally.leave_out(self.output, &local.display().to_string()),
                    Err(error) => tally.add(self.output, local.display().to_string(), Err(err!(Io, "{error}"))),
                }
            }
        }
        Ok(())
    }

    /// The directory at a place. True: it is new.
    pub(super) async fn ensure_directory(&self, place: &Place, mode: u32) -> Result<(InodeId, bool)> {
        let made = self.caller.client.make_dir(&self.caller.credentials, new_directory(place, mode & 0o777)).await;
        match made {
            Ok(attr) => Ok((attr.inode, true)),
            Err(error) if error.kind() == ErrorKind::Exists => {
                let found = self.caller.client.lookup(&self.caller.credentials, place.parent, &place.name).await?;
                if found.kind != FileKind::Directory {
                    bail!(NotDirectory, "a file of this name is there: no directory can be made");
                }
                Ok((found.inode, false))
            }
            Err(error) => Err(error),
        }
    }

    /// The place that a path names.
    pub(super) async fn place(&self, path: &EbbPath) -> Result<Place> {
        let (parent, name) = self.caller.parent(path).await?;
        Ok(Place { parent, name: name.to_vec() })
    }

    /// Reports the copy of one file: with JSON its counts, else nothing, as cp does.
    pub(super) fn one(&self, label: String, done: Copied) -> bool {
        if self.output.json() {
            let mut tally = Tally::default();
            tally.add(self.output, label, Ok(done));
            return tally.report(self.output);
        }
        true
    }
}

/// The path of a copy: in a directory, it has its source's own name.
fn target_of(source: &Path, target: &EbbPath, into: bool) -> EbbPath {
    let last = source.canonicalize().ok().and_then(|path| path.file_name().map(ToOwned::to_owned));
    match last {
        Some(last) if into => target.join(last.as_bytes()),
        _ => target.clone(),
    }
}

async fn put_file(tools: &Tools, source: &Path, place: Place, hosts: &[HostName]) -> Result<Copied> {
    let mut input = File::open(source).map_err(|error| err!(Io, "{error}"))?;
    if tools.judge_place(&place).await? == Verdict::Skip {
        return Ok(Copied::Skipped);
    }
    let metadata = input.metadata().map_err(|error| err!(Io, "{error}"))?;
    let landing = Landing::create(tools, place, metadata.mode(), hosts).await?;
    let done = copy_in(&tools.client, landing.handle, &mut input, &tools.bar).await;
    landing.finish(done, Some(Kept::from(&metadata))).await
}

async fn put_stdin(tools: &Tools, place: Place, hosts: &[HostName]) -> Result<Copied> {
    if tools.judge_place(&place).await? == Verdict::Skip {
        return Ok(Copied::Skipped);
    }
    let landing = Landing::create(tools, place, 0o666, hosts).await?;
    let done = copy_in(&tools.client, landing.handle, &mut std::io::stdin(), &tools.bar).await;
    landing.finish(done, None).await
}

/// Copies until the end of the input. Returns the number of bytes.
async fn copy_in(client: &Client, handle: Handle, input: &mut (impl Read + Send), bar: &ProgressBar) -> Result<u64> {
    let mut offset = 0;
    loop {
        // A pipe or a terminal may block for long, and the client's own tasks go on meanwhile.
        let buffer = tokio::task::block_in_place(|| fill(input)).map_err(|error| err!(Io, "reading: {error}"))?;
        if buffer.is_empty() {
            return Ok(offset);
        }
        let len = buffer.len() as u64;
        client.write(handle, offset, Bytes::from(buffer)).await?;
        offset += len;
        bar.inc(len);
    }
}

/// The next bytes of the input: a whole step, or less at its end.
fn fill(input: &mut impl Read) -> std::io::Result<Vec<u8>> {
    let mut buffer = Vec::with_capacity(STEP as usize);
    input.take(u64::from(STEP)).read_to_end(&mut buffer)?;
    Ok(buffer)
}

/// Bytes in the files of a local tree, for the progress bar; the copy itself finds files that cannot be read.
fn local_bytes(path: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(path) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => local_bytes(&entry.path()),
            Ok(metadata) if metadata.is_file() => metadata.len(),
            _ => 0,
        })
        .sum()
}
