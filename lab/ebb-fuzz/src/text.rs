//! Changes text by its lines, words and numbers.

use crate::dice::Dice;
use crate::mutate::{change_bytes, repeat};

/// Numbers that have found errors before.
const NUMBERS: [&str; 18] = [
    "",
    "-1",
    "0",
    "-0",
    "1e308",
    "1e-320",
    "1e999",
    "NaN",
    "inf",
    "0.1",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999999999999999999",
    "0x10",
    "1_0",
];

/// What has a meaning in the formats that are text.
const MARKS: [&str; 20] = [
    "\"", "\\", "[", "]", "{", "}", "[[", "=", ",", ":", "#", "\n", "\r\n", " ", "\u{feff}", "\0", "null", "true", "ä",
    "[a.",
];

/// A text with a change.
pub(crate) fn changed(bytes: &[u8], other: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut out = bytes.to_vec();
    match dice.below(8) {
        0..=2 => {
            let numbers = words(bytes, |byte| byte.is_ascii_digit() || b".-".contains(&byte));
            if let Some((from, to)) = numbers.get(dice.below(numbers.len())) {
                out.splice(*from..*to, dice.pick(&NUMBERS).bytes());
            }
        }
        3 => {
            let lines = words(bytes, |byte| byte != b'\n');
            if let Some((from, to)) = lines.get(dice.below(lines.len())) {
                let line = [&bytes[*from..*to], b"\n"].concat();
                match dice.below(3) {
                    0 => drop(out.drain(*from..*to)),
                    1 => drop(out.splice(*from..*from, line)),
                    _ => repeat(&mut out, &line, dice),
                }
            }
        }
        4 => {
            let at = dice.below(out.len() + 1);
            out.splice(at..at, dice.pick(&MARKS).bytes());
        }
        // What nests, nests deep.
        5 => {
            let mark = *dice.pick(&MARKS);
            repeat(&mut out, mark.as_bytes(), dice);
        }
        6 => {
            let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
            let (here, there) = (words(bytes, is_word), words(other, is_word));
            if let (Some((from, to)), Some((other_from, other_to))) =
                (here.get(dice.below(here.len())), there.get(dice.below(there.len())))
            {
                out.splice(*from..*to, other[*other_from..*other_to].iter().copied());
            }
        }
        _ => change_bytes(&mut out, other, dice),
    }
    out
}

/// Where runs of such bytes begin and end.
fn words(bytes: &[u8], belongs: impl Fn(u8) -> bool) -> Vec<(usize, usize)> {
    let mut words = Vec::new();
    let mut start = None;
    for (at, byte) in bytes.iter().enumerate() {
        match (start, belongs(*byte)) {
            (None, true) => start = Some(at),
            (Some(from), false) => {
                words.push((from, at));
                start = None;
            }
            _ => {}
        }
    }
    words.extend(start.map(|from| (from, bytes.len())));
    words
}
