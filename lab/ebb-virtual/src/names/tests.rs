//! The checker against histories whose verdict is known, and against a naive search.

use ebb_runtime::virt::Dice;

use super::check::{Verdict, check};
use super::{Answer, Directory, File, NAMES_MAX, Name, Operation, Record};

const A: Name = Name(0);
const B: Name = Name(1);

fn record(operation: Operation, answer: Answer, start: u64, end: u64) -> Record {
    let end = if answer == Answer::Unknown { u64::MAX } else { end };
    Record { client: 0, operation, answer, start, end }
}

fn with(files: &[(Name, u32)]) -> Directory {
    let mut directory = [None; NAMES_MAX];
    files.iter().for_each(|(name, file)| directory[name.0] = Some(File(*file)));
    directory
}

fn is_linear(first: &[(Name, u32)], history: &[Record]) -> bool {
    match check(with(first), history) {
        Verdict::Linear => true,
        Verdict::Illegal(_) => false,
        Verdict::Undecided(why) => panic!("{why}"),
    }
}

#[test]
fn an_allowed_history_of_a_directory_is_accepted() {
    use Operation::{Exchange, Look, Make, Move, MoveNew, Put, PutNew, Read, Unlink};
    // One after the other.
    assert!(is_linear(
        &[(A, 1)],
        &[
            record(Read(A), Answer::File(File(1)), 0, 1),
            record(Put(A, File(2)), Answer::Done, 2, 3),
            record(Read(A), Answer::File(File(2)), 4, 5),
            record(PutNew(A, File(3)), Answer::Exists, 6, 7),
            record(Move(A, B), Answer::Done, 8, 9),
            record(Look(A), Answer::Missing, 10, 11),
            record(Look(B), Answer::Done, 12, 13),
            record(Make(A, File(4)), Answer::Done, 14, 15),
            record(Read(A), Answer::Empty, 16, 17),
            record(Exchange(A, B), Answer::Done, 18, 19),
            record(Read(A), Answer::File(File(2)), 20, 21),
            record(MoveNew(A, B), Answer::Exists, 22, 23),
            record(Unlink(B), Answer::Done, 24, 25),
            record(Exchange(A, B), Answer::Missing, 26, 27),
            record(MoveNew(A, B), Answer::Done, 28, 29),
        ]
    ));
    // Readers of a replacement see the one before and the one after, in an order of their own.
    let replacing = [
        record(Put(A, File(2)), Answer::Done, 0, 10),
        record(Read(A), Answer::File(File(1)), 1, 9),
        record(Read(A), Answer::File(File(2)), 2, 3),
        record(Read(A), Answer::File(File(2)), 4, 5),
    ];
    assert!(is_linear(&[(A, 1)], &replacing));
    // One of two makers wins, and a third one is right that there is something.
    let racing = [
        record(PutNew(A, File(2)), Answer::Done, 0, 10),
        record(Make(A, File(3)), Answer::Exists, 1, 9),
        record(Unlink(A), Answer::Done, 2, 12),
        record(PutNew(A, File(4)), Answer::Done, 3, 11),
        record(Read(A), Answer::File(File(4)), 13, 14),
    ];
    assert!(is_linear(&[], &racing));
}

#[test]
fn an_impossible_history_of_a_directory_is_refused() {
    use Operation::{Exchange, Look, Make, Move, Put, PutNew, Read, Unlink};
    let put = record(Put(A, File(2)), Answer::Done, 0, 10);
    let wrong: &[(&str, &[Record])] = &[
        ("a name vanishes while it is replaced", &[put, record(Read(A), Answer::Missing, 1, 9)]),
        ("a look misses it", &[put, record(Look(A), Answer::Missing, 1, 9)]),
        ("an old file comes back", &[put, record(Read(A), Answer::File(File(1)), 11, 12)]),
        (
            "two readers disagree",
            &[put, record(Read(A), Answer::File(File(2)), 1, 2), record(Read(A), Answer::File(File(1)), 3, 4)],
        ),
        ("a file from nowhere", &[put, record(Read(A), Answer::File(File(7)), 11, 12)]),
        ("the contents of a replacement are missing", &[put, record(Read(A), Answer::Empty, 11, 12)]),
        (
            "two makers win",
            &[record(PutNew(B, File(3)), Answer::Done, 0, 10), record(Make(B, File(4)), Answer::Done, 1, 9)],
        ),
        ("a file is there that no client made", &[record(Make(B, File(4)), Answer::Exists, 1, 9)]),
        ("a removal is undone", &[record(Unlink(A), Answer::Done, 0, 1), record(Look(A), Answer::Done, 2, 3)]),
        ("it is removed twice", &[record(Unlink(A), Answer::Done, 0, 10), record(Unlink(A), Answer::Done, 1, 9)]),
        (
            "it has both names",
            &[
                record(Move(A, B), Answer::Done, 0, 10),
                record(Look(B), Answer::Done, 1, 2),
                record(Look(A), Answer::Done, 3, 4),
            ],
        ),
        ("an exchange without two", &[record(Exchange(A, B), Answer::Done, 0, 1)]),
    ];
    for (case, history) in wrong {
        assert!(!is_linear(&[(A, 1)], history), "{case}");
    }
}

#[test]
fn an_operation_without_an_answer_may_take_effect_late_or_never() {
    use Operation::{Put, Read, Unlink};
    let lost = record(Put(A, File(2)), Answer::Unknown, 0, 1);
    let reads = |file: u32, start| record(Read(A), Answer::File(File(file)), start, start + 1);
    assert!(is_linear(&[(A, 1)], &[lost, reads(1, 5), reads(1, 7)]));
    assert!(is_linear(&[(A, 1)], &[lost, reads(1, 5), reads(2, 7)]));
    assert!(!is_linear(&[(A, 1)], &[lost, reads(1, 5), reads(2, 7), reads(1, 9)]), "it is done once");
    let removed = record(Unlink(A), Answer::Unknown, 2, 3);
    assert!(is_linear(&[(A, 1)], &[removed, record(Read(A), Answer::Missing, 6, 7)]));
    assert!(!is_linear(&[(A, 1)], &[removed, record(Read(A), Answer::Missing, 0, 1)]), "not before it began");
    // A read without an answer says nothing.
    assert!(is_linear(&[(A, 1)], &[record(Read(A), Answer::Unknown, 0, 1), reads(1, 5)]));
    // Of some it is known that they are not done any more.
    let given_up = Record { end: 6, ..lost };
    assert!(is_linear(&[(A, 1)], &[given_up, reads(1, 4), reads(1, 7)]));
    assert!(is_linear(&[(A, 1)], &[given_up, reads(1, 4), reads(2, 7)]));
    assert!(!is_linear(&[(A, 1)], &[given_up, reads(1, 7), reads(2, 9)]), "it is done too late");
}

/// Whether some order explains it, by trying all.
fn naive(directory: Directory, left: &[Record]) -> bool {
    if left.iter().all(|record| record.answer == Answer::Unknown) {
        return true;
    }
    let is_known = |record: &&Record| record.answer != Answer::Unknown;
    let first_end = left.iter().filter(is_known).map(|record| record.end).min().unwrap_or(u64::MAX);
    (0..left.len()).filter(|index| left[*index].start <= first_end).any(|index| {
        let record = left[index];
        let answer = if record.answer == Answer::Unknown { Answer::Done } else { record.answer };
        let is_left = |other: &Record| other.answer != Answer::Unknown || other.end >= record.start;
        let rest = left.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, other)| *other);
        let rest: Vec<Record> = rest.filter(is_left).collect();
        let is_filled_later = |File(file): File| file >= 100;
        record.operation.apply(&directory, answer, is_filled_later).is_some_and(|after| naive(after, &rest))
    })
}

/// Goal: the search with its short cuts finds the same as trying everything. Method: short histories of few names, some
/// with answers that a directory gave and some changed.
#[test]
fn the_search_agrees_with_trying_everything() {
    let (mut linear, mut illegal) = (0, 0);
    for seed in 0..4000 {
        let mut dice = Dice::new(seed, "names");
        let history = some_history(&mut dice);
        let expected = naive(with(&[(A, 1)]), &history);
        assert_eq!(is_linear(&[(A, 1)], &history), expected, "seed {seed}: {history:#?}");
        if expected { linear += 1 } else { illegal += 1 }
    }
    assert!(linear > 500 && illegal > 500, "{linear} linear, {illegal} not");
}

fn some_history(dice: &mut Dice) -> Vec<Record> {
    let mut directory = with(&[(A, 1)]);
    let mut history = Vec::new();
    let mut time = 0;
    for number in 0..7_u32 {
        let (one, other) = if dice.coin() { (A, B) } else { (B, A) };
        let file = File(10 + number);
        let operation = match dice.below(11) {
            0 | 1 => Operation::Put(one, file),
            2 => Operation::PutNew(one, file),
            3 => Operation::Make(one, File(100 + number)),
            4 => Operation::MakeOver(one, File(100 + number)),
            5 => Operation::Move(one, other),
            6 => Operation::MoveNew(one, other),
            7 => Operation::Exchange(one, other),
            8 => Operation::Unlink(one),
            9 => Operation::Look(other),
            _ => Operation::Read(one),
        };
        let answers = [Answer::Done, Answer::Exists, Answer::Missing];
        let read = directory[one.0].map_or(Answer::Missing, Answer::File);
        let answers = answers.into_iter().chain([read]);
        let right = answers.filter_map(|answer| Some((answer, operation.apply(&directory, answer, |_| true)?))).next();
        let Some((mut answer, after)) = right else { continue };
        directory = after;
        if dice.chance(0.1) {
            answer = *dice.pick(&[Answer::Missing, Answer::Exists, Answer::Done, Answer::Unknown]);
        }
        time += dice.between(1, 4);
        let start = time.saturating_sub(dice.below(8));
        let mut end = time + dice.below(8);
        if answer == Answer::Unknown && dice.coin() {
            end = u64::MAX;
        }
        history.push(Record { client: 0, operation, answer, start, end });
    }
    history
}
