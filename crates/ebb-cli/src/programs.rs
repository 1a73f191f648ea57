//! `ebb` and `ebb-lab` are installed side by side, and each may start the other.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use ebb_types::{Error, Result, err};

/// The program of this name in the directory of this one.
///
/// # Errors
/// `Unsupported` if there is none.
pub fn beside(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().map_err(|error| Error::from_io(&error, "looking for this program"))?;
    let program = own.with_file_name(name);
    if program.is_file() {
        return Ok(program);
    }
    let folder = own.parent().unwrap_or(&own).display();
    Err(err!(Unsupported, "{name} is not installed: it belongs into {folder}, beside this program"))
}

/// Goes on as that program, in this very process. Returns only if that fails.
///
/// # Errors
/// See [`beside`]; otherwise the kernel's error.
pub fn hand_over(name: &str, arguments: &[OsString]) -> Error {
    match beside(name) {
        Ok(program) => Error::from_io(&Command::new(&program).args(arguments).exec(), program.display()),
        Err(error) => error,
    }
}

#[cfg(test)]
mod tests {
    use ebb_types::ErrorKind;

    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_named_with_its_place() {
        let own = std::env::current_exe().unwrap();
        assert_eq!(beside(own.file_name().unwrap().to_str().unwrap()).unwrap(), own);
        let error = hand_over("ebb-of-another-house", &[]);
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains(&own.parent().unwrap().display().to_string()), "{error}");
    }
}
