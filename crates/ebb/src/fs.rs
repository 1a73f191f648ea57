//! `ebb fs`: files without a mount.

mod acl;
mod append;
mod change;
mod command;
mod copy;
mod each;
mod find;
mod glob;
pub(crate) mod list;
mod locate;
mod mode;
mod owner;
mod read;
mod remove;
mod rename;
pub mod trash;
mod usage;
mod walk;

use ebb_api::{Caller, EbbPath, users};
use ebb_cli::output::Output;
use ebb_cli::signals::Signals;
use ebb_cli::{Context, admin};
use ebb_types::{Result, err};

pub use command::FsCommand;
use owner::OwnerChange;
pub use read::STEP;
use remove::Removing;

/// A session for one command.
pub struct Session {
    /// The user on whose behalf the command runs.
    pub caller: Caller,
    /// How to print.
    pub output: Output,
}

/// Carries a command out, and ends the session in order, so that everything is committed. A signal ends the command and
/// then the session; a second signal ends the process at once. False: a part of the command was not done.
pub async fn run(context: &Context, command: FsCommand) -> Result<bool> {
    let mut signals = Signals::listen()?;
    let cluster = context.cluster()?;
    let session = Session {
        caller: Caller { client: admin::operator(&cluster).await?, credentials: admin::credentials() },
        output: context.output,
    };
    let client = session.caller.client.clone();
    // A task of its own: it may block in a read or a write of this machine, and signals are heard all the same.
    let mut work = tokio::spawn(async move { session.dispatch(&cluster, command).await });
    let done = tokio::select! {
        done = &mut work => Ok(done.unwrap_or_else(|error| Err(err!(Internal, "the command ended early: {error}")))),
        signal = signals.next() => {
            work.abort();
            Err(signal)
        }
    };
    let ended = tokio::select! {
        ended = client.disconnect() => ended,
        signal = signals.next() => signal.end_process(),
    };
    match done {
        Ok(done) => done.and_then(|whole| ended.map(|()| whole)),
        Err(signal) => signal.end_process(),
    }
}

impl Session {
    /// Carries a command out. False: a part of it was not done, or a tested condition does not hold.
    async fn dispatch(&self, cluster: &ebb_cli::directory::ClusterDir, command: FsCommand) -> Result<bool> {
        use FsCommand as C;
        let done = match command {
            C::Ls(args) => self.ls(&args).await,
            C::Cat { paths } => self.cat(&self.expand(paths).await?).await,
            C::Head(args) => self.head(&args).await,
            C::Tail(args) => self.tail(&args).await,
            C::Put { sources, target, copy, hosts } => return self.put(&sources, &target, copy, &hosts).await,
            C::Get { sources, target, copy } => return self.get(&self.expand(sources).await?, &target, copy).await,
            C::Getmerge(mut args) => {
                args.sources = self.expand(args.sources).await?;
                self.getmerge(&args).await
            }
            C::Cp { sources, target, copy } => return self.cp(&self.expand(sources).await?, &target, copy).await,
            C::Append { sources, target } => self.append(&sources, &target).await,
            C::Mv { sources, target } => self.mv(&self.expand(sources).await?, &target).await,
            C::Rm { paths, recursive, force, skip_trash } => {
                let how = Removing { recursive, force, skip_trash };
                return self.rm(&self.expand_if(paths, force).await?, how).await;
            }
            C::Trash { command } => self.trash(&command).await,
            C::Mkdir { paths, parents } => self.mkdir(&paths, parents).await,
            C::Touch { paths, no_create } => self.touch(&paths, no_create).await,
            C::Test(args) => return self.test(&args.path, args.condition).await,
            C::Find { paths, criteria } => self.find_files(&self.expand(paths).await?, &criteria).await,
            C::Stat { paths } => self.stat(&self.expand(paths).await?).await,
            C::Du(args) => self.du(&args).await,
            C::Count(args) => self.count(&args).await,
            C::Df => self.df().await,
            C::Ln { target, link, symbolic } => self.ln(&target, &link, symbolic).await,
            C::Chmod { mode, paths, recursive } => {
                return self.chmod(&mode, &self.expand(paths).await?, recursive).await;
            }
            C::Chown { owner, paths, recursive } => {
                return self.chown(owner, &self.expand(paths).await?, recursive).await;
            }
            C::Chgrp { group, paths, recursive } => {
                let gid = users::gid_of(&group).map_err(|why| err!(Invalid, "{why}"))?;
                let change = OwnerChange { uid: None, gid: Some(gid) };
                return self.chown(change, &self.expand(paths).await?, recursive).await;
            }
            C::Getfacl { paths, recursive } => self.getfacl(&self.expand(paths).await?, recursive).await,
            C::Setfacl(args) => return self.setfacl(&args, &self.expand(args.paths.clone()).await?).await,
            C::Locations { path, why } => self.locations(cluster, &path, why).await,
            C::Checksum { paths } => self.checksum(&self.expand(paths).await?).await,
        };
        done.map(|()| true)
    }

    /// The result of a command for programs: nothing for people.
    fn answer(&self, value: impl FnOnce() -> serde_json::Value) {
        if self.output.json() {
            self.output.print_json(&value());
        }
    }
}

/// Paths for programs.
fn shown(paths: &[EbbPath]) -> Vec<String> {
    paths.iter().map(ToString::to_string).collect()
}

/// The process's umask. It can only be read by setting it.
pub fn umask() -> u32 {
    let old = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    rustix::process::umask(old);
    old.as_raw_mode()
}
