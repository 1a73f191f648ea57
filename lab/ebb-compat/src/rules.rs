//! Rules for changes between two releases: a field keeps its number, type, label and `oneof`. A number is never used
//! for another purpose. Values of enumerations keep their numbers. No definition is removed.

use std::collections::BTreeMap;

use prost_types::{DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet};

/// Messages of a release by full name, without the package.
#[must_use]
pub fn messages(set: &FileDescriptorSet) -> BTreeMap<String, &DescriptorProto> {
    fn add<'a>(message: &'a DescriptorProto, above: &str, all: &mut BTreeMap<String, &'a DescriptorProto>) {
        let name = format!("{above}{}", message.name());
        message.nested_type.iter().for_each(|nested| add(nested, &format!("{name}."), all));
        all.insert(name, message);
    }
    let mut all = BTreeMap::new();
    set.file.iter().flat_map(|file| &file.message_type).for_each(|message| add(message, "", &mut all));
    all
}

/// Enumerations of a release by full name, without the package.
#[must_use]
pub fn enumerations(set: &FileDescriptorSet) -> BTreeMap<String, &EnumDescriptorProto> {
    let top = set.file.iter().flat_map(|file| &file.enum_type).map(|one| (one.name().to_owned(), one));
    let all = messages(set);
    let nested = all.into_iter().flat_map(|(name, message)| {
        message.enum_type.iter().map(move |one| (format!("{name}.{}", one.name()), one)).collect::<Vec<_>>()
    });
    top.chain(nested).collect()
}

/// Messages that a process of the one release would misunderstand from the other, in sentences.
#[must_use]
pub fn check(previous: &FileDescriptorSet, current: &FileDescriptorSet) -> Vec<String> {
    let mut wrong = Vec::new();
    let now = messages(current);
    for (name, before) in messages(previous) {
        match now.get(&name) {
            Some(after) => check_message(&name, before, after, &mut wrong),
            None => wrong.push(format!("message {name} is gone")),
        }
    }
    let now = enumerations(current);
    for (name, before) in enumerations(previous) {
        let Some(after) = now.get(&name) else {
            wrong.push(format!("enumeration {name} is gone"));
            continue;
        };
        for value in &before.value {
            if !after.value.iter().any(|other| (other.name(), other.number()) == (value.name(), value.number())) {
                wrong.push(format!("{name} has no {} = {} any more", value.name(), value.number()));
            }
        }
    }
    wrong
}

fn check_message(name: &str, before: &DescriptorProto, after: &DescriptorProto, wrong: &mut Vec<String>) {
    for field in &before.field {
        let Some(now) = after.field.iter().find(|now| now.number() == field.number()) else {
            wrong.push(format!("{name} has no field {} ({}) any more", field.number(), field.name()));
            continue;
        };
        let (was, is) = (meaning(before, field), meaning(after, now));
        if was != is {
            wrong.push(format!("field {} of {name} was {was}, and is {is}", field.number()));
        }
    }
}

/// The properties of a field that decide its bytes, and its meaning for people.
fn meaning(message: &DescriptorProto, field: &FieldDescriptorProto) -> String {
    // An `optional` field has a `oneof` of its own, which contains no other field.
    let choice = field.oneof_index.filter(|_| !field.proto3_optional());
    let choice = choice.and_then(|index| message.oneof_decl.get(usize::try_from(index).ok()?));
    let choice = choice.map_or_else(String::new, |choice| format!(" in {}", choice.name()));
    format!("{} {:?} {:?} {}{choice}", field.name(), field.label(), field.r#type(), field.type_name())
}
