//! `ebb fs`: files without a mount.

mod copy;
mod list;
mod locate;
mod name;
mod remove;
mod walk;

use std::path::PathBuf;

use clap::Subcommand;
use ebb_client::{Access, Client};
use ebb_types::{Credentials, FileKind, HostName, InodeId, Result, bail, err};
use ebb_wire::pb;

use crate::admin;
use crate::cli::Context;
use crate::output::Output;

/// Unit in which the command line reads and writes: the default block.
pub const STEP: u32 = 1 << 20;

#[derive(Debug, Subcommand)]
pub enum FsCommand {
    /// List a directory or a file.
    Ls {
        /// Absolute path; the root if none is given.
        #[arg(default_value = "/")]
        path: String,
        /// With mode, owner, size and time.
        #[arg(short)]
        long: bool,
    },
    /// Print files.
    Cat {
        #[arg(required = true)]
        paths: Vec<String>,
    },
    /// Copy from this machine.
    Put {
        /// Local files or directories; `-` is standard input.
        #[arg(required = true)]
        sources: Vec<PathBuf>,
        /// Where to.
        target: String,
        /// Directories with all below.
        #[arg(short)]
        recursive: bool,
    },
    /// Copy to this machine.
    Get {
        source: String,
        /// Local path; `-` is standard output.
        target: PathBuf,
        /// A directory with all below.
        #[arg(short)]
        recursive: bool,
    },
    /// Copy within the file system.
    Cp {
        source: String,
        target: String,
        /// A directory with all below.
        #[arg(short)]
        recursive: bool,
    },
    /// Rename.
    Mv { source: String, target: String },
    /// Remove.
    Rm {
        #[arg(required = true)]
        paths: Vec<String>,
        /// Directories with all below.
        #[arg(short)]
        recursive: bool,
    },
    /// Make a directory.
    Mkdir {
        path: String,
        /// With those above it; no error if it exists.
        #[arg(short)]
        parents: bool,
    },
    /// Everything about one inode.
    Stat { path: String },
    /// Bytes and files below a path.
    Du {
        #[arg(default_value = "/")]
        path: String,
    },
    /// Space.
    Df,
    /// Make a link.
    Ln {
        target: String,
        link: String,
        /// Symbolic.
        #[arg(short)]
        symbolic: bool,
    },
    /// Set permission bits (octal).
    Chmod { mode: String, path: String },
    /// Which replica of which metablock lies where.
    #[command(visible_alias = "blocks")]
    Locations { path: String },
    /// SHA-256 of a file's contents.
    Checksum {
        #[arg(required = true)]
        paths: Vec<String>,
    },
}

/// A session for one command.
pub struct Session {
    /// The client.
    pub client: Client,
    /// Who asks.
    pub credentials: Credentials,
    /// How to print.
    pub output: Output,
}

/// Does it, and ends the session cleanly so that everything is committed.
pub async fn run(context: &Context, command: FsCommand) -> Result<()> {
    let cluster = context.cluster()?;
    let session = Session {
        client: admin::client(&cluster, &HostName::new("client"), "cli").await?,
        credentials: admin::credentials(),
        output: context.output,
    };
    let done = session.dispatch(&cluster, command).await;
    let ended = session.client.disconnect().await;
    done.and(ended)
}

impl Session {
    async fn dispatch(&self, cluster: &crate::cluster::config::ClusterDir, command: FsCommand) -> Result<()> {
        match command {
            FsCommand::Ls { path, long } => self.ls(&path, long).await,
            FsCommand::Cat { paths } => self.cat(&paths).await,
            FsCommand::Put { sources, target, recursive } => self.put(&sources, &target, recursive).await,
            FsCommand::Get { source, target, recursive } => self.get(&source, &target, recursive).await,
            FsCommand::Cp { source, target, recursive } => self.cp(&source, &target, recursive).await,
            FsCommand::Mv { source, target } => self.mv(&source, &target).await,
            FsCommand::Rm { paths, recursive } => self.rm(&paths, recursive).await,
            FsCommand::Mkdir { path, parents } => self.mkdir(&path, parents).await,
            FsCommand::Stat { path } => self.stat(&path).await,
            FsCommand::Du { path } => self.du(&path).await,
            FsCommand::Df => self.df().await,
            FsCommand::Ln { target, link, symbolic } => self.ln(&target, &link, symbolic).await,
            FsCommand::Chmod { mode, path } => self.chmod(&mode, &path).await,
            FsCommand::Locations { path } => self.locations(cluster, &path).await,
            FsCommand::Checksum { paths } => self.checksum(&paths).await,
        }
    }

    /// The inode of an absolute path, links followed.
    pub async fn resolve(&self, path: &str) -> Result<pb::Attr> {
        name::check(path)?;
        self.client.resolve(&self.credentials, path.as_bytes(), true).await.map_err(|error| error.context(path))
    }

    /// The inode of an absolute path, the last link not followed.
    pub async fn resolve_link(&self, path: &str) -> Result<pb::Attr> {
        name::check(path)?;
        self.client.resolve(&self.credentials, path.as_bytes(), false).await.map_err(|error| error.context(path))
    }

    /// The same, or none if there is no such name.
    pub async fn find(&self, path: &str) -> Result<Option<pb::Attr>> {
        match self.resolve(path).await {
            Ok(attr) => Ok(Some(attr)),
            Err(error) if error.kind() == ebb_types::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The directory that a name is or will be in, and the name.
    pub async fn parent<'a>(&self, path: &'a str) -> Result<(InodeId, &'a [u8])> {
        let (parent, last) = name::split(path)?;
        let attr = self.resolve(parent).await?;
        if kind(&attr) != FileKind::Directory {
            bail!(NotDirectory, "{parent} is not a directory");
        }
        Ok((InodeId::new(attr.inode), last.as_bytes()))
    }

    /// Reads a file from front to back and hands each part on.
    pub async fn read_whole(&self, path: &str, mut sink: impl FnMut(&[u8]) -> Result<()>) -> Result<u64> {
        let attr = self.resolve(path).await?;
        if kind(&attr) == FileKind::Directory {
            bail!(IsDirectory, "{path} is a directory");
        }
        if kind(&attr) != FileKind::File {
            bail!(Invalid, "{path} is not a regular file");
        }
        let (handle, _) = self.client.open(&self.credentials, InodeId::new(attr.inode), Access::Read).await?;
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

    async fn mv(&self, source: &str, target: &str) -> Result<()> {
        let target = self.target_in_directory(source, target).await?;
        let (source_parent, source_name) = self.parent(source).await?;
        let (target_parent, target_name) = self.parent(&target).await?;
        let rename = pb::meta_op::Rename {
            source_parent: source_parent.raw(),
            source_name: source_name.to_vec(),
            target_parent: target_parent.raw(),
            target_name: target_name.to_vec(),
            no_replace: false,
            exchange: false,
        };
        self.client.rename(&self.credentials, rename).await.map_err(|error| error.context(source))
    }

    /// As cp and mv do: a target that is a directory means "in it, under the same name".
    pub async fn target_in_directory(&self, source: &str, target: &str) -> Result<String> {
        match self.find(target).await? {
            Some(attr) if kind(&attr) == FileKind::Directory => {
                let last = source.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
                Ok(name::join(target, last))
            }
            _ => Ok(target.to_owned()),
        }
    }

    async fn mkdir(&self, path: &str, parents: bool) -> Result<()> {
        if parents {
            let mut at = String::new();
            for part in path.split('/').filter(|part| !part.is_empty()) {
                at = format!("{at}/{part}");
                match self.find(&at).await? {
                    Some(attr) if kind(&attr) == FileKind::Directory => {}
                    Some(_) => bail!(NotDirectory, "{at} is not a directory"),
                    None => self.make_dir(&at).await?,
                }
            }
            return Ok(());
        }
        self.make_dir(path).await
    }

    /// Makes one directory.
    pub async fn make_dir(&self, path: &str) -> Result<()> {
        let (parent, name) = self.parent(path).await?;
        self.client
            .make_dir(&self.credentials, parent, name, 0o777, umask())
            .await
            .map(drop)
            .map_err(|error| error.context(path))
    }

    async fn ln(&self, target: &str, link: &str, symbolic: bool) -> Result<()> {
        let (parent, name) = self.parent(link).await?;
        let done = if symbolic {
            self.client.symlink(&self.credentials, parent, name, target.as_bytes()).await
        } else {
            let inode = InodeId::new(self.resolve_link(target).await?.inode);
            self.client.link(&self.credentials, inode, parent, name).await
        };
        done.map(drop).map_err(|error| error.context(link))
    }

    async fn chmod(&self, mode: &str, path: &str) -> Result<()> {
        let bits = u32::from_str_radix(mode, 8).ok().filter(|bits| *bits <= 0o7777);
        let bits = bits.ok_or_else(|| err!(Invalid, "{mode:?} is not an octal mode like 644"))?;
        let attr = self.resolve(path).await?;
        let set = ebb_client::SetAttr { mode: Some(bits), ..ebb_client::SetAttr::default() };
        self.client
            .set_attr(&self.credentials, InodeId::new(attr.inode), set)
            .await
            .map(drop)
            .map_err(|error| error.context(path))
    }
}

/// Type of an inode.
pub fn kind(attr: &pb::Attr) -> FileKind {
    FileKind::from_raw(attr.kind).unwrap_or(FileKind::File)
}

/// The process's umask. It can only be read by setting it.
pub fn umask() -> u32 {
    let old = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    rustix::process::umask(old);
    old.as_raw_mode()
}
