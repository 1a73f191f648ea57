use std::io::Write;
use std::process::{Command, Stdio};

use proptest::prelude::*;

use super::*;

fn pattern(text: &[u8]) -> Pattern {
    Pattern::new(Bytes::copy_from_slice(text)).unwrap()
}

/// The count of the machine's grep.
fn grep(text: &[u8], wanted: &[u8]) -> u64 {
    use std::os::unix::ffi::OsStrExt;
    let mut child = Command::new("grep")
        .args(["-a", "-c", "-F", "-e"])
        .arg(std::ffi::OsStr::from_bytes(wanted))
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text).unwrap();
    let output = child.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

/// Lines of a split as a reader finds them, in pieces of the given lengths, until decided; and where it was then.
fn count(text: &[u8], wanted: &[u8], start: usize, end: usize, pieces: &[usize]) -> (u64, usize) {
    let mut count = LineCount::new(pattern(wanted), start as u64, (end - start) as u64);
    let mut pieces = pieces.iter().cycle();
    while !count.is_decided() && (count.position() as usize) < text.len() {
        let at = count.position() as usize;
        let piece = pieces.next().copied().unwrap_or(7).max(1);
        count.feed(&text[at..text.len().min(at + piece)]);
    }
    (count.lines(), count.position() as usize)
}

#[test]
fn known_texts() {
    for (text, wanted, lines) in [
        (&b""[..], &b"a"[..], 0),
        (b"a", b"a", 1),
        (b"a\n", b"a", 1),
        (b"a a\nb\na", b"a", 2),
        (b"\n\n\n", b"a", 0),
        (b"ab\nab", b"b\xff", 0),
        (b"ayy\nyy", b"yyy", 0),
        (b"aab", b"ab", 1),
        (b"x\0abc\0y\n", b"c\0y", 1),
    ] {
        let (seen, _) = count(text, wanted, 0, text.len(), &[1]);
        assert_eq!(seen, lines, "{text:?} {wanted:?}");
        assert_eq!(count(text, wanted, 0, text.len(), &[100]).0, lines, "{text:?} {wanted:?}");
        if !wanted.contains(&0) {
            assert_eq!(grep(text, wanted), lines, "grep differs on {text:?} {wanted:?}");
        }
    }
}

#[test]
fn the_last_line_is_followed_no_further_than_it_must_be() {
    //           0123456789
    let text = b"one\ntwo x and more\nthree\n";
    // The line that begins at 4 straddles the edge at 6, and shows the text at 8.
    assert_eq!(count(text, b"x", 0, 6, &[1]), (1, 9));
    assert_eq!(count(text, b"z", 0, 6, &[1]), (0, 19), "to its end, and not a byte of the next");
    // A line that begins at the edge is the split's before: that of its newline.
    assert_eq!(count(text, b"two", 0, 4, &[1]), (1, 7));
    assert_eq!(count(text, b"two", 4, 6, &[1]), (0, 6));
    assert_eq!(count(text, b"thr", 5, 19, &[1]), (1, 22));
}

#[test]
fn a_pattern_that_fits_no_line_is_refused() {
    for wrong in [&b""[..], b"a\nb", b"\n", &[b'a'; PATTERN_MAX + 1]] {
        assert!(Pattern::new(Bytes::copy_from_slice(wrong)).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Few letters, so that near misses and matches over every edge come up.
    #[test]
    fn splits_add_up_to_what_grep_says(
        text in prop::collection::vec(prop::sample::select(&b"aab\n"[..]), 0..300),
        wanted in prop::collection::vec(prop::sample::select(&b"ab"[..]), 1..5),
        size in 1_usize..80,
        pieces in prop::collection::vec(1_usize..40, 1..5),
    ) {
        let splits = (0..text.len()).step_by(size);
        let sum: u64 = splits.map(|at| count(&text, &wanted, at, text.len().min(at + size), &pieces).0).sum();
        prop_assert_eq!(sum, grep(&text, &wanted));
    }
}
