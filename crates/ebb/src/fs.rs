//! `ebb fs`: files without a mount.

mod acl;
mod append;
mod change;
mod command;
mod copy;
mod each;
mod find;
mod glob;
mod list;
mod locate;
mod mode;
mod owner;
mod read;
mod remove;
mod rename;
pub mod trash;
mod usage;
mod walk;

use ebb_cli::explain::explain;
use ebb_cli::output::Output;
use ebb_cli::path::{EbbPath, text};
use ebb_cli::signals::Signals;
use ebb_cli::{Context, admin};
use ebb_client::Client;
use ebb_types::{Attr, Credentials, Error, ErrorKind, FileKind, HostName, InodeId, Result, bail, err};

pub use command::FsCommand;
use owner::OwnerChange;
pub use read::STEP;
use remove::Removing;

/// A session for one command.
pub struct Session {
    /// The client.
    pub client: Client,
    /// The user on whose behalf the command runs.
    pub credentials: Credentials,
    /// How to print.
    pub output: Output,
}

/// Carries a command out, and ends the session in order, so that everything is committed. A signal ends the command and
/// then the session; a second signal ends the process at once. False: a part of the command was not done.
pub async fn run(context: &Context, command: FsCommand) -> Result<bool> {
    let mut signals = Signals::listen()?;
    let cluster = context.cluster()?;
    let session = Session {
        client: admin::client(&cluster, &HostName::new("client"), "cli").await?,
        credentials: admin::credentials(),
        output: context.output,
    };
    let client = session.client.clone();
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
                let gid = owner::gid_of(&group).map_err(|why| err!(Invalid, "{why}"))?;
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

    /// An error about `path`, for people.
    pub fn explain(&self, error: Error, path: &EbbPath) -> Error {
        explain(error, path, |inode| self.client.kept_path(inode))
    }

    /// The inode of an absolute path, links followed.
    pub async fn resolve(&self, path: &EbbPath) -> Result<Attr> {
        match self.client.resolve(&self.credentials, path.as_bytes()).await {
            Ok(attr) => Ok(attr),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(self.explain_missing(error, path).await),
            Err(error) if error.kind() == ErrorKind::NotDirectory => Err(self.explain_not_directory(error, path).await),
            Err(error) => Err(self.explain(error, path)),
        }
    }

    /// That nothing is at `path`: no such name, or a symbolic link that leads nowhere.
    async fn explain_missing(&self, error: Error, path: &EbbPath) -> Error {
        if let Ok(link) = self.client.resolve_link(&self.credentials, path.as_bytes()).await
            && link.kind == FileKind::Symlink
            && let Ok(target) = self.client.read_link(&self.credentials, link.inode).await
        {
            return err!(NotFound, "{path} points to {}, which does not exist", text(&target));
        }
        self.explain(error, path)
    }

    /// The name before the last one that is no directory.
    async fn explain_not_directory(&self, error: Error, path: &EbbPath) -> Error {
        let mut at = path.clone();
        while let Ok((parent, _)) = at.split() {
            match self.client.resolve(&self.credentials, parent.as_bytes()).await {
                // It was asked for as a directory because of the slash at its end.
                Err(error) if error.kind() == ErrorKind::NotDirectory => at = parent,
                _ => break,
            }
        }
        Error::new(error.kind(), format!("{} is not a directory", at.shown()))
    }

    /// The inode of an absolute path, the last link not followed.
    pub async fn resolve_link(&self, path: &EbbPath) -> Result<Attr> {
        self.client.resolve_link(&self.credentials, path.as_bytes()).await.map_err(|error| self.explain(error, path))
    }

    /// The attributes of an absolute path; none if there is no such name.
    pub async fn find(&self, path: &EbbPath) -> Result<Option<Attr>> {
        match self.resolve(path).await {
            Ok(attr) => Ok(Some(attr)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The directory that a name is or will be in, and the name.
    pub async fn parent<'a>(&self, path: &'a EbbPath) -> Result<(InodeId, &'a [u8])> {
        let (parent, last) = path.split()?;
        let attr = self.resolve(&parent).await?;
        if attr.kind != FileKind::Directory {
            bail!(NotDirectory, "{parent} is not a directory");
        }
        Ok((attr.inode, last))
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
