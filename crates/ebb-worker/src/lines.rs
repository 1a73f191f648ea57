//! Counting the lines that hold a text, as GNU `grep -a -c -F` does, in splits that add up.
//!
//! A line belongs to the split that has the newline before it, and the first one of a file to the first (Hadoop's rule for
//! lines). So a split needs nothing from before its start: it begins behind the first newline that it meets, and reads on
//! beyond its end only until the fate of its last line is known: to the text or to the newline, whichever comes first
//! (metablocks paper, Sec. 3: a record that straddles an edge must not cost a whole block of the next node).

use std::sync::Arc;

use bytes::Bytes;
use ebb_types::{Result, bail};
use memchr::memchr;
use memchr::memmem::Finder;

/// Bytes of one read of a search: a text is looked for from one end of a file to the other.
pub const SEARCH_BUFFER: u64 = 128 << 10;
/// Longest text.
pub const PATTERN_MAX: usize = 4096;

/// A text to look for, prepared. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: Bytes,
    finder: Arc<Finder<'static>>,
}

impl Pattern {
    /// `Invalid` for one that is empty, too long, or more than a line.
    pub fn new(text: Bytes) -> Result<Self> {
        if text.is_empty() || text.len() > PATTERN_MAX || text.contains(&b'\n') {
            bail!(Invalid, "a text to look for has 1 to {PATTERN_MAX} bytes and no newline, not {} bytes", text.len());
        }
        let finder = Arc::new(Finder::new(&text).into_owned());
        Ok(Self { text, finder })
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &Bytes {
        &self.text
    }
}

/// Counts the lines of one split, over buffers cut anywhere.
#[derive(Clone, Debug)]
pub struct LineCount {
    pattern: Pattern,
    end: u64,
    /// File offset of the next byte.
    at: u64,
    line: Line,
    /// The last bytes of a line that is looked at, too few to hold the text.
    tail: Vec<u8>,
    lines: u64,
}

/// The line that `at` is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Line {
    /// It is another split's, or was counted: its end is all that is wanted of it.
    Skipped,
    /// It is this split's and has not shown the text.
    Open,
}

impl LineCount {
    /// The count of the `len` bytes from `start`. Feed it from [`LineCount::position`] on.
    #[must_use]
    pub fn new(pattern: Pattern, start: u64, len: u64) -> Self {
        let line = if start == 0 && len > 0 { Line::Open } else { Line::Skipped };
        Self { pattern, end: start.saturating_add(len), at: start, line, tail: Vec::new(), lines: 0 }
    }

    /// File offset of the next byte to feed.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.at
    }

    /// Whether nothing that follows can change the count. The end of the file decides, too.
    #[must_use]
    pub fn is_decided(&self) -> bool {
        self.at >= self.end && self.line == Line::Skipped
    }

    /// Lines so far; the count, once it is decided or the file has ended.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Takes the next bytes of the file.
    pub fn feed(&mut self, bytes: &[u8]) {
        let inside = self.end.saturating_sub(self.at).min(bytes.len() as u64) as usize;
        let (own, beyond) = bytes.split_at(inside);
        self.feed_own(own);
        if self.line == Line::Open && !beyond.is_empty() {
            // The part of the split's last line that lies beyond the split.
            let line = memchr(b'\n', beyond).unwrap_or(beyond.len());
            let is_whole = line < beyond.len();
            if self.find_text(&beyond[..line]).is_some() {
                self.lines += 1;
                self.skip();
            } else if is_whole {
                self.skip();
            }
        }
        self.at += beyond.len() as u64;
    }

    /// Bytes before the end of the split.
    fn feed_own(&mut self, mut rest: &[u8]) {
        while !rest.is_empty() {
            let taken = match self.line {
                Line::Skipped => match memchr(b'\n', rest) {
                    Some(newline) => {
                        self.line = Line::Open;
                        newline + 1
                    }
                    None => rest.len(),
                },
                Line::Open => match self.find_text(rest) {
                    Some(behind) => {
                        self.lines += 1;
                        self.skip();
                        behind
                    }
                    // Lines without the text went by.
                    None => rest.len(),
                },
            };
            self.at += taken as u64;
            rest = &rest[taken..];
        }
    }

    fn skip(&mut self) {
        self.line = Line::Skipped;
        self.tail.clear();
    }

    /// Looks for the text in the kept bytes and these ones: where they go on behind it.
    ///
    /// A text has no newline, so none of the lines that end in these bytes can share one with the next.
    fn find_text(&mut self, bytes: &[u8]) -> Option<usize> {
        let len = self.pattern.text.len();
        if !self.tail.is_empty() {
            let kept = self.tail.len();
            self.tail.extend_from_slice(&bytes[..bytes.len().min(len - 1)]);
            if let Some(found) = self.pattern.finder.find(&self.tail) {
                return Some(found + len - kept);
            }
            self.tail.truncate(kept);
        }
        if let Some(found) = self.pattern.finder.find(bytes) {
            return Some(found + len);
        }
        if bytes.len() >= len - 1 {
            self.tail.clear();
            self.tail.extend_from_slice(&bytes[bytes.len() - (len - 1)..]);
        } else {
            self.tail.extend_from_slice(bytes);
            let excess = self.tail.len().saturating_sub(len - 1);
            self.tail.drain(..excess);
        }
        None
    }
}

#[cfg(test)]
mod tests;
