//! Modes as `chmod` reads them: octal, or changes such as `u+x,go-w`.

use std::str::FromStr;

use ebb_types::FileKind;

const ALL: u32 = 0o7777;
const SUID: u32 = 0o4000;
const SGID: u32 = 0o2000;
const STICKY: u32 = 0o1000;

/// A mode to set, or changes of one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ModeChange {
    /// These bits.
    Absolute(u32),
    /// One change after the other.
    Relative(Vec<Clause>),
}

/// One change: `go-w`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Clause {
    /// Bits of the classes that it is about: user, group, others.
    classes: u32,
    /// No class was named: the umask's bits stay as they are.
    is_masked: bool,
    steps: Vec<(Operator, Rights)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operator {
    Add,
    Remove,
    Set,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Rights {
    /// `r`, `w` and `x`, as the bits of others.
    bits: u32,
    /// `X`: execution of directories, and of files that some user may execute.
    execute_if: bool,
    special: bool,
    sticky: bool,
    /// The bits of this class, by its shift.
    copied: Option<u32>,
}

impl ModeChange {
    /// The mode after the change.
    pub fn apply(&self, mode: u32, kind: FileKind, umask: u32) -> u32 {
        match self {
            Self::Absolute(bits) => *bits,
            Self::Relative(clauses) => {
                clauses.iter().fold(mode & ALL, |mode, clause| clause.apply(mode, kind == FileKind::Directory, umask))
            }
        }
    }
}

impl Clause {
    fn apply(&self, before: u32, is_directory: bool, umask: u32) -> u32 {
        let mut mode = before;
        for (operator, rights) in &self.steps {
            let mut bits = rights.copied.map_or(rights.bits, |shift| (mode >> shift) & 7);
            if rights.execute_if && (is_directory || before & 0o111 != 0) {
                bits |= 1;
            }
            let mut whole = (bits * 0o111) & self.classes;
            if self.is_masked {
                whole &= !umask;
            }
            if rights.special {
                whole |= if self.classes & 0o700 != 0 { SUID } else { 0 };
                whole |= if self.classes & 0o070 != 0 { SGID } else { 0 };
            }
            if rights.sticky {
                whole |= STICKY;
            }
            mode = match operator {
                Operator::Add => mode | whole,
                Operator::Remove => mode & !whole,
                Operator::Set => {
                    let special = if self.classes & 0o700 != 0 { SUID } else { 0 }
                        | if self.classes & 0o070 != 0 { SGID } else { 0 };
                    // A directory keeps set-group-id: it says whose its files are.
                    let dropped = if is_directory { SUID & special } else { special };
                    (mode & !(self.classes | dropped)) | whole
                }
            };
        }
        mode
    }
}

impl FromStr for ModeChange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with(|letter: char| letter.is_ascii_digit()) {
            let bits = u32::from_str_radix(text, 8).ok().filter(|bits| *bits <= ALL);
            return bits.map(Self::Absolute).ok_or_else(|| format!("{text:?} is not an octal mode such as 644"));
        }
        text.split(',').map(clause).collect::<Result<_, _>>().map(Self::Relative)
    }
}

fn clause(text: &str) -> Result<Clause, String> {
    let wrong = || format!("{text:?} is no change of a mode; examples are u+x, go-w and a=rX");
    let split = text.find(['+', '-', '=']).ok_or_else(wrong)?;
    let (letters, mut rest) = text.split_at(split);
    let mut classes = 0;
    for letter in letters.chars() {
        classes |= match letter {
            'u' => 0o700,
            'g' => 0o070,
            'o' => 0o007,
            'a' => 0o777,
            _ => return Err(wrong()),
        };
    }
    let is_masked = letters.is_empty();
    let mut steps = Vec::new();
    while let Some(sign) = rest.chars().next() {
        let operator = match sign {
            '+' => Operator::Add,
            '-' => Operator::Remove,
            _ => Operator::Set,
        };
        let end = rest[1..].find(['+', '-', '=']).map_or(rest.len(), |at| at + 1);
        steps.push((operator, rights(&rest[1..end]).ok_or_else(wrong)?));
        rest = &rest[end..];
    }
    Ok(Clause { classes: if is_masked { 0o777 } else { classes }, is_masked, steps })
}

fn rights(text: &str) -> Option<Rights> {
    let mut rights = Rights::default();
    for letter in text.chars() {
        match letter {
            'r' => rights.bits |= 4,
            'w' => rights.bits |= 2,
            'x' => rights.bits |= 1,
            'X' => rights.execute_if = true,
            's' => rights.special = true,
            't' => rights.sticky = true,
            'u' if text.len() == 1 => rights.copied = Some(6),
            'g' if text.len() == 1 => rights.copied = Some(3),
            'o' if text.len() == 1 => rights.copied = Some(0),
            _ => return None,
        }
    }
    Some(rights)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(change: &str, mode: u32, kind: FileKind) -> u32 {
        change.parse::<ModeChange>().unwrap_or_else(|error| panic!("{error}")).apply(mode, kind, 0o022)
    }

    /// What GNU chmod makes of the same.
    #[test]
    fn changes_do_what_chmod_does() {
        for (change, before, after) in [
            ("644", 0o777, 0o644),
            ("4755", 0o644, 0o4755),
            ("u+x", 0o644, 0o744),
            ("go-rwx", 0o755, 0o700),
            ("a=r", 0o751, 0o444),
            ("+x", 0o600, 0o711),
            ("+w", 0o444, 0o644),
            ("u=rwx,g=rx,o=", 0o000, 0o750),
            ("g=u", 0o640, 0o660),
            ("o=g-w", 0o660, 0o664),
            ("a+X", 0o644, 0o644),
            ("a+X", 0o744, 0o755),
            ("u+s,g+s", 0o755, 0o6755),
            ("+t", 0o755, 0o1755),
            ("u=r", 0o4755, 0o455),
            ("u+r-w", 0o200, 0o400),
        ] {
            assert_eq!(changed(change, before, FileKind::File), after, "{change} of {before:o}");
        }
        assert_eq!(changed("a+X", 0o600, FileKind::Directory), 0o711);
        assert_eq!(changed("g=rx", 0o2770, FileKind::Directory), 0o2750);
    }

    #[test]
    fn nonsense_is_refused_with_examples() {
        for text in ["", "9", "77777", "u", "x+r", "u+q", "u+ru", "8"] {
            assert!(text.parse::<ModeChange>().is_err(), "{text:?}");
        }
    }
}
