//! Changes protobuf messages by their fields, so that the result decodes more often than not.
//!
//! Bytes are taken for a message where they read as one: no schema is needed, and strings that look like messages only
//! make for odder changes.

use ebb_wire::{decode_length_delimiter, encode_length_delimiter};

use crate::dice::Dice;
use crate::mutate::{INPUT_MAX, change_bytes};

/// Deeper, bytes stay bytes.
const DEPTH_MAX: usize = 8;

#[derive(Clone, Debug)]
struct Field {
    number: u32,
    value: Value,
}

#[derive(Clone, Debug)]
enum Value {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(Vec<u8>),
    Message(Vec<Field>),
}

/// A message with a change in one of its fields.
pub(crate) fn changed(bytes: &[u8], other: &[u8], dice: &mut Dice) -> Vec<u8> {
    let (Some(mut fields), other) = (parse(bytes, 0), parse(other, 0).unwrap_or_default()) else {
        let mut bytes = bytes.to_vec();
        change_bytes(&mut bytes, other, dice);
        return bytes;
    };
    change(&mut fields, &other, dice);
    encoded(&fields)
}

/// The same for a list of messages, each after its length; or the list itself is changed.
pub(crate) fn changed_list(bytes: &[u8], other: &[u8], dice: &mut Dice) -> Vec<u8> {
    let (mut messages, others) = (split(bytes), split(other));
    let spare = || others.first().cloned().unwrap_or_default();
    let at = dice.below(messages.len());
    match (dice.below(8), messages.is_empty()) {
        (0, false) => drop(messages.remove(at)),
        (1, false) => {
            let times = *dice.pick(&[1, 1, 2, 200]);
            messages.splice(at..at, vec![messages[at].clone(); times]);
        }
        (2, false) => {
            let with = dice.below(messages.len());
            messages.swap(at, with);
        }
        (3, _) => messages.insert(at, if others.is_empty() { spare() } else { dice.pick(&others).clone() }),
        (_, false) => {
            let from = if others.is_empty() { spare() } else { dice.pick(&others).clone() };
            messages[at] = changed(&messages[at], &from, dice);
        }
        _ => messages.push(spare()),
    }
    join(&messages)
}

/// Messages of a list; the rest at its end is one, too.
pub(crate) fn split(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    while !bytes.is_empty() {
        let mut rest = bytes;
        let len = decode_length_delimiter(&mut rest).ok().filter(|len| *len <= rest.len());
        let Some(len) = len else {
            messages.push(bytes.to_vec());
            break;
        };
        messages.push(rest[..len].to_vec());
        bytes = &rest[len..];
    }
    messages
}

/// A list of messages.
pub(crate) fn join(messages: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for message in messages {
        encode_length_delimiter(message.len(), &mut out).expect("a growing buffer has room");
        out.extend_from_slice(message);
        if out.len() > INPUT_MAX {
            break;
        }
    }
    out
}

fn change(fields: &mut Vec<Field>, other: &[Field], dice: &mut Dice) {
    let at = dice.below(fields.len());
    // Down the tree, more often than not.
    if let Some(Field { value: Value::Message(within), .. }) = fields.get_mut(at)
        && !dice.one_in(4)
    {
        return change(within, other, dice);
    }
    match (dice.below(9), fields.is_empty()) {
        (0, false) => drop(fields.remove(at)),
        (1, false) => {
            let times = *dice.pick(&[1, 1, 2, 3000]);
            fields.splice(at..at, vec![fields[at].clone(); times]);
        }
        (2, false) => fields[at].number = dice.below(24) as u32 + 1,
        // From anywhere in the other one, to anywhere here.
        (3 | 4, _) => {
            if let Some(field) = pick_deep(other, dice) {
                let at = dice.below(fields.len() + 1);
                fields.insert(at, field.clone());
            }
        }
        (5, false) => fields[at].value = any_value(dice),
        (_, false) => change_value(&mut fields[at].value, dice),
        _ => fields.push(Field { number: dice.below(24) as u32 + 1, value: any_value(dice) }),
    }
}

fn pick_deep<'a>(fields: &'a [Field], dice: &mut Dice) -> Option<&'a Field> {
    let field = fields.get(dice.below(fields.len()))?;
    match &field.value {
        Value::Message(within) if !within.is_empty() && dice.one_in(2) => pick_deep(within, dice),
        _ => Some(field),
    }
}

fn change_value(value: &mut Value, dice: &mut Dice) {
    match value {
        Value::Varint(number) | Value::Fixed64(number) => *number = dice.number(*number),
        Value::Fixed32(number) => *number = dice.number(u64::from(*number)) as u32,
        Value::Bytes(bytes) => match dice.below(6) {
            0 => bytes.clear(),
            1 => *bytes = vec![dice.throw() as u8; *dice.pick(&[1, 255, 256, 1025, 65_537])],
            2 => *bytes = dice.pick(&[&b".."[..], b"/", b"\0", b"a/b", b"\xff\xfe", b"user.", b"."]).to_vec(),
            _ => change_bytes(bytes, b"abc", dice),
        },
        Value::Message(_) => *value = any_value(dice),
    }
}

fn any_value(dice: &mut Dice) -> Value {
    match dice.below(5) {
        0 => Value::Fixed64(dice.number(0)),
        1 => Value::Fixed32(dice.number(0) as u32),
        2 => Value::Bytes(vec![0; dice.below(40)]),
        3 => Value::Message(Vec::new()),
        _ => Value::Varint(dice.number(0)),
    }
}

fn parse(mut bytes: &[u8], depth: usize) -> Option<Vec<Field>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let number = u32::try_from(key >> 3).ok().filter(|number| (1..1 << 29).contains(number))?;
        let value = match key & 7 {
            0 => Value::Varint(varint(&mut bytes)?),
            1 => Value::Fixed64(u64::from_le_bytes(take_bytes(&mut bytes, 8)?.try_into().ok()?)),
            5 => Value::Fixed32(u32::from_le_bytes(take_bytes(&mut bytes, 4)?.try_into().ok()?)),
            2 => {
                let len = usize::try_from(varint(&mut bytes)?).ok()?;
                let within = take_bytes(&mut bytes, len)?;
                let message = if depth < DEPTH_MAX && !within.is_empty() { parse(within, depth + 1) } else { None };
                message.map_or_else(|| Value::Bytes(within.to_vec()), Value::Message)
            }
            _ => return None,
        };
        fields.push(Field { number, value });
    }
    Some(fields)
}

fn take_bytes<'a>(bytes: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (front, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(front)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = take_bytes(bytes, 1)?[0];
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

fn encoded(fields: &[Field]) -> Vec<u8> {
    let mut out = Vec::new();
    for field in fields {
        let put = |kind: u64, out: &mut Vec<u8>| put_varint(u64::from(field.number) << 3 | kind, out);
        match &field.value {
            Value::Varint(number) => {
                put(0, &mut out);
                put_varint(*number, &mut out);
            }
            Value::Fixed64(number) => {
                put(1, &mut out);
                out.extend(number.to_le_bytes());
            }
            Value::Fixed32(number) => {
                put(5, &mut out);
                out.extend(number.to_le_bytes());
            }
            Value::Bytes(bytes) => {
                put(2, &mut out);
                put_varint(bytes.len() as u64, &mut out);
                out.extend_from_slice(bytes);
            }
            Value::Message(within) => {
                let within = encoded(within);
                put(2, &mut out);
                put_varint(within.len() as u64, &mut out);
                out.extend(within);
            }
        }
        if out.len() > INPUT_MAX {
            break;
        }
    }
    out
}

fn put_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[cfg(test)]
mod tests {
    use ebb_wire::{Message, pb};

    use super::*;

    #[test]
    fn messages_come_back_and_changed_ones_mostly_decode() {
        let write = pb::WriteReplica {
            metablock: 7,
            version: Some(pb::Version { epoch: 3, seq: 300 }),
            checksums: vec![1, 2, u32::MAX],
            ..Default::default()
        };
        let bytes = write.encode_to_vec();
        assert_eq!(encoded(&parse(&bytes, 0).unwrap()), bytes);
        let mut dice = Dice::of_case("message", 0, 0);
        let decoded = (0..400).filter(|_| {
            let changed = changed(&bytes, &bytes, &mut dice);
            pb::WriteReplica::decode(&changed[..]).is_ok_and(|other| other != write)
        });
        let decoded = decoded.count();
        assert!(decoded > 150, "{decoded} of 400 are other messages");
    }

    #[test]
    fn a_list_is_cut_and_put_together() {
        let list = [vec![1, 2], Vec::new(), vec![7; 300]];
        assert_eq!(split(&join(&list)), list);
        assert_eq!(split(&[9, 1]), [vec![9, 1]], "what is no list is its last element");
    }
}
