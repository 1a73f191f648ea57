//! `cargo run -p ebb-fuzz`: long runs of the deterministic layer, and single cases again.

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    ebb_fuzz::command::main(&words, ebb_fuzz::targets::ALL)
}
