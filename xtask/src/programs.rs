//! The programs that suites start, as the tests have built them.
//!
//! Cargo chooses the features of the libraries by the packages that it is asked for. Another choice of packages, such as
//! `--bin ebb`, has other features, and half of the tree is compiled once more. So every step asks for the same ones.

use crate::failure::Failure;
use crate::step::Step;

/// Builds all programs and tests, or finds them built.
///
/// # Errors
/// They do not compile.
pub fn build() -> Result<(), Failure> {
    Step::cargo("build", &["test", "--workspace", "--locked", "--no-run", "-q"]).run()
}
