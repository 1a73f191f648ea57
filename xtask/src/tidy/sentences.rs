//! A reader should need to read a document only once: no sentence has more than 40 words.
//!
//! Headings, tables, code blocks and lists of tests (`(quoted by ...)`) do not count. A text between backquotes is one
//! word.

use super::Finding;
use crate::tree::Tree;

const WORDS_MAX: usize = 40;

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.ending(".md") {
        let long = sentences(&file.text).into_iter().filter(|sentence| sentence.words > WORDS_MAX);
        findings.extend(long.map(|sentence| {
            let words = sentence.words;
            let text = format!("a sentence of {words} words: make two of it, or a list ({WORDS_MAX} at most)");
            Finding::new(&file.path, sentence.line, text)
        }));
    }
    findings
}

/// First line and length of a sentence.
#[derive(Clone, Copy, Default)]
struct Sentence {
    line: usize,
    words: usize,
}

/// Sentences of a page, in order.
fn sentences(text: &str) -> Vec<Sentence> {
    let mut found = Vec::new();
    let mut paragraph = Vec::new();
    let mut in_block = false;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        let is_fence = line.starts_with("```");
        in_block ^= is_fence;
        let is_prose = !(in_block || is_fence || line.is_empty() || line.starts_with(['#', '|']));
        let words = line.split_whitespace().map(|word| (number, word));
        if !is_prose || is_item(line) {
            split(&paragraph, &mut found);
            paragraph.clear();
        }
        if is_prose {
            paragraph.extend(words);
        }
    }
    split(&paragraph, &mut found);
    found
}

/// Whether a line begins an item of a list, or a quotation.
fn is_item(line: &str) -> bool {
    let mark = line.split(' ').next().unwrap_or_default();
    let is_number = |mark: &str| !mark.is_empty() && mark.chars().all(|letter| letter.is_ascii_digit());
    matches!(mark, "-" | "*" | ">") || mark.strip_suffix('.').is_some_and(is_number)
}

/// Splits a paragraph into sentences.
fn split(paragraph: &[(usize, &str)], found: &mut Vec<Sentence>) {
    let mut sentence = Sentence::default();
    let (mut is_over, mut in_code, mut in_tests) = (false, false, false);
    for (line, word) in paragraph {
        if is_over && begins_sentence(word) {
            found.push(std::mem::take(&mut sentence));
        }
        if sentence.words == 0 {
            sentence.line = *line;
        }
        in_tests |= *word == "(quoted";
        if !in_code && !in_tests && word.contains(char::is_alphanumeric) {
            sentence.words += 1;
        }
        in_tests &= !word.contains(')');
        in_code ^= word.matches('`').count() % 2 == 1;
        is_over = !in_code && word.trim_end_matches([')', '"', '*', '`']).ends_with(['.', '!', '?']);
    }
    found.push(sentence);
}

fn begins_sentence(word: &str) -> bool {
    let first = word.trim_start_matches(['(', '"', '*', '[']).chars().next();
    first.is_some_and(|letter| letter.is_uppercase() || letter.is_numeric() || letter == '`')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of_long(text: &str) -> Vec<usize> {
        check(&Tree::of(&[("a.md", text)])).iter().map(|finding| finding.line).collect()
    }

    fn words(count: usize) -> String {
        vec!["word"; count].join(" ")
    }

    #[test]
    fn a_long_sentence_is_found_where_it_begins() {
        let text = format!("# A\n\nShort. And\n{}.\n\n- {}\n- More.\n", words(WORDS_MAX), words(WORDS_MAX + 1));
        assert_eq!(lines_of_long(&text), [3, 6]);
    }

    #[test]
    fn sentences_paragraphs_and_items_end() {
        let half = words(WORDS_MAX - 1);
        for end in [". Then ", ".) `then` ", "!\" *Then* ", "\n\n", "\n- ", "\n2. ", "\n| cell |\n"] {
            assert_eq!(lines_of_long(&format!("{half}{end}{half}")), [], "{end:?}");
        }
        for middle in [", ", ": ", "; ", " e.g. ", "\n"] {
            assert_eq!(lines_of_long(&format!("{half}{middle}{half}")), [1], "{middle:?}");
        }
    }

    #[test]
    fn tables_code_and_tests_do_not_count() {
        let many = words(WORDS_MAX + 1);
        let full = words(WORDS_MAX - 1);
        let text = format!(
            "| {many} |\n\n```text\n{many}\n```\n\n# {many}\n\n{full} `{many}`.\n\n{full} (quoted by `{many}`,\n`b`).\n"
        );
        assert_eq!(lines_of_long(&text), []);
    }
}
