//! A cluster of this tree's build and another one, process by process, while programs work.

use std::path::Path;

use crate::step::Step;

/// With the program of an earlier or a later commit.
pub fn run(other: &str) -> bool {
    let Ok(program) = Path::new(other).canonicalize() else {
        eprintln!("--from {other}: there is no such program; build it, as in `git worktree add FOLDER COMMIT`");
        return false;
    };
    let program = format!("EBB_OTHER_BUILD={}", program.display());
    let test = ["cargo", "test", "--locked", "-p", "ebb", "--test", "it", "two_builds", "--", "--nocapture"];
    let words: Vec<&str> = ["env", &program].into_iter().chain(test).collect();
    Step::program("upgrade", &words).run()
}
