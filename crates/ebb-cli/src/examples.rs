//! Examples at the end of help texts and manual pages.

use clap::Command;

/// Examples of one command: its name with those above it (`fs put`), then command lines with what they do.
pub type Examples = (&'static str, &'static [(&'static str, &'static str)]);

/// Adds examples to the help of commands.
///
/// # Panics
/// If a name is no command, for the table is a constant of the program.
#[must_use]
pub fn add(program: Command, table: &[Examples]) -> Command {
    table.iter().fold(program, |program, (name, examples)| {
        let words: Vec<&str> = name.split(' ').collect();
        add_to(program, &words, &text(examples))
    })
}

fn add_to(command: Command, words: &[&'static str], text: &str) -> Command {
    let Some((first, rest)) = words.split_first() else {
        let more = command.get_after_help().map(|help| format!("\n\n{help}")).unwrap_or_default();
        return command.after_help(format!("{text}{more}"));
    };
    assert!(command.find_subcommand(first).is_some(), "no command is called {first}");
    command.mut_subcommand(first, |sub| add_to(sub, rest, text))
}

fn text(examples: &[(&str, &str)]) -> String {
    let width = examples.iter().map(|(line, _)| line.len()).max().unwrap_or(0);
    let lines = examples.iter().map(|(line, meaning)| format!("  {line:width$}   {meaning}"));
    std::iter::once("Examples:".to_owned()).chain(lines).collect::<Vec<_>>().join("\n")
}

/// Commands without an example: every one that is shown and has no commands below it must have one.
fn missing(program: &Command, table: &[Examples]) -> Vec<String> {
    let mut missing = Vec::new();
    let mut open: Vec<(String, &Command)> =
        program.get_subcommands().map(|sub| (sub.get_name().to_owned(), sub)).collect();
    while let Some((name, command)) = open.pop() {
        if command.is_hide_set() || command.get_name() == "help" {
            continue;
        }
        let below: Vec<_> = command.get_subcommands().collect();
        if below.is_empty() && !table.iter().any(|(known, _)| *known == name) {
            missing.push(name.clone());
        }
        open.extend(below.iter().map(|sub| (format!("{name} {}", sub.get_name()), *sub)));
    }
    missing.sort();
    missing
}

/// Checks a table: every command has an example, and every example is a valid line of its command. For tests.
///
/// # Errors
/// What is wrong.
pub fn check(program: &Command, table: &[Examples]) -> Result<(), String> {
    let missing = missing(program, table);
    if !missing.is_empty() {
        return Err(format!("no example: {}", missing.join(", ")));
    }
    let name = program.get_name();
    for (command, lines) in table {
        for (line, _) in *lines {
            // Other programs may stand before a pipe.
            let begin = format!("{name} {command}");
            let Some(own) = line.split(" | ").find(|part| part.starts_with(&begin)) else {
                return Err(format!("{line} is no example of {begin}"));
            };
            program.clone().try_get_matches_from(words(own)).map_err(|error| format!("{line}: {error}"))?;
        }
    }
    Ok(())
}

/// The words of an example's command line, with quotes as a shell has them; a pipe or a redirection ends them.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quoted = false;
    for letter in line.chars() {
        match letter {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            '|' | '>' if !quoted => break,
            ' ' if !quoted => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[Examples] = &[("a b", &[("x a b 1", "does it"), ("x a b 'two words'", "too")])];

    fn program() -> Command {
        let b = Command::new("b").after_help("Exit codes: none.");
        Command::new("x").subcommand(Command::new("a").subcommand(b).subcommand(Command::new("c")))
    }

    #[test]
    fn examples_stand_in_the_help_before_what_was_there() {
        let mut program = add(program(), TABLE);
        let help =
            program.find_subcommand_mut("a").unwrap().find_subcommand_mut("b").unwrap().render_help().to_string();
        assert!(
            help.ends_with("  x a b 1             does it\n  x a b 'two words'   too\n\nExit codes: none.\n"),
            "{help}"
        );
        assert_eq!(missing(&program, TABLE), ["a c"]);
    }

    #[test]
    fn words_are_those_of_a_shell() {
        assert_eq!(words("x 'a b' '' c | wc"), ["x", "a b", "", "c"]);
    }
}
