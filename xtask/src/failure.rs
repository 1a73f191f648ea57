//! A failed step, with the lines of its output that name the cause. They are printed again at the end of a run: hours of
//! output lie before it, and a log may be cut at its start.

use std::collections::VecDeque;

/// Lines that name a cause, at most, and last lines of an output without any.
const NAMED: usize = 40;
const LAST: usize = 12;
/// Lines after a panic's place: its message and the two sides of an assertion. As many names follow a comparison with the
/// host.
const AFTER: usize = 3;

/// A step that failed.
#[derive(PartialEq, Eq, Debug)]
pub struct Failure {
    /// The step's name.
    pub step: String,
    /// The lines that name the cause.
    pub lines: Vec<String>,
}

impl Failure {
    /// A failure with these lines.
    pub fn new(step: impl Into<String>, lines: Vec<String>) -> Self {
        Self { step: step.into(), lines }
    }
}

/// Prints all failures, each with its lines. True if there is none.
pub fn close(failures: &[Failure]) -> bool {
    for failure in failures {
        println!("== failed: {}", failure.step);
        failure.lines.iter().for_each(|line| println!("   {line}"));
    }
    failures.is_empty()
}

/// Picks the lines that name a cause from an output that passes line by line.
#[derive(Default)]
pub struct Causes {
    named: Vec<String>,
    last: VecDeque<String>,
    /// Lines to take, whatever they say.
    after: usize,
}

impl Causes {
    /// Sees the next line.
    pub fn see(&mut self, line: &str) {
        if [" panicked at ", ": fails on the host,", ": passes on the host and not "]
            .iter()
            .any(|mark| line.contains(mark))
        {
            self.after = AFTER + 1;
        }
        if (self.after > 0 || names_a_cause(line)) && self.named.len() < NAMED {
            self.named.push(line.to_owned());
        }
        self.after = self.after.saturating_sub(1);
        if self.last.len() == LAST {
            self.last.pop_front();
        }
        self.last.push_back(line.to_owned());
    }

    /// The lines, in the order of the output: those that name a cause, or else the last ones.
    pub fn into_lines(self) -> Vec<String> {
        if self.named.is_empty() { self.last.into() } else { self.named }
    }
}

/// The marks of a failure: of cargo's tests and errors, of rustfmt, and of the scripts of `tests/`.
fn names_a_cause(line: &str) -> bool {
    let line = line.trim_start();
    let is_count = line.starts_with("test result:");
    let starts = ["error", "not ok", "FAIL", "Diff in ", "failed:", "LOST "].iter().any(|mark| line.starts_with(mark));
    !is_count && (starts || line.ends_with("... FAILED"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn causes(output: &str) -> Vec<String> {
        let mut causes = Causes::default();
        output.lines().for_each(|line| causes.see(line));
        causes.into_lines()
    }

    #[test]
    fn failed_tests_panics_and_errors_are_picked() {
        let output = "running 2 tests\ntest a ... ok\ntest b ... FAILED\nthread 'b' panicked at src/b.rs:1:2:\n\
                      assertion `left == right` failed\n  left: 1\n right: 2\nnote: run with more\n\
                      test result: FAILED. 1 passed; 1 failed\nerror: test failed";
        let wanted = [
            "test b ... FAILED",
            "thread 'b' panicked at src/b.rs:1:2:",
            "assertion `left == right` failed",
            "  left: 1",
            " right: 2",
            "error: test failed",
        ];
        assert_eq!(causes(output), wanted);
    }

    #[test]
    fn an_output_without_a_mark_gives_its_end() {
        let output: String = (0..100).map(|number| format!("line {number}\n")).collect();
        let lines = causes(&output);
        assert_eq!((lines.len(), lines.last().map(String::as_str)), (LAST, Some("line 99")));
    }

    #[test]
    fn endless_marks_are_bounded() {
        assert_eq!(causes(&"error\n".repeat(1000)).len(), NAMED);
    }
}
