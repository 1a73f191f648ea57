//! Counting words as GNU `wc -w` (coreutils 9.1) does in a UTF-8 locale, in splits that add up.
//!
//! Text is a row of *runs*: a run begins at the start of the file or right behind a separator and goes on to the next
//! separator or to the end of the file. Separators are what `iswspace` calls space among printable characters and
//! control codes that C calls space, and the non-breaking spaces U+00A0, U+2007, U+202F, U+2060. A run is a word if it
//! holds a printable character. Control codes and bytes that are no UTF-8 neither separate nor count.
//!
//! A split `[start, end)` of a file counts the runs that *begin* in it, so splits that cover a file add up to the file.
//! Where the first run begins depends on at most [`LOOK_BACK`] bytes before the split (the longest separator, which may
//! also straddle its start), and a run's fate is known at its first printable character, so a split that ends in the
//! middle of a word nearly never needs a byte from beyond its end.
//!
//! Decoding is local: a UTF-8 character is wherever a valid sequence stands, independent of the bytes before it, so a
//! count may begin in the middle of a character.

use crate::unprintable::UNPRINTABLE;

/// Bytes before a split that decide where its first run begins: the longest separator has three.
pub const LOOK_BACK: u64 = 3;

/// The effect of a character on words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    /// Nothing.
    Silent,
    Printable,
    Separator,
}

/// Counts the words of one split, over buffers cut anywhere.
#[derive(Clone, Debug)]
pub struct SplitCount {
    start: u64,
    end: u64,
    /// File offset behind the last whole character.
    at: u64,
    /// The first bytes of a character whose rest has not come yet.
    partial: Partial,
    run: Run,
    words: u64,
}

/// The run that `at` is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Run {
    /// It began outside of the split.
    Foreign,
    /// It began in the split and has no printable character yet.
    Blank,
    /// It began in the split and has been counted.
    Counted,
}

#[derive(Clone, Copy, Default, Debug)]
struct Partial {
    bytes: [u8; 4],
    len: usize,
}

impl SplitCount {
    /// The count of the `len` bytes from `start`. Feed it from [`SplitCount::position`] on.
    #[must_use]
    pub fn new(start: u64, len: u64) -> Self {
        let end = start.saturating_add(len);
        let run = if start == 0 && end > 0 { Run::Blank } else { Run::Foreign };
        Self { start, end, at: start.saturating_sub(LOOK_BACK), partial: Partial::default(), run, words: 0 }
    }

    /// File offset of the next byte to feed.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.at + self.partial.len as u64
    }

    /// Whether nothing that follows can change the count. The end of the file decides, too.
    #[must_use]
    pub fn is_decided(&self) -> bool {
        self.position() >= self.end && self.run != Run::Blank
    }

    /// Words so far; the count, once it is decided or the file has ended.
    #[must_use]
    pub fn words(&self) -> u64 {
        self.words
    }

    /// Takes the next bytes of the file.
    pub fn feed(&mut self, bytes: &[u8]) {
        let mut rest = self.finish_partial(bytes);
        while let Some(&first) = rest.first() {
            if first < 0x80 {
                self.at += 1;
                self.step(ASCII[first as usize]);
                rest = &rest[1..];
                continue;
            }
            match decode(rest) {
                Decoded::Char(character, len) => {
                    self.at += len as u64;
                    self.step(classify(character));
                    rest = &rest[len..];
                }
                Decoded::Invalid => {
                    self.at += 1;
                    rest = &rest[1..];
                }
                Decoded::Partial => {
                    self.partial.len = rest.len();
                    self.partial.bytes[..rest.len()].copy_from_slice(rest);
                    return;
                }
            }
        }
    }

    /// Joins the bytes of a character that was cut with those that follow; returns the rest of them.
    fn finish_partial<'a>(&mut self, mut rest: &'a [u8]) -> &'a [u8] {
        while self.partial.len > 0 {
            let Some((&next, others)) = rest.split_first() else { return rest };
            let mut joined = self.partial;
            joined.bytes[joined.len] = next;
            joined.len += 1;
            match decode(&joined.bytes[..joined.len]) {
                Decoded::Partial => {
                    self.partial = joined;
                    rest = others;
                }
                Decoded::Char(character, len) => {
                    self.partial.len = 0;
                    self.at += len as u64;
                    self.step(classify(character));
                    rest = others;
                }
                // None of the bytes before `next` begins a character; whether `next` does is seen by the caller.
                Decoded::Invalid => {
                    self.at += self.partial.len as u64;
                    self.partial.len = 0;
                }
            }
        }
        rest
    }

    #[inline]
    fn step(&mut self, class: Class) {
        match class {
            Class::Printable if self.run == Run::Blank => {
                self.words += 1;
                self.run = Run::Counted;
            }
            Class::Separator => {
                let is_own = self.start <= self.at && self.at < self.end;
                self.run = if is_own { Run::Blank } else { Run::Foreign };
            }
            Class::Printable | Class::Silent => {}
        }
    }
}

enum Decoded {
    /// A character and its length in bytes.
    Char(char, usize),
    /// The first byte begins no character.
    Invalid,
    /// More bytes are needed.
    Partial,
}

/// The character at the start of `bytes`, whose first is at least 0x80.
fn decode(bytes: &[u8]) -> Decoded {
    let len = match bytes[0] {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return Decoded::Invalid,
    };
    match std::str::from_utf8(&bytes[..len.min(bytes.len())]) {
        Ok(text) => text.chars().next().map_or(Decoded::Invalid, |character| Decoded::Char(character, len)),
        Err(error) if error.error_len().is_none() => Decoded::Partial,
        Err(_) => Decoded::Invalid,
    }
}

const ASCII: [Class; 128] = {
    let mut table = [Class::Silent; 128];
    let mut code = 0;
    while code < 128 {
        table[code] = match code as u8 {
            b'\t' | b'\n' | 0x0b | 0x0c | b'\r' | b' ' => Class::Separator,
            0x21..=0x7e => Class::Printable,
            _ => Class::Silent,
        };
        code += 1;
    }
    table
};

/// Class of a character beyond ASCII.
fn classify(character: char) -> Class {
    match character {
        '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{2060}' | '\u{3000}' => {
            Class::Separator
        }
        _ => {
            let code = u32::from(character);
            let after = UNPRINTABLE.partition_point(|(first, _)| *first <= code);
            let is_silent = after > 0 && code <= UNPRINTABLE[after - 1].1;
            if is_silent { Class::Silent } else { Class::Printable }
        }
    }
}

#[cfg(test)]
mod tests;
