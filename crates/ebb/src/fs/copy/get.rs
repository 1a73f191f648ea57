//! `ebb fs get`: from the file system to this machine.

use std::fs;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ebb_api::path::{EbbPath, os};
use ebb_types::{Attr, Error, FileKind, Result, bail, err};

use super::local::{self, LocalLanding, Target};
use super::tally::Tally;
use super::{Copied, CopyArgs, Existing, Job, Kept, Tools};
use crate::fs::{STEP, Session, walk};

/// A file or a symbolic link to copy to this machine.
struct GetJob {
    source: EbbPath,
    attr: Attr,
    target: PathBuf,
}

impl Job for GetJob {
    fn label(&self) -> String {
        self.source.to_string()
    }

    async fn run(self, tools: Arc<Tools>) -> Result<Copied> {
        match self.attr.kind {
            FileKind::Symlink => get_link(&tools, &self.attr, &self.target).await,
            _ => get_file(&tools, &self.attr, &self.target).await,
        }
    }
}

impl Session {
    /// Copies files to this machine. False: something was not copied.
    pub(in crate::fs) async fn get(&self, sources: &[EbbPath], target: &Path, args: CopyArgs) -> Result<bool> {
        if target.as_os_str() == "-" {
            return self.cat(sources).await.map(|()| true);
        }
        let into = target.is_dir();
        if sources.len() > 1 && !into {
            bail!(NotDirectory, "{} is not a directory: several files go only into one", target.display());
        }
        let target_of = |source: &EbbPath| if into { target.join(os(source.last())) } else { target.to_owned() };
        if let [source] = sources {
            let attr = self.caller.resolve(source).await?;
            if attr.kind != FileKind::Directory {
                let tools = self.tools(args.rules(), self.output.byte_bar(attr.size, &format!("get {source}")));
                let target = target_of(source);
                let done = get_file(&tools, &attr, &target).await;
                tools.bar.finish_and_clear();
                return Ok(self.one(source.to_string(), done.map_err(|error| error.context(target.display()))?));
            }
        }
        let mut tally = Tally::default();
        for source in sources {
            if let Err(error) = self.get_tree(source, &target_of(source), args, &mut tally).await {
                tally.add(self.output, source.to_string(), Err(error));
            }
        }
        Ok(tally.report(self.output))
    }

    async fn get_tree(&self, source: &EbbPath, target: &Path, args: CopyArgs, tally: &mut Tally) -> Result<()> {
        let top = self.caller.resolve(source).await?;
        if top.kind == FileKind::Directory && !args.recursive {
            bail!(IsDirectory, "a directory: give -r to copy it with all below");
        }
        let mut found = Vec::new();
        if top.kind == FileKind::Directory {
            walk::walk(self, source, |path, attr| found.push((path.clone(), *attr))).await?;
        } else {
            found.push((source.clone(), top));
        }
        let total = found.iter().map(|(_, attr)| attr.size).sum();
        let tools = self.tools(args.rules(), self.output.byte_bar(total, &format!("get {source}")));
        let mut jobs = Vec::new();
        for (path, attr) in found {
            let below = path.below(source).unwrap_or_default();
            let local = if below.is_empty() { target.to_owned() } else { target.join(os(below)) };
            match attr.kind {
                FileKind::Directory => match make_local_dir(&local, attr.mode) {
                    Ok(is_new) => tally.directories += u64::from(is_new),
                    Err(error) => tally.add(self.output, path.to_string(), Err(error)),
                },
                FileKind::File | FileKind::Symlink => jobs.push(GetJob { source: path, attr, target: local }),
                _ => tally.leave_out(self.output, &path.to_string()),
            }
        }
        self.copy_all(&tools, jobs, tally).await;
        tools.bar.finish_and_clear();
        Ok(())
    }
}

async fn get_file(tools: &Tools, attr: &Attr, target: &Path) -> Result<Copied> {
    if attr.kind != FileKind::File {
        bail!(Invalid, "not a regular file");
    }
    match tokio::task::block_in_place(|| local::judge_path(target, tools.rules.existing))? {
        Target::Kept => Ok(Copied::Skipped),
        Target::InPlace(mut out) => read_to(tools, attr, &mut out, target).await.map(Copied::File),
        Target::Name(path) => {
            let mut landing = LocalLanding::create(&path, attr.mode)?;
            let bytes = read_to(tools, attr, landing.file(), target).await?;
            landing.finish(&path, tools.rules, &Kept::from(attr), bytes)
        }
    }
}

/// Reads a file from front to back into a local one. Returns the number of bytes.
pub(super) async fn read_to(tools: &Tools, attr: &Attr, out: &mut (impl Write + Send), target: &Path) -> Result<u64> {
    let (handle, _) = tools.client.open(&tools.credentials, attr.inode, ebb_client::Access::Read).await?;
    let mut offset = 0;
    let done = loop {
        match tools.client.read(handle, offset, STEP).await {
            Ok(data) if data.is_empty() => break Ok(offset),
            Ok(data) => {
                offset += data.len() as u64;
                tools.bar.inc(data.len() as u64);
                // A pipe or a terminal may block for long.
                if let Err(error) = tokio::task::block_in_place(|| out.write_all(&data)) {
                    break Err(Error::from_io(&error, target.display()));
                }
            }
            Err(error) => break Err(error),
        }
    };
    tools.client.close(handle).await;
    done
}

async fn get_link(tools: &Tools, attr: &Attr, target: &Path) -> Result<Copied> {
    let failed = |error: std::io::Error| Error::from_io(&error, target.display());
    let link = tools.client.read_link(&tools.credentials, attr.inode).await?;
    let is_there = target.is_symlink() || target.exists();
    match tools.rules.existing {
        Existing::Skip if is_there => return Ok(Copied::Skipped),
        Existing::Refuse if is_there => return Err(super::landing::exists()),
        Existing::Replace if target.is_dir() && !target.is_symlink() => {
            return Err(err!(IsDirectory, "a directory of this name is there"));
        }
        Existing::Replace if is_there => fs::remove_file(target).map_err(failed)?,
        _ => {}
    }
    std::os::unix::fs::symlink(os(&link), target).map_err(failed)?;
    Ok(Copied::Link)
}

/// Makes a directory on this machine. False: it was there.
fn make_local_dir(path: &Path, mode: u32) -> Result<bool> {
    match fs::DirBuilder::new().mode(mode & 0o777 | 0o700).create(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && path.is_dir() => Ok(false),
        Err(error) => Err(Error::from_io(&error, path.display())),
    }
}
