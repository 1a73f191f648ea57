//! `ebb fs put`, `get`, `getmerge`, `cp`, and `mv` between datasets: copies into, out of and within the file system.
//!
//! - A copy has no name until it is whole and synced: whoever looks sees the old file, no file or the new one. If the
//!   command fails or is killed, the part that was copied goes with it; see [`landing`] and [`local`].
//! - A file that exists stays, unless the rules say otherwise.
//! - Of several files, each stands for itself: a failure is reported at once, the others are copied, and the counts at
//!   the end tell what was done.

mod across;
mod get;
mod landing;
mod local;
mod merge;
mod put;
mod tally;
mod within;

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use clap::Args;
use ebb_client::Client;
use ebb_types::{Attr, Credentials, Result, WallTime, err};
use indicatif::ProgressBar;
use tokio::task::JoinSet;

use super::Session;
pub use merge::MergeArgs;
use tally::Tally;

/// Files copied side by side: one alone leaves the master and the disks idle in turn.
const FILES_AT_A_TIME: usize = 16;

/// Options of all copies.
#[derive(Clone, Copy, Debug, Args)]
pub struct CopyArgs {
    /// Copy directories with everything below them.
    #[arg(short, long)]
    recursive: bool,
    /// Replace files that exist. Each one stays as it is until its successor is complete.
    #[arg(short, long, conflicts_with = "no_clobber")]
    force: bool,
    /// Skip files that exist.
    #[arg(short, long)]
    no_clobber: bool,
    /// Keep times and permission bits; as root, also owner and group.
    #[arg(short, long)]
    preserve: bool,
}

/// What a copy does if its target exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Existing {
    /// Fails.
    Refuse,
    /// Takes its place.
    Replace,
    /// Copies nothing.
    Skip,
}

/// Whether a copy gets the attributes of its source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Attributes {
    /// Permission bits, as the umask allows.
    Mode,
    /// Times and all permission bits too; as root, owner and group.
    All,
}

/// The rules of one command.
#[derive(Clone, Copy, Debug)]
struct Rules {
    existing: Existing,
    attributes: Attributes,
}

impl CopyArgs {
    fn rules(self) -> Rules {
        let existing = match (self.force, self.no_clobber) {
            (true, _) => Existing::Replace,
            (false, true) => Existing::Skip,
            (false, false) => Existing::Refuse,
        };
        Rules { existing, attributes: if self.preserve { Attributes::All } else { Attributes::Mode } }
    }
}

/// What every copy of one command needs.
#[derive(Clone)]
struct Tools {
    client: Client,
    credentials: Credentials,
    rules: Rules,
    bar: ProgressBar,
}

/// How the copy of one file ended well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Copied {
    /// A file of so many bytes.
    File(u64),
    /// A symbolic link.
    Link,
    /// The target exists, and stays.
    Skipped,
}

/// The copy of one file or symbolic link.
trait Job: Send + 'static {
    /// Its name in messages.
    fn label(&self) -> String;
    /// Carries it out.
    fn run(self, tools: Arc<Tools>) -> impl Future<Output = Result<Copied>> + Send;
}

impl Session {
    fn tools(&self, rules: Rules, bar: ProgressBar) -> Arc<Tools> {
        Arc::new(Tools { client: self.caller.client.clone(), credentials: self.caller.credentials.clone(), rules, bar })
    }

    /// Carries out jobs, several at a time, and adds each to the tally as it ends.
    async fn copy_all<J: Job>(&self, tools: &Arc<Tools>, jobs: Vec<J>, tally: &mut Tally) {
        let mut running = JoinSet::new();
        for job in jobs {
            if running.len() >= FILES_AT_A_TIME {
                self.add_to_tally(running.join_next().await, tally);
            }
            let (label, tools) = (job.label(), Arc::clone(tools));
            running.spawn(async move { (label, job.run(tools).await) });
        }
        while !running.is_empty() {
            self.add_to_tally(running.join_next().await, tally);
        }
    }

    fn add_to_tally(&self, ended: Option<Result<(String, Result<Copied>), tokio::task::JoinError>>, tally: &mut Tally) {
        match ended {
            None => {}
            Some(Ok((label, done))) => tally.add(self.output, label, done),
            Some(Err(error)) => {
                let error = err!(Internal, "a copy ended early: {error}");
                tally.add(self.output, "a file".to_owned(), Err(error));
            }
        }
    }
}

/// Attributes of a source that a copy may keep.
#[derive(Clone, Copy, Debug)]
struct Kept {
    /// Permission bits with suid, sgid and sticky.
    mode: u32,
    uid: u32,
    gid: u32,
    atime: WallTime,
    mtime: WallTime,
}

impl From<&Attr> for Kept {
    fn from(attr: &Attr) -> Self {
        Self { mode: attr.mode, uid: attr.uid, gid: attr.gid, atime: attr.atime, mtime: attr.mtime }
    }
}

impl From<&Metadata> for Kept {
    fn from(metadata: &Metadata) -> Self {
        let time = |seconds: i64, nanoseconds: i64| WallTime(seconds * 1_000_000_000 + nanoseconds);
        Self {
            mode: metadata.mode() & 0o7777,
            uid: metadata.uid(),
            gid: metadata.gid(),
            atime: time(metadata.atime(), metadata.atime_nsec()),
            mtime: time(metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}
