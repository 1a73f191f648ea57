//! The command line of `ebb fs`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Args, Subcommand};
use ebb_api::path::EbbPath;

use super::acl::SetfaclArgs;
use super::copy::{CopyArgs, MergeArgs};
use super::find::Criteria;
use super::mode::ModeChange;
use super::owner::OwnerChange;
use super::read::{HeadArgs, TailArgs};
use super::trash::TrashCommand;

/// Everywhere, paths are absolute, and `*`, `?` and `[...]` in their last names match existing names.
#[derive(Debug, Subcommand)]
pub enum FsCommand {
    /// List directories and files.
    #[command(disable_help_flag = true)]
    Ls(LsArgs),
    /// Print the contents of files.
    Cat {
        /// Files to print.
        #[arg(required = true)]
        paths: Vec<EbbPath>,
    },
    /// Print the beginning of files.
    Head(HeadArgs),
    /// Print the end of files.
    Tail(TailArgs),
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
    /// Copy several files into one local file.
    Getmerge(MergeArgs),
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
    /// Append local files to a file, which is created if it does not exist.
    Append {
        /// Local files; `-` is standard input.
        #[arg(required = true)]
        sources: Vec<PathBuf>,
        /// File to append to.
        target: EbbPath,
    },
    /// Rename or move files and directories.
    ///
    /// Between datasets they are copied with all attributes, compared, and then removed.
    Mv {
        /// Files or directories to move.
        #[arg(required = true)]
        sources: Vec<EbbPath>,
        /// New path. An existing directory receives the sources under their own names.
        target: EbbPath,
    },
    /// Remove files or directory trees.
    ///
    /// In a dataset with a trash they are moved there, and kept for the dataset's time.
    Rm {
        /// Paths to remove.
        #[arg(required = true)]
        paths: Vec<EbbPath>,
        /// Remove directories with everything below them.
        #[arg(short, long)]
        recursive: bool,
        /// It is no error if a path does not exist.
        #[arg(short, long)]
        force: bool,
        /// Remove at once, also in a dataset with a trash.
        #[arg(long)]
        skip_trash: bool,
    },
    /// Show what `rm` moved to the trash, bring it back, or remove it for good.
    Trash {
        #[command(subcommand)]
        command: TrashCommand,
    },
    /// Create directories.
    Mkdir {
        /// Directories to create.
        #[arg(required = true)]
        paths: Vec<EbbPath>,
        /// Create missing parent directories too. It is no error if the directory exists.
        #[arg(short, long)]
        parents: bool,
    },
    /// Create empty files, or set the times of existing ones to now.
    Touch {
        #[arg(required = true)]
        paths: Vec<EbbPath>,
        /// Create no file.
        #[arg(short = 'c', long)]
        no_create: bool,
    },
    /// Test a path: exit code 0 if the condition holds, 1 if not.
    Test(TestArgs),
    /// Find files below directories.
    Find {
        /// Directories to search.
        #[arg(default_value = "/")]
        paths: Vec<EbbPath>,
        #[command(flatten)]
        criteria: Criteria,
    },
    /// Show the attributes and the dataset of files or directories.
    Stat {
        #[arg(required = true)]
        paths: Vec<EbbPath>,
    },
    /// Show the space that paths take: each entry of a directory, and the total.
    #[command(disable_help_flag = true)]
    Du(DuArgs),
    /// Count the directories, files and bytes below paths.
    #[command(disable_help_flag = true)]
    Count(CountArgs),
    /// Show the free and used space of the file system.
    Df,
    /// Create a hard link or, with -s, a symbolic link.
    Ln {
        /// Target of the link: an absolute path, or any text with `-s`.
        target: OsString,
        /// Path of the new link.
        link: EbbPath,
        /// Create a symbolic link.
        #[arg(short, long)]
        symbolic: bool,
    },
    /// Set permission bits.
    Chmod {
        /// An octal mode such as 644, or changes such as `u+x,go-w`.
        mode: ModeChange,
        #[arg(required = true)]
        paths: Vec<EbbPath>,
        /// Also everything below directories.
        #[arg(short = 'R', long)]
        recursive: bool,
    },
    /// Set owner and group. Only root changes owners.
    Chown {
        /// `OWNER`, `OWNER:GROUP` or `:GROUP`, by name or number.
        owner: OwnerChange,
        #[arg(required = true)]
        paths: Vec<EbbPath>,
        /// Also everything below directories.
        #[arg(short = 'R', long)]
        recursive: bool,
    },
    /// Set the group.
    Chgrp {
        /// Group, by name or number.
        group: String,
        #[arg(required = true)]
        paths: Vec<EbbPath>,
        /// Also everything below directories.
        #[arg(short = 'R', long)]
        recursive: bool,
    },
    /// Show access control lists.
    Getfacl {
        #[arg(required = true)]
        paths: Vec<EbbPath>,
        /// Also of everything below directories.
        #[arg(short = 'R', long)]
        recursive: bool,
    },
    /// Change access control lists.
    Setfacl(SetfaclArgs),
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

/// Options of `ebb fs ls`.
#[derive(Debug, Args)]
pub struct LsArgs {
    /// Directories and files.
    #[arg(default_value = "/")]
    pub paths: Vec<EbbPath>,
    /// Also show mode, links, owner, size and modification time.
    #[arg(short, long)]
    pub long: bool,
    /// Also list everything below directories.
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Sizes for people, such as 1.5 GiB.
    #[arg(short, long)]
    pub human: bool,
    /// Newest first.
    #[arg(short, long)]
    pub time: bool,
    /// Largest first.
    #[arg(short = 'S', long, conflicts_with = "time")]
    pub size: bool,
    /// In reverse order.
    #[arg(short, long)]
    pub reverse: bool,
    /// Directories themselves, not their entries.
    #[arg(short, long)]
    pub directory: bool,
    /// Names that begin with a dot are always listed; this option is for the habit.
    #[arg(short, long, hide = true)]
    pub all: bool,
    /// Print help.
    #[arg(long, action = ArgAction::Help)]
    pub help: Option<bool>,
}

/// Options of `ebb fs du`.
#[derive(Debug, Args)]
pub struct DuArgs {
    /// Directories and files.
    #[arg(default_value = "/")]
    pub paths: Vec<EbbPath>,
    /// Only the total of each path.
    #[arg(short, long)]
    pub summarize: bool,
    /// Sizes for people, such as 1.5 GiB.
    #[arg(short, long)]
    pub human: bool,
    /// Print help.
    #[arg(long, action = ArgAction::Help)]
    pub help: Option<bool>,
}

/// Options of `ebb fs count`.
#[derive(Debug, Args)]
pub struct CountArgs {
    /// Directories and files.
    #[arg(default_value = "/")]
    pub paths: Vec<EbbPath>,
    /// Sizes for people, such as 1.5 GiB.
    #[arg(short, long)]
    pub human: bool,
    /// Print help.
    #[arg(long, action = ArgAction::Help)]
    pub help: Option<bool>,
}

/// Options of `ebb fs test`.
#[derive(Debug, Args)]
pub struct TestArgs {
    pub path: EbbPath,
    #[command(flatten)]
    pub condition: Condition,
}

/// One of the conditions.
#[derive(Clone, Copy, Debug, Args)]
#[group(required = true, multiple = false)]
pub struct Condition {
    /// Something of this name exists.
    #[arg(short, long)]
    pub exists: bool,
    /// It is a regular file.
    #[arg(short, long)]
    pub file: bool,
    /// It is a directory.
    #[arg(short, long)]
    pub directory: bool,
    /// It is a symbolic link.
    #[arg(short = 'L', long)]
    pub link: bool,
    /// It is a file with at least one byte, or a directory with entries.
    #[arg(short = 's', long)]
    pub nonempty: bool,
    /// It is a file without a byte, or a directory without entries.
    #[arg(short, long)]
    pub zero: bool,
}
