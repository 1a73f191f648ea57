//! `ebb fs`: files without a mount.

mod copy;
mod list;
mod locate;
mod remove;
mod walk;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::Subcommand;
use ebb_cli::output::Output;
use ebb_cli::path::{EbbPath, explain};
use ebb_cli::signals::Signals;
use ebb_cli::{Context, admin};
use ebb_client::{Access, Client, NewName, Rename, RenameMode};
use ebb_types::{Attr, Credentials, FileKind, HostName, InodeId, Result, bail, err};

use copy::CopyArgs;

/// Unit in which the command line reads and writes: the default block.
pub const STEP: u32 = 1 << 20;

#[derive(Debug, Subcommand)]
pub enum FsCommand {
    /// List a directory or a file.
    Ls {
        /// Absolute path.
        #[arg(default_value = "/")]
        path: EbbPath,
        /// Also show mode, links, owner, size and modification time.
        #[arg(short)]
        long: bool,
    },
    /// Print the contents of files.
    Cat {
        /// Files to print.
        #[arg(required = true)]
        paths: Vec<EbbPath>,
    },
    /// Copy files from this machine into the file system.
    Put {
        /// Local files or directories; `-` is standard input.
        #[arg(required = true)]
        sources: Vec<PathBuf>,
        /// Target path. An existing directory receives files and directories under their own names.
        target: EbbPath,
        #[command(flatten)]
        copy: CopyArgs,
        /// Hosts for the first copies of new files, used in turn. Give the hosts of the programs that will read the
        /// files.
        #[arg(long, value_delimiter = ',', value_name = "HOSTS")]
        hosts: Vec<String>,
    },
    /// Copy files or directory trees to this machine.
    Get {
        /// Files or directories to copy.
        #[arg(required = true)]
        sources: Vec<EbbPath>,
        /// Local path; `-` is standard output. An existing directory receives the sources under their own names.
        target: PathBuf,
        #[command(flatten)]
        copy: CopyArgs,
    },
    /// Copy files or directory trees within the file system.
    Cp {
        /// Files or directories to copy.
        #[arg(required = true)]
        sources: Vec<EbbPath>,
        /// Path of the copy. An existing directory receives the sources under their own names.
        target: EbbPath,
        #[command(flatten)]
        copy: CopyArgs,
    },
    /// Rename or move a file or a directory.
    Mv { source: EbbPath, target: EbbPath },
    /// Remove files or directory trees.
    Rm {
        /// Paths to remove.
        #[arg(required = true)]
        paths: Vec<EbbPath>,
        /// Remove directories with everything below them.
        #[arg(short)]
        recursive: bool,
    },
    /// Create a directory.
    Mkdir {
        /// Directory to create.
        path: EbbPath,
        /// Create missing parent directories too. It is no error if the directory exists.
        #[arg(short)]
        parents: bool,
    },
    /// Show the attributes and the dataset of a file or directory.
    Stat { path: EbbPath },
    /// Show the number of bytes, files and directories below a path.
    Du {
        /// Absolute path.
        #[arg(default_value = "/")]
        path: EbbPath,
    },
    /// Show the free and used space of the file system.
    Df,
    /// Create a hard link or, with -s, a symbolic link.
    Ln {
        /// Target of the link: an absolute path, or any text with `-s`.
        target: OsString,
        /// Path of the new link.
        link: EbbPath,
        /// Create a symbolic link.
        #[arg(short)]
        symbolic: bool,
    },
    /// Set permission bits; the mode is octal, such as 644.
    Chmod { mode: String, path: EbbPath },
    /// Show where the replicas of a file's metablocks lie.
    #[command(visible_alias = "blocks")]
    Locations {
        /// File whose metablocks are shown.
        path: EbbPath,
        /// Also say for each metablock why its copies move or do not move.
        #[arg(long)]
        why: bool,
    },
    /// Print the SHA-256 checksums of files.
    Checksum {
        /// Files to read.
        #[arg(required = true)]
        paths: Vec<EbbPath>,
    },
}

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
    /// Carries a command out. False: a part of it was not done.
    async fn dispatch(&self, cluster: &ebb_cli::directory::ClusterDir, command: FsCommand) -> Result<bool> {
        let done = match command {
            FsCommand::Ls { path, long } => self.ls(&path, long).await,
            FsCommand::Cat { paths } => self.cat(&paths).await,
            FsCommand::Put { sources, target, copy, hosts } => return self.put(&sources, &target, copy, &hosts).await,
            FsCommand::Get { sources, target, copy } => return self.get(&sources, &target, copy).await,
            FsCommand::Cp { sources, target, copy } => return self.cp(&sources, &target, copy).await,
            FsCommand::Mv { source, target } => self.mv(&source, &target).await,
            FsCommand::Rm { paths, recursive } => self.rm(&paths, recursive).await,
            FsCommand::Mkdir { path, parents } => self.mkdir(&path, parents).await,
            FsCommand::Stat { path } => self.stat(&path).await,
            FsCommand::Du { path } => self.du(&path).await,
            FsCommand::Df => self.df().await,
            FsCommand::Ln { target, link, symbolic } => self.ln(&target, &link, symbolic).await,
            FsCommand::Chmod { mode, path } => self.chmod(&mode, &path).await,
            FsCommand::Locations { path, why } => self.locations(cluster, &path, why).await,
            FsCommand::Checksum { paths } => self.checksum(&paths).await,
        };
        done.map(|()| true)
    }

    /// The inode of an absolute path, links followed.
    pub async fn resolve(&self, path: &EbbPath) -> Result<Attr> {
        self.client.resolve(&self.credentials, path.as_bytes()).await.map_err(|error| explain(error, path))
    }

    /// The inode of an absolute path, the last link not followed.
    pub async fn resolve_link(&self, path: &EbbPath) -> Result<Attr> {
        self.client.resolve_link(&self.credentials, path.as_bytes()).await.map_err(|error| explain(error, path))
    }

    /// The attributes of an absolute path; none if there is no such name.
    pub async fn find(&self, path: &EbbPath) -> Result<Option<Attr>> {
        match self.resolve(path).await {
            Ok(attr) => Ok(Some(attr)),
            Err(error) if error.kind() == ebb_types::ErrorKind::NotFound => Ok(None),
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

    /// Reads a file from front to back and hands each part on.
    pub async fn read_whole(&self, path: &EbbPath, mut sink: impl FnMut(&[u8]) -> Result<()>) -> Result<u64> {
        let attr = self.resolve(path).await?;
        if attr.kind == FileKind::Directory {
            bail!(IsDirectory, "{path} is a directory");
        }
        if attr.kind != FileKind::File {
            bail!(Invalid, "{path} is not a regular file");
        }
        let (handle, _) = self.client.open(&self.credentials, attr.inode, Access::Read).await?;
        let mut offset = 0;
        let done = loop {
            match self.client.read(handle, offset, STEP).await {
                Ok(data) if data.is_empty() => break Ok(offset),
                Ok(data) => {
                    offset += data.len() as u64;
                    if let Err(error) = sink(&data) {
                        break Err(error);
                    }
                }
                Err(error) => break Err(error.context(path)),
            }
        };
        self.client.close(handle).await;
        done
    }

    async fn mv(&self, source: &EbbPath, target: &EbbPath) -> Result<()> {
        let target = self.target_in_directory(source, target).await?;
        let (source_parent, source_name) = self.parent(source).await?;
        let (target_parent, target_name) = self.parent(&target).await?;
        let rename = Rename { source_parent, source_name, target_parent, target_name, mode: RenameMode::Replace };
        self.client.rename(&self.credentials, rename).await.map_err(|error| error.context(source))
    }

    /// As cp and mv do: a target that is a directory means "in it, under the same name".
    pub async fn target_in_directory(&self, source: &EbbPath, target: &EbbPath) -> Result<EbbPath> {
        match self.find(target).await? {
            Some(attr) if attr.kind == FileKind::Directory => Ok(target.join(source.last())),
            _ => Ok(target.clone()),
        }
    }

    async fn mkdir(&self, path: &EbbPath, parents: bool) -> Result<()> {
        if parents {
            let mut at = EbbPath::new("/")?;
            for part in path.as_bytes().split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
                at = at.join(part);
                match self.find(&at).await? {
                    Some(attr) if attr.kind == FileKind::Directory => {}
                    Some(_) => bail!(NotDirectory, "{at} is not a directory"),
                    None => self.make_dir(&at).await?,
                }
            }
            return Ok(());
        }
        self.make_dir(path).await
    }

    /// Makes one directory.
    pub async fn make_dir(&self, path: &EbbPath) -> Result<()> {
        let (parent, name) = self.parent(path).await?;
        self.client
            .make_dir(&self.credentials, NewName { parent, name, mode: 0o777, umask: umask() })
            .await
            .map(drop)
            .map_err(|error| error.context(path))
    }

    async fn ln(&self, target: &OsStr, link: &EbbPath, symbolic: bool) -> Result<()> {
        let (parent, name) = self.parent(link).await?;
        let done = if symbolic {
            self.client.symlink(&self.credentials, parent, name, target.as_bytes()).await
        } else {
            let target = EbbPath::new(target.as_bytes())?;
            let inode = self.resolve_link(&target).await?.inode;
            self.client.link(&self.credentials, inode, parent, name).await
        };
        done.map(drop).map_err(|error| error.context(link))
    }

    async fn chmod(&self, mode: &str, path: &EbbPath) -> Result<()> {
        let bits = u32::from_str_radix(mode, 8).ok().filter(|bits| *bits <= 0o7777);
        let bits = bits.ok_or_else(|| err!(Invalid, "{mode:?} is not an octal mode like 644"))?;
        let attr = self.resolve(path).await?;
        let set = ebb_client::SetAttr { mode: Some(bits), ..ebb_client::SetAttr::default() };
        self.client.set_attr(&self.credentials, attr.inode, set).await.map(drop).map_err(|error| error.context(path))
    }
}

/// The process's umask. It can only be read by setting it.
pub fn umask() -> u32 {
    let old = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    rustix::process::umask(old);
    old.as_raw_mode()
}
