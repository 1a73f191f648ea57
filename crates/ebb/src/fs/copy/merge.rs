//! `ebb fs getmerge`: several files into one local file.

use std::path::{Path, PathBuf};

use clap::Args;
use ebb_api::path::EbbPath;
use ebb_types::{Attr, Error, FileKind, Result, bail};

use super::local::{self, LocalLanding, Target};
use super::{Copied, CopyArgs, Kept, Tools};
use crate::fs::Session;
use crate::fs::read::must_be_regular;

/// Options of `ebb fs getmerge`.
#[derive(Debug, Args)]
pub struct MergeArgs {
    /// Files, and directories whose files are taken in order of name.
    #[arg(required = true)]
    pub sources: Vec<EbbPath>,
    /// Local file; `-` is standard output.
    pub target: PathBuf,
    /// End each file with a newline.
    #[arg(long, visible_alias = "nl")]
    pub newline: bool,
    /// Replace the local file if it exists.
    #[arg(short, long)]
    pub force: bool,
}

impl Session {
    /// Writes files one after the other into a local file.
    pub(in crate::fs) async fn getmerge(&self, args: &MergeArgs) -> Result<()> {
        let files = self.files_of(&args.sources).await?;
        let rules = CopyArgs { recursive: false, force: args.force, no_clobber: false, preserve: false }.rules();
        let total = files.iter().map(|(_, attr)| attr.size).sum();
        let bar = self.output.byte_bar(total, &format!("getmerge {}", args.target.display()));
        let tools = self.tools(rules, bar);
        let (target, newline) = (args.target.as_path(), args.newline);
        if target.as_os_str() == "-" {
            return merge(&tools, &files, &mut std::io::stdout(), target, newline).await.map(drop);
        }
        let done = match tokio::task::block_in_place(|| local::judge_path(target, rules.existing))? {
            Target::Kept => Copied::Skipped,
            Target::InPlace(mut out) => Copied::File(merge(&tools, &files, &mut out, target, newline).await?),
            Target::Name(path) => {
                let mut landing = LocalLanding::create(&path, 0o666)?;
                let bytes = merge(&tools, &files, landing.file(), target, newline).await?;
                // The rules keep no attributes, so it does not matter of which file these are.
                landing.finish(&path, rules, &Kept::from(&files[0].1), bytes)?
            }
        };
        tools.bar.finish_and_clear();
        self.one(args.target.display().to_string(), done);
        Ok(())
    }

    /// The files, and those in the directories.
    async fn files_of(&self, sources: &[EbbPath]) -> Result<Vec<(EbbPath, Attr)>> {
        let mut files = Vec::new();
        for source in sources {
            let attr = self.caller.resolve(source).await?;
            if attr.kind != FileKind::Directory {
                files.push((source.clone(), must_be_regular(source, attr)?));
                continue;
            }
            let mut entries =
                self.caller.entries(attr.inode).await.map_err(|error| self.caller.explain(error, source))?;
            entries.sort_by(|one, other| one.name.cmp(&other.name));
            let inside = entries.into_iter().filter_map(|entry| Some((source.join(&entry.name), entry.attr?)));
            files.extend(inside.filter(|(_, attr)| attr.kind == FileKind::File));
        }
        if files.is_empty() {
            bail!(NotFound, "there is no file to merge");
        }
        Ok(files)
    }
}

async fn merge(
    tools: &Tools,
    files: &[(EbbPath, Attr)],
    out: &mut (impl std::io::Write + Send),
    target: &Path,
    newline: bool,
) -> Result<u64> {
    let mut bytes = 0;
    for (path, attr) in files {
        bytes += super::get::read_to(tools, attr, out, target).await.map_err(|error| error.context(path))?;
        if newline {
            out.write_all(b"\n").map_err(|error| Error::from_io(&error, target.display()))?;
            bytes += 1;
        }
    }
    Ok(bytes)
}
