//! `ebb fs cp`: within the file system.

use std::sync::Arc;

use ebb_api::path::EbbPath;
use ebb_client::{Access, CopyRange};
use ebb_types::{Attr, ErrorKind, FileKind, Result, bail};

use super::landing::{Landing, Place, Verdict};
use super::tally::Tally;
use super::{Copied, CopyArgs, Job, Kept, Tools};
use crate::fs::{Session, walk};

/// Most bytes of one request to copy.
const PART: u64 = 64 << 20;

/// A file or a symbolic link to copy.
struct CopyJob {
    source: EbbPath,
    attr: Attr,
    place: Place,
}

impl Job for CopyJob {
    fn label(&self) -> String {
        self.source.to_string()
    }

    async fn run(self, tools: Arc<Tools>) -> Result<Copied> {
        match self.attr.kind {
            FileKind::Symlink => {
                let target = tools.client.read_link(&tools.credentials, self.attr.inode).await?;
                tools.link(&self.place, &target).await
            }
            _ => copy_file(&tools, &self.attr, self.place).await,
        }
    }
}

impl Session {
    /// Copies files. False: something was not copied.
    pub(in crate::fs) async fn cp(&self, sources: &[EbbPath], target: &EbbPath, args: CopyArgs) -> Result<bool> {
        let into = self.caller.find(target).await?.is_some_and(|attr| attr.kind == FileKind::Directory);
        if sources.len() > 1 && !into {
            bail!(NotDirectory, "{target} is not a directory: several files go only into one");
        }
        let target_of = |source: &EbbPath| if into { target.join(source.last()) } else { target.clone() };
        if let [source] = sources {
            let attr = self.caller.resolve(source).await?;
            if attr.kind != FileKind::Directory {
                let tools = self.tools(args.rules(), self.output.byte_bar(attr.size, &format!("cp {source}")));
                let target = target_of(source);
                let place = self.place(&target).await?;
                let done = copy_file(&tools, &attr, place).await;
                tools.bar.finish_and_clear();
                return Ok(self.one(source.to_string(), done.map_err(|error| error.context(&target))?));
            }
        }
        let mut tally = Tally::default();
        for source in sources {
            if let Err(error) = self.cp_tree(source, &target_of(source), args, &mut tally).await {
                tally.add(self.output, source.to_string(), Err(error));
            }
        }
        Ok(tally.report(self.output))
    }

    pub(super) async fn cp_tree(
        &self,
        source: &EbbPath,
        target: &EbbPath,
        args: CopyArgs,
        tally: &mut Tally,
    ) -> Result<()> {
        let top = self.caller.resolve(source).await?;
        let mut found = Vec::new();
        if top.kind == FileKind::Directory {
            if !args.recursive {
                bail!(IsDirectory, "a directory: give -r to copy it with all below");
            }
            if target.below(source).is_some() {
                bail!(Invalid, "{target} is within {source}: a tree cannot be copied into itself");
            }
            walk::walk(self, source, |path, attr| found.push((path.clone(), *attr))).await?;
        } else {
            found.push((source.clone(), top));
        }
        let total = found.iter().map(|(_, attr)| attr.size).sum();
        let tools = self.tools(args.rules(), self.output.byte_bar(total, &format!("cp {source}")));
        let mut jobs = Vec::new();
        for (path, attr) in found {
            let below = path.below(source).unwrap_or_default();
            let copy = if below.is_empty() { target.clone() } else { target.join(below) };
            let done = match attr.kind {
                FileKind::Directory => self.make_copy_dir(&copy, &attr, tally).await,
                FileKind::File | FileKind::Symlink => {
                    self.place(&copy).await.map(|place| jobs.push(CopyJob { source: path.clone(), attr, place }))
                }
                _ => {
                    tally.leave_out(self.output, &path.to_string());
                    Ok(())
                }
            };
            if let Err(error) = done {
                tally.add(self.output, path.to_string(), Err(error));
            }
        }
        self.copy_all(&tools, jobs, tally).await;
        tools.bar.finish_and_clear();
        Ok(())
    }

    async fn make_copy_dir(&self, copy: &EbbPath, attr: &Attr, tally: &mut Tally) -> Result<()> {
        let place = self.place(copy).await?;
        let (_, is_new) = self.ensure_directory(&place, attr.mode).await?;
        tally.directories += u64::from(is_new);
        Ok(())
    }
}

async fn copy_file(tools: &Tools, attr: &Attr, place: Place) -> Result<Copied> {
    if attr.kind != FileKind::File {
        bail!(Invalid, "not a regular file");
    }
    match tools.client.lookup(&tools.credentials, place.parent, &place.name).await {
        Ok(found) if found.inode == attr.inode => bail!(Invalid, "source and target are the same file"),
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    if tools.judge_place(&place).await? == Verdict::Skip {
        return Ok(Copied::Skipped);
    }
    let (input, opened) = tools.client.open(&tools.credentials, attr.inode, Access::Read).await?;
    let copied = match Landing::create(tools, place, attr.mode, &[]).await {
        Ok(landing) => {
            let mut offset = 0;
            let done = loop {
                let len = (opened.size - offset).min(PART);
                if len == 0 {
                    break Ok(offset);
                }
                let target = landing.handle;
                let part = CopyRange { source: input, source_offset: offset, target, target_offset: offset, len };
                match tools.client.copy_range(part).await {
                    Ok(0) => break Ok(offset),
                    Ok(copied) => {
                        offset += copied;
                        tools.bar.inc(copied);
                    }
                    Err(error) => break Err(error),
                }
            };
            landing.finish(done, Some(Kept::from(attr))).await
        }
        Err(error) => Err(error),
    };
    tools.client.close(input).await;
    copied
}
