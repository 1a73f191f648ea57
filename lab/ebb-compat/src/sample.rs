//! Messages with a value in every field, generated from their definitions, as prost encodes them.

use std::collections::BTreeMap;

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet};

use crate::rules::{enumerations, messages};

/// Limit of the depth of nested messages, because some contain themselves.
const DEPTH_MAX: u32 = 2;

/// Makes the messages of a release.
#[derive(Clone, Debug)]
pub struct Samples<'a> {
    messages: BTreeMap<String, &'a DescriptorProto>,
    enumerations: BTreeMap<String, &'a EnumDescriptorProto>,
}

impl<'a> Samples<'a> {
    /// Samples of these definitions.
    #[must_use]
    pub fn of(set: &'a FileDescriptorSet) -> Self {
        Self { messages: messages(set), enumerations: enumerations(set) }
    }

    /// Names of all messages.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.messages.keys().map(String::as_str)
    }

    /// Number of samples of a message: as many as its largest `oneof` has members, and at least one.
    #[must_use]
    pub fn count(&self, name: &str) -> usize {
        let Some(message) = self.messages.get(name) else { return 0 };
        let members = (0..message.oneof_decl.len()).map(|index| members(message, index).len());
        members.max().unwrap_or(1).max(1)
    }

    /// A message with a value in every field. Of each `oneof` it has the member with this number, if there is one.
    #[must_use]
    pub fn make(&self, name: &str, number: usize) -> Vec<u8> {
        self.message(name, number, 0)
    }

    fn message(&self, name: &str, number: usize, depth: u32) -> Vec<u8> {
        let message = self.messages.get(name).unwrap_or_else(|| panic!("no message is called {name}"));
        let mut fields: Vec<(i32, &FieldDescriptorProto)> = Vec::new();
        for field in &message.field {
            let choice = field.oneof_index.filter(|_| !field.proto3_optional());
            match choice.map(|index| members(message, usize::try_from(index).expect("an index"))) {
                None => fields.push((field.number(), field)),
                // prost puts a `oneof` at the place of its lowest member.
                Some(members) if members.get(number).is_some_and(|member| *member == field.number()) => {
                    fields.push((members[0], field));
                }
                Some(_) => {}
            }
        }
        fields.sort_unstable_by_key(|(place, _)| *place);
        let mut out = Vec::new();
        fields.into_iter().for_each(|(_, field)| self.field(field, depth, &mut out));
        out
    }

    fn field(&self, field: &FieldDescriptorProto, depth: u32, out: &mut Vec<u8>) {
        let (number, is_list) = (field.number().unsigned_abs(), field.label() == Label::Repeated);
        let length_delimited = |value: &[u8], out: &mut Vec<u8>| {
            varint(u64::from(number << 3 | 2), out);
            varint(value.len() as u64, out);
            out.extend_from_slice(value);
        };
        match field.r#type() {
            Type::Message if depth >= DEPTH_MAX => {}
            Type::Message => length_delimited(&self.message(bare(field.type_name()), 0, depth + 1), out),
            Type::String | Type::Bytes => length_delimited(format!("field {number}").as_bytes(), out),
            kind => {
                let mut value = Vec::new();
                let wire = self.number(field, kind, &mut value);
                if is_list {
                    length_delimited(&value, out);
                } else {
                    varint(u64::from(number << 3 | wire), out);
                    out.extend_from_slice(&value);
                }
            }
        }
    }

    /// A number that is not zero, and its encoding.
    fn number(&self, field: &FieldDescriptorProto, kind: Type, out: &mut Vec<u8>) -> u32 {
        let number = u64::from(field.number().unsigned_abs());
        match kind {
            Type::Double => out.extend_from_slice(&(number as f64).to_le_bytes()),
            Type::Fixed64 | Type::Sfixed64 => out.extend_from_slice(&number.to_le_bytes()),
            Type::Float => out.extend_from_slice(&(field.number() as f32).to_le_bytes()),
            Type::Fixed32 | Type::Sfixed32 => out.extend_from_slice(&field.number().to_le_bytes()),
            Type::Sint32 | Type::Sint64 => varint(number * 2 - 1, out),
            Type::Bool => varint(1, out),
            Type::Enum => varint(self.value(bare(field.type_name())), out),
            // Above 127, so that a number takes more than a byte.
            _ => varint(200 + number, out),
        }
        match kind {
            Type::Double | Type::Fixed64 | Type::Sfixed64 => 1,
            Type::Float | Type::Fixed32 | Type::Sfixed32 => 5,
            _ => 0,
        }
    }

    /// The lowest value of an enumeration that is not zero.
    fn value(&self, name: &str) -> u64 {
        let all = self.enumerations.get(name).unwrap_or_else(|| panic!("no enumeration is called {name}"));
        let values = all.value.iter().map(|value| u64::from(value.number().unsigned_abs())).filter(|value| *value > 0);
        values.min().expect("an enumeration has more than one value")
    }
}

/// Numbers of the fields of a `oneof`, lowest first.
fn members(message: &DescriptorProto, index: usize) -> Vec<i32> {
    let is_in = |field: &&FieldDescriptorProto| {
        !field.proto3_optional() && field.oneof_index.is_some_and(|at| usize::try_from(at) == Ok(index))
    };
    let mut numbers: Vec<i32> = message.field.iter().filter(is_in).map(FieldDescriptorProto::number).collect();
    numbers.sort_unstable();
    numbers
}

/// A name without the package.
fn bare(name: &str) -> &str {
    name.strip_prefix(".ebb.").unwrap_or(name)
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
