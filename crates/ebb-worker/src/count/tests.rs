use std::io::Write;
use std::process::{Command, Stdio};

use proptest::prelude::*;

use super::*;

/// The count of the machine's `wc -w`.
fn wc(text: &[u8]) -> u64 {
    let mut child = Command::new("wc")
        .arg("-w")
        .env("LC_ALL", "C.UTF-8")
        .env_remove("POSIXLY_CORRECT")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text).unwrap();
    let output = child.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

/// Words of a split as a reader finds them: from the look-back on, in pieces of the given lengths, until decided.
fn count(text: &[u8], start: usize, end: usize, pieces: &[usize]) -> u64 {
    let mut count = SplitCount::new(start as u64, (end - start) as u64);
    let mut pieces = pieces.iter().cycle();
    while !count.is_decided() && (count.position() as usize) < text.len() {
        let at = count.position() as usize;
        let piece = pieces.next().copied().unwrap_or(7).max(1);
        count.feed(&text[at..text.len().min(at + piece)]);
    }
    count.words()
}

fn whole(text: &[u8]) -> u64 {
    count(text, 0, text.len(), &[1 << 20])
}

#[test]
fn known_texts() {
    for (text, words) in [
        (&b""[..], 0),
        (b" \n\t ", 0),
        (b"one", 1),
        (b"one two", 2),
        (b" one  two\n", 2),
        (b"a\0b", 1),
        (b"\0 \x01", 0),
        (b"\xff\xfe a\xffb", 1),
        ("a\u{a0}b\u{2007}c\u{202f}d\u{2060}e".as_bytes(), 5),
        ("a\u{3000}b\u{2028}c\u{85}d".as_bytes(), 2),
        ("\u{378} x".as_bytes(), 1),
        (b"a\xe3\x80", 1),
        (b"\xe3\x80", 0),
        (b"\xed\xa0\x80", 0),
        (b"\xf4\x90\x80\x80", 0),
        (b"a\xe2\x80 b", 2),
    ] {
        assert_eq!(whole(text), words, "{text:?}");
        assert_eq!(wc(text), words, "wc differs on {text:?}");
    }
}

/// Every character, between letters (does it separate?) and alone (does it print?), against the real `wc`.
#[test]
fn every_character_agrees_with_wc() {
    let all: Vec<char> = (1..0x11_0000).filter_map(char::from_u32).collect();
    let mut wrong = Vec::new();
    for group in all.chunks(8192) {
        let between: String = group.iter().map(|character| format!("a{character}b\n")).collect();
        let alone: String = group.iter().map(|character| format!("{character}\n")).collect();
        for text in [between, alone] {
            if whole(text.as_bytes()) != wc(text.as_bytes()) {
                wrong.push((group[0], group[group.len() - 1]));
            }
        }
    }
    assert!(wrong.is_empty(), "these ranges differ: {wrong:?}");
}

/// Bytes that stress the edges: separators of every length, controls, cut and overlong sequences.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let character = prop_oneof![
        4 => proptest::sample::select(vec!['a', 'z', 'é', '字', '😀', '\u{7f}', '\0', '\u{378}', '\u{2028}', '\u{ad}']),
        3 => proptest::sample::select(vec![' ', '\n', '\r', '\u{b}', '\u{a0}', '\u{2003}', '\u{2060}', '\u{3000}']),
        1 => any::<char>(),
    ]
    .prop_map(|character| character.to_string().into_bytes());
    let raw = proptest::collection::vec(any::<u8>(), 1..4);
    let broken = proptest::sample::select(vec![
        &b"\xe2\x80"[..],
        b"\xe3",
        b"\xf0\x9f\x98",
        b"\xc0\x80",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\x80\xa0",
    ])
    .prop_map(<[u8]>::to_vec);
    let piece = prop_oneof![6 => character, 1 => raw, 1 => broken];
    proptest::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_text_agrees_with_wc(text in text()) {
        prop_assert_eq!(whole(&text), wc(&text));
    }

    #[test]
    fn random_bytes_agree_with_wc(text in proptest::collection::vec(any::<u8>(), 0..3000)) {
        prop_assert_eq!(whole(&text), wc(&text));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5000, ..ProptestConfig::default() })]

    #[test]
    fn splits_add_up(
        text in text(),
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..12),
        pieces in proptest::collection::vec(1_usize..9, 1..5),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let sum: u64 = cuts.windows(2).map(|pair| count(&text, pair[0], pair[1], &pieces)).sum();
        prop_assert_eq!(sum, whole(&text));
    }

    /// A split in which a printable character was seen behind its last separator needs nothing from beyond its end.
    #[test]
    fn a_split_that_ends_in_a_word_is_decided_at_its_end(text in "[a-z ]{1,40}[a-z]", rest in "[a-z ]{0,20}") {
        let mut count = SplitCount::new(0, text.len() as u64);
        count.feed(text.as_bytes());
        prop_assert!(count.is_decided());
        prop_assert_eq!(count.words(), whole(text.as_bytes()));
        let before = count.words();
        count.feed(rest.as_bytes());
        prop_assert_eq!(count.words(), before, "the bytes behind it belong to the next split");
    }
}
