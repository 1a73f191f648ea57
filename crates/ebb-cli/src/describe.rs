//! A program's description for shells and `man`.

use std::path::PathBuf;

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
            clap_mangen::generate_to(program, &directory).map_err(|error| Error::from_io(&error, directory.display()))
        }
    }
}
