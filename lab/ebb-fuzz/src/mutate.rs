//! Makes inputs out of samples.

use crate::dice::Dice;
use crate::target::{Shape, Target};
use crate::{message, text};

/// Longest input.
pub const INPUT_MAX: usize = 256 << 10;
/// Longest input that is made as a rule: most faults need no more, and it is quick.
const USUAL_MAX: usize = 16 << 10;

/// The input of a case.
#[must_use]
pub fn input(target: &Target, samples: &[Vec<u8>], seed: u64, case: u64) -> Vec<u8> {
    let mut dice = Dice::of_case(target.name, seed, case);
    // Samples come first as they are: an encoder whose bytes are refused, or cost too much, is a fault, too.
    if let Some(sample) = usize::try_from(case).ok().and_then(|case| samples.get(case)) {
        return sample.clone();
    }
    let mut bytes = dice.pick(samples).clone();
    for _ in 0..=dice.below(4) {
        change(&mut bytes, target, samples, &mut dice);
    }
    bytes
}

/// One change, repaired more often than not.
pub fn change(bytes: &mut Vec<u8>, target: &Target, samples: &[Vec<u8>], dice: &mut Dice) {
    let other = dice.pick(samples).clone();
    let is_structured = !dice.one_in(4);
    match target.shape {
        Shape::Message(head) if is_structured => {
            let head = head.min(bytes.len());
            let tail = message::changed(&bytes[head..], other.get(head..).unwrap_or_default(), dice);
            bytes.truncate(head);
            bytes.extend(tail);
        }
        Shape::Messages if is_structured => *bytes = message::changed_list(bytes, &other, dice),
        Shape::Text if is_structured => *bytes = text::changed(bytes, &other, dice),
        _ => change_bytes(bytes, &other, dice),
    }
    bytes.truncate(INPUT_MAX);
    if !dice.one_in(4) {
        (target.repair)(bytes);
    }
    bytes.truncate(INPUT_MAX);
}

/// A protobuf message with one of its fields changed, or with a field of another one.
#[must_use]
pub fn message(bytes: &[u8], other: &[u8], dice: &mut Dice) -> Vec<u8> {
    message::changed(bytes, other, dice)
}

/// Changes that know nothing of what the bytes mean.
pub(crate) fn change_bytes(bytes: &mut Vec<u8>, other: &[u8], dice: &mut Dice) {
    let len = bytes.len();
    match dice.below(12) {
        0 | 1 if len > 0 => bytes[dice.below(len)] ^= 1 << dice.below(8),
        2 if len > 0 => bytes[dice.below(len)] = dice.throw() as u8,
        // A length, a count, an offset: most stand at a multiple of four.
        3..=5 => put_number(bytes, dice),
        6 => bytes.truncate(dice.below(len + 1)),
        7 => {
            let more = dice.below(64);
            let any = dice.throw() as u8;
            let fill = *dice.pick(&[0, 0xff, 0x80, any]);
            bytes.extend(std::iter::repeat_n(fill, more));
        }
        8 => drop(bytes.drain(dice.range(len))),
        9 => {
            let part = bytes[dice.range(len)].to_vec();
            repeat(bytes, &part, dice);
        }
        10 => {
            let part = other[dice.range(other.len())].to_vec();
            let at = dice.below(len + 1);
            if dice.one_in(2) {
                bytes.splice(at..at, part);
            } else {
                bytes.splice(at..len.min(at + part.len()), part);
            }
        }
        // The beginning of one and the end of another.
        _ => {
            bytes.truncate(dice.below(len + 1));
            bytes.extend_from_slice(&other[dice.below(other.len() + 1)..]);
        }
    }
}

/// Writes a number of one, two, four or eight bytes, or a varint that is longer than it has to be.
fn put_number(bytes: &mut Vec<u8>, dice: &mut Dice) {
    let width = *dice.pick(&[1, 2, 4, 4, 8, 8]);
    let Some(places) = bytes.len().checked_sub(width) else { return };
    let mut at = dice.below(places + 1);
    if !dice.one_in(3) {
        at -= at % width.min(4);
    }
    if dice.one_in(10) {
        let long = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        let overlong = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00];
        bytes.splice(at..at + 1, *dice.pick(&[long, overlong]));
        return;
    }
    let mut was = [0; 8];
    was[..width].copy_from_slice(&bytes[at..at + width]);
    let number = match dice.below(4) {
        // As long as all that follows, or nearly.
        0 => (bytes.len() - at) as u64 + dice.below(3) as u64 - 1,
        _ => dice.number(u64::from_le_bytes(was)),
    };
    bytes[at..at + width].copy_from_slice(&number.to_le_bytes()[..width]);
}

/// Inserts a part again and again: what takes the square of its input is found by that.
pub(crate) fn repeat(bytes: &mut Vec<u8>, part: &[u8], dice: &mut Dice) {
    let room = if dice.one_in(40) { INPUT_MAX } else { USUAL_MAX };
    let most = room.saturating_sub(bytes.len()) / part.len().max(1);
    let times = if dice.one_in(3) { most } else { dice.below(most.min(8) + 1) };
    let at = dice.below(bytes.len() + 1);
    bytes.splice(at..at, part.repeat(times));
}
