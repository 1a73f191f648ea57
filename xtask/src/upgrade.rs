//! Exchanges the processes of a cluster between this tree's build and another one, one by one, while programs work.

use std::path::Path;

use crate::failure::Failure;
use crate::step::Step;

/// Runs the test with the program `other` of an earlier or a later commit.
pub fn run(other: &str) -> Result<(), Failure> {
    let Ok(program) = Path::new(other).canonicalize() else {
        let why = format!("--from {other}: there is no such program; build it, as in `git worktree add FOLDER COMMIT`");
        return Err(Failure::new("upgrade", vec![why]));
    };
    let program = format!("EBB_OTHER_BUILD={}", program.display());
    let test = ["cargo", "test", "--locked", "-p", "ebb", "--test", "it", "two_builds", "--", "--nocapture"];
    let words: Vec<&str> = ["env", &program].into_iter().chain(test).collect();
    Step::program("upgrade", &words).run()
}
