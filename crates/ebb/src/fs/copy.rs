//! `ebb fs put`, `get`, `cp`: into, out of and within the file system, with a progress bar on long copies.

use std::fs::{self, File, Metadata};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use ebb_cli::path::{EbbPath, os};
use ebb_client::{Access, Client, CopyRange, Created, Handle, IfExists, NewFile, NewName, SetAttr, SetTime};
use ebb_types::{Attr, Credentials, Error, FileKind, HostName, InodeId, Result, WallTime, bail, err};
use indicatif::ProgressBar;
use tokio::task::JoinSet;

use super::{STEP, Session, umask, walk};

/// Files copied side by side: one alone leaves the master and the disks idle in turn.
const FILES_AT_A_TIME: usize = 16;

/// One file to copy in.
struct PutJob {
    source: PathBuf,
    parent: InodeId,
    name: Vec<u8>,
    /// Where first copies go; none: as the layout says.
    hosts: Vec<HostName>,
}

impl Session {
    pub(super) async fn put(
        &self,
        sources: &[PathBuf],
        target: &EbbPath,
        recursive: bool,
        hosts: &[String],
    ) -> Result<()> {
        let hosts = self.known_hosts(hosts)?;
        let into = self.find(target).await?.is_some_and(|attr| attr.kind == FileKind::Directory);
        if sources.len() > 1 && !into {
            bail!(NotDirectory, "{target} is not a directory: several files go only into one");
        }
        for source in sources {
            if source.as_os_str() == "-" {
                self.put_stdin(target, &hosts).await?;
                continue;
            }
            let metadata = fs::metadata(source).map_err(|error| Error::from_io(&error, source.display()))?;
            let last = source.canonicalize().ok().and_then(|path| path.file_name().map(|last| last.to_owned()));
            let path = match last {
                Some(last) if into => target.join(last.as_bytes()),
                _ => target.clone(),
            };
            if metadata.is_dir() && !recursive {
                bail!(IsDirectory, "{} is a directory: give -r to copy it with all below", source.display());
            }
            self.put_tree(source, &metadata, &path, &hosts).await?;
        }
        Ok(())
    }

    /// Hosts by name; `Invalid` for one without a node, on which nothing could lie.
    fn known_hosts(&self, names: &[String]) -> Result<Vec<HostName>> {
        let nodes = self.client.nodes();
        if let Some(strange) = names.iter().find(|name| !nodes.iter().any(|node| node.host == **name)) {
            let known: Vec<&str> = nodes.iter().map(|node| node.host.as_str()).collect();
            bail!(Invalid, "--hosts {strange}: no node is there; nodes are on {}", known.join(", "));
        }
        Ok(names.iter().map(|name| HostName::new(name.clone())).collect())
    }

    async fn put_stdin(&self, target: &EbbPath, hosts: &[HostName]) -> Result<()> {
        let (parent, name) = self.parent(target).await?;
        let (handle, ..) = create(&self.client, &self.credentials, parent, name, 0o666, hosts).await?;
        let done = copy_in(&self.client, handle, &mut std::io::stdin().lock(), &ProgressBar::hidden()).await;
        finish(&self.client, handle, done).await.map_err(|error| error.context(target))
    }

    async fn put_tree(&self, source: &Path, metadata: &Metadata, target: &EbbPath, hosts: &[HostName]) -> Result<()> {
        let total = if metadata.is_dir() { local_bytes(source) } else { metadata.len() };
        let bar = self.output.byte_bar(total, &format!("put {}", source.display()));
        let mut jobs = Vec::new();
        if metadata.is_dir() {
            self.put_directories(source, target, hosts, &mut jobs).await?;
        } else {
            let (parent, name) = self.parent(target).await?;
            jobs.push(PutJob { source: source.to_owned(), parent, name: name.to_vec(), hosts: hosts.to_vec() });
        }
        let mut running = JoinSet::new();
        let mut result = Ok(());
        for job in jobs {
            if running.len() >= FILES_AT_A_TIME {
                result = result.and(joined(running.join_next().await));
            }
            if result.is_err() {
                break;
            }
            let (client, credentials, bar) = (self.client.clone(), self.credentials.clone(), bar.clone());
            running.spawn(async move {
                put_file(&client, &credentials, &job, &bar).await.map_err(|error| error.context(job.source.display()))
            });
        }
        while let Some(ended) = running.join_next().await {
            result = result.and(joined(Some(ended)));
        }
        bar.finish_and_clear();
        result
    }

    /// Makes the directories and symbolic links of a local tree, and lists its files.
    async fn put_directories(
        &self,
        source: &Path,
        target: &EbbPath,
        hosts: &[HostName],
        jobs: &mut Vec<PutJob>,
    ) -> Result<()> {
        let mut pending = vec![(source.to_owned(), target.clone())];
        while let Some((directory, path)) = pending.pop() {
            if self.find(&path).await?.is_none() {
                self.make_dir(&path).await?;
            }
            let inode = self.resolve(&path).await?.inode;
            let entries = fs::read_dir(&directory).map_err(|error| Error::from_io(&error, directory.display()))?;
            for entry in entries {
                let entry = entry.map_err(|error| Error::from_io(&error, directory.display()))?;
                let local = entry.path();
                let file_type = entry.file_type().map_err(|error| Error::from_io(&error, local.display()))?;
                let name = entry.file_name();
                if file_type.is_dir() {
                    pending.push((local, path.join(name.as_bytes())));
                } else if file_type.is_symlink() {
                    let link = fs::read_link(&local).map_err(|error| Error::from_io(&error, local.display()))?;
                    self.client
                        .symlink(&self.credentials, inode, name.as_bytes(), link.as_os_str().as_bytes())
                        .await
                        .map_err(|error| error.context(local.display()))?;
                } else if file_type.is_file() {
                    let name = name.as_bytes().to_vec();
                    jobs.push(PutJob { source: local, parent: inode, name, hosts: hosts.to_vec() });
                } else {
                    self.output.warn(&format!("{}: neither file, directory nor link: left out", local.display()));
                }
            }
        }
        Ok(())
    }

    pub(super) async fn get(&self, source: &EbbPath, target: &Path, recursive: bool) -> Result<()> {
        if target.as_os_str() == "-" {
            return self.cat(std::slice::from_ref(source)).await;
        }
        let attr = self.resolve(source).await?;
        let target = if target.is_dir() { target.join(os(source.last())) } else { target.to_owned() };
        if attr.kind != FileKind::Directory {
            let bar = self.output.byte_bar(attr.size, &format!("get {source}"));
            let done = self.get_file(source, &attr, &target, &bar).await;
            bar.finish_and_clear();
            return done;
        }
        if !recursive {
            bail!(IsDirectory, "{source} is a directory: give -r to copy it with all below");
        }
        let mut found = Vec::new();
        walk::walk(self, source, |path, attr| found.push((path.clone(), *attr))).await?;
        let bar = self.output.byte_bar(found.iter().map(|(_, attr)| attr.size).sum(), &format!("get {source}"));
        for (path, attr) in &found {
            let below = path.below(source).unwrap_or_default();
            let local = if below.is_empty() { target.clone() } else { target.join(os(below)) };
            match attr.kind {
                FileKind::Directory => make_local_dir(&local, attr.mode)?,
                FileKind::File => self.get_file(path, attr, &local, &bar).await?,
                FileKind::Symlink => {
                    let link = self.client.read_link(&self.credentials, attr.inode).await?;
                    std::os::unix::fs::symlink(os(&link), &local)
                        .map_err(|error| Error::from_io(&error, local.display()))?;
                }
                _ => self.output.warn(&format!("{path}: neither file, directory nor link: left out")),
            }
        }
        bar.finish_and_clear();
        Ok(())
    }

    async fn get_file(&self, path: &EbbPath, attr: &Attr, local: &Path, bar: &ProgressBar) -> Result<()> {
        let failed = |error: std::io::Error| Error::from_io(&error, local.display());
        let mut out = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(attr.mode & 0o777)
            .open(local)
            .map_err(failed)?;
        self.read_whole(path, |data| {
            bar.inc(data.len() as u64);
            out.write_all(data).map_err(failed)
        })
        .await?;
        Ok(())
    }

    pub(super) async fn cp(&self, source: &EbbPath, target: &EbbPath, recursive: bool) -> Result<()> {
        let attr = self.resolve(source).await?;
        let target = self.target_in_directory(source, target).await?;
        if attr.kind != FileKind::Directory {
            return self.cp_file(source, &attr, &target).await;
        }
        if !recursive {
            bail!(IsDirectory, "{source} is a directory: give -r to copy it with all below");
        }
        if target.below(source).is_some() {
            bail!(Invalid, "{target} is within {source}: a tree cannot be copied into itself");
        }
        let mut found = Vec::new();
        walk::walk(self, source, |path, attr| found.push((path.clone(), *attr))).await?;
        for (path, attr) in &found {
            let below = path.below(source).unwrap_or_default();
            let copy = if below.is_empty() { target.clone() } else { target.join(below) };
            match attr.kind {
                FileKind::Directory => {
                    if self.find(&copy).await?.is_none() {
                        self.make_dir(&copy).await?;
                    }
                }
                FileKind::File => self.cp_file(path, attr, &copy).await?,
                FileKind::Symlink => {
                    let link = self.client.read_link(&self.credentials, attr.inode).await?;
                    let (parent, name) = self.parent(&copy).await?;
                    self.client.symlink(&self.credentials, parent, name, &link).await?;
                }
                _ => self.output.warn(&format!("{path}: neither file, directory nor link: left out")),
            }
        }
        Ok(())
    }

    async fn cp_file(&self, source: &EbbPath, attr: &Attr, target: &EbbPath) -> Result<()> {
        let (parent, name) = self.parent(target).await?;
        if self.find(target).await?.is_some_and(|existing| existing.inode == attr.inode) {
            bail!(Invalid, "{source} and {target} are the same file");
        }
        let (input, _) = self.client.open(&self.credentials, attr.inode, Access::Read).await?;
        let opened = create(&self.client, &self.credentials, parent, name, attr.mode & 0o777, &[]).await;
        let (output, ..) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.client.close(input).await;
                return Err(error.context(target));
            }
        };
        let bar = self.output.byte_bar(attr.size, &format!("cp {source}"));
        let mut done = Ok(());
        let mut offset = 0;
        while done.is_ok() && offset < attr.size {
            let len = (attr.size - offset).min(64 << 20);
            let part = CopyRange { source: input, source_offset: offset, target: output, target_offset: offset, len };
            match self.client.copy_range(part).await {
                Ok(0) => break,
                Ok(copied) => {
                    offset += copied;
                    bar.inc(copied);
                }
                Err(error) => done = Err(error.context(source)),
            }
        }
        bar.finish_and_clear();
        self.client.close(input).await;
        finish(&self.client, output, done).await
    }
}

/// Opens a file for writing from its start, made if it is not there.
async fn create(
    client: &Client,
    credentials: &Credentials,
    parent: InodeId,
    name: &[u8],
    mode: u32,
    hosts: &[HostName],
) -> Result<(Handle, Attr)> {
    let name = NewName { parent, name, mode, umask: umask() };
    let new = NewFile { name, if_exists: IfExists::Open, access: Access::Write, hosts };
    let Created { handle, attr, existed } = client.create(credentials, new).await?;
    if existed && attr.size > 0 {
        let set = SetAttr { size: Some(0), by_handle: true, ..SetAttr::default() };
        if let Err(error) = client.set_attr(credentials, attr.inode, set).await {
            client.close(handle).await;
            return Err(error);
        }
    }
    Ok((handle, attr))
}

/// Closes a written file. A command's success means that the data is safe, so it syncs first.
async fn finish(client: &Client, handle: Handle, done: Result<()>) -> Result<()> {
    let synced = match done {
        Ok(()) => client.fsync(handle).await,
        Err(error) => Err(error),
    };
    client.close(handle).await;
    synced
}

async fn put_file(client: &Client, credentials: &Credentials, job: &PutJob, bar: &ProgressBar) -> Result<()> {
    let mut input = File::open(&job.source).map_err(|error| err!(Io, "{error}"))?;
    let metadata = input.metadata().map_err(|error| err!(Io, "{error}"))?;
    let (handle, attr) =
        create(client, credentials, job.parent, &job.name, metadata.mode() & 0o777, &job.hosts).await?;
    let mut done = copy_in(client, handle, &mut input, bar).await;
    if done.is_ok() {
        let mtime = WallTime(metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec());
        let set = SetAttr { mtime: Some(SetTime::At(mtime)), by_handle: true, ..SetAttr::default() };
        done = client.set_attr(credentials, attr.inode, set).await.map(drop);
    }
    finish(client, handle, done).await
}

async fn copy_in(client: &Client, handle: Handle, input: &mut impl Read, bar: &ProgressBar) -> Result<()> {
    let mut offset = 0;
    loop {
        let mut buffer = vec![0; STEP as usize];
        let mut filled = 0;
        while filled < buffer.len() {
            match input.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(err!(Io, "reading: {error}")),
            }
        }
        if filled == 0 {
            return Ok(());
        }
        buffer.truncate(filled);
        client.write(handle, offset, Bytes::from(buffer)).await?;
        offset += filled as u64;
        bar.inc(filled as u64);
    }
}

fn joined(ended: Option<Result<Result<()>, tokio::task::JoinError>>) -> Result<()> {
    match ended {
        Some(Ok(done)) => done,
        Some(Err(error)) => Err(err!(Internal, "a copy ended early: {error}")),
        None => Ok(()),
    }
}

fn make_local_dir(path: &Path, mode: u32) -> Result<()> {
    match fs::DirBuilder::new().mode(mode | 0o700).create(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(Error::from_io(&error, path.display())),
    }
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
