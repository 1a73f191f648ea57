//! A program's description for shells and `man`.

use std::path::{Path, PathBuf};

use clap::{Command, Subcommand};
use ebb_types::{Error, Result};

/// Commands that describe the program itself.
#[derive(Debug, Subcommand)]
pub enum DescribeCommand {
    /// Print completions for a shell.
    Completions {
        /// Shell that reads the completions.
        shell: clap_complete::Shell,
    },
    /// Write a manual page for each command.
    Man {
        /// Directory for the pages, such as /usr/local/share/man/man1.
        directory: PathBuf,
    },
}

/// Does it for a program with this command line.
///
/// # Errors
/// The system's error about the directory.
pub fn run(mut program: Command, command: DescribeCommand) -> Result<()> {
    match command {
        DescribeCommand::Completions { shell } => {
            let name = program.get_name().to_owned();
            clap_complete::generate(shell, &mut program, name, &mut std::io::stdout());
            Ok(())
        }
        DescribeCommand::Man { directory } => {
            let version = program.get_version().unwrap_or_default();
            let source = format!("{} {version}", program.get_name());
            program = program.disable_help_subcommand(true);
            program.build();
            write_pages(&program, &source, &directory).map_err(|error| Error::from_io(&error, directory.display()))
        }
    }
}

/// One page for `command` and each one below it. The library's own loop takes a subcommand's name for the program's, and
/// has no version for it.
fn write_pages(command: &Command, source: &str, directory: &Path) -> std::io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_pages(below, source, directory)?;
    }
    clap_mangen::Man::new(command.clone()).source(source).generate_to(directory)?;
    Ok(())
}
