//! Rules for changes between two releases: a field keeps its number, type, label and `oneof`. A number is never used
//! for another purpose. Values of enumerations keep their numbers. No definition is removed.
//!
//! A name is no part of the bytes, so it may change. Each such change is listed here: a name that changes without a
//! line in a list is taken for a number that has got another purpose.

use std::collections::BTreeMap;

use prost_types::{DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet};

/// Messages and calls that have another name since the previous release: before, now.
pub(crate) const RENAMED: &[(&str, &str)] = &[
    ("NodeDrain", "NodeDebt"),
    ("ShareClose", "ShortCircuitClose"),
    ("ShareHello", "ShortCircuitHello"),
    ("ShareOpen", "ShortCircuitOpen"),
    ("ShareOpened", "ShortCircuitOpened"),
    ("ShareReply", "ShortCircuitReply"),
    ("ShareRequest", "ShortCircuitRequest"),
    ("ShareRevoked", "ShortCircuitRevoked"),
    ("ShareRun", "ShortCircuitRun"),
    ("ShareSession", "ShortCircuitSession"),
    ("ShareTicket", "ShortCircuitTicket"),
    ("ShareTicketReply", "ShortCircuitTicketReply"),
    ("ShareWelcome", "ShortCircuitWelcome"),
];

/// Fields that have another name since the previous release: message as it is called now, field before, field now.
pub(crate) const RENAMED_FIELDS: &[(&str, &str, &str)] = &[
    ("HandoffStatus", "drains", "debts"),
    ("PutStaged", "chain", "pipeline"),
    ("SyncReplicas", "chain", "pipeline"),
    ("WriteReplica", "chain", "pipeline"),
];

/// The name that a message or call of the previous release has now.
#[must_use]
pub fn name_now(before: &str) -> &str {
    RENAMED.iter().find(|(was, _)| *was == before).map_or(before, |(_, is)| is)
}

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
        let name = name_now(&name);
        match now.get(name) {
            Some(after) => check_message(name, before, after, &mut wrong),
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
        let (was, is) = (meaning(before, &called_now(name, field)), meaning(after, now));
        if was != is {
            wrong.push(format!("field {} of {name} was {was}, and is {is}", field.number()));
        }
    }
}

/// A field of the previous release, with the names that it and its type have now.
fn called_now(message: &str, field: &FieldDescriptorProto) -> FieldDescriptorProto {
    let mut now = field.clone();
    let renamed = RENAMED_FIELDS.iter().find(|(of, was, _)| *of == message && *was == field.name());
    if let Some((_, _, is)) = renamed {
        now.name = Some((*is).to_owned());
    }
    if let Some((package, name)) = field.type_name().rsplit_once('.') {
        now.type_name = Some(format!("{package}.{}", name_now(name)));
    }
    now
}

/// The properties of a field that decide its bytes, and its meaning for people.
fn meaning(message: &DescriptorProto, field: &FieldDescriptorProto) -> String {
    // An `optional` field has a `oneof` of its own, which contains no other field.
    let choice = field.oneof_index.filter(|_| !field.proto3_optional());
    let choice = choice.and_then(|index| message.oneof_decl.get(usize::try_from(index).ok()?));
    let choice = choice.map_or_else(String::new, |choice| format!(" in {}", choice.name()));
    format!("{} {:?} {:?} {}{choice}", field.name(), field.label(), field.r#type(), field.type_name())
}
