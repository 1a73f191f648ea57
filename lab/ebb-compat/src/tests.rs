//! The previous release and this one understand each other, and the rules find changes that would break this.

use std::fmt::Write as _;

use ebb_wire::Method;
use prost_types::FileDescriptorSet;
use prost_types::field_descriptor_proto::{Label, Type};

use crate::rules::{RENAMED, RENAMED_FIELDS, check, messages, name_now};
use crate::sample::Samples;
use crate::{CURRENT, PREVIOUS};

const METHODS: &str = include_str!("../previous/methods.txt");
const MESSAGES: &str = include_str!("../previous/messages.txt");

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The contents of `messages.txt`: a line for each sample of each message.
fn recorded(set: &FileDescriptorSet) -> String {
    let samples = Samples::of(set);
    let mut lines = String::new();
    for name in samples.names() {
        for number in 0..samples.count(name) {
            writeln!(lines, "{name} {}", hex(&samples.make(name, number))).unwrap();
        }
    }
    lines
}

/// The contents of `methods.txt`.
fn methods() -> String {
    Method::ALL.iter().map(|method| format!("{method:?} {}\n", *method as u16)).collect()
}

/// Goal: the folder of the previous release can be made anew. Method: with the variable that [CONTRIBUTING.md] names,
/// the two lists are written instead of compared.
#[test]
#[expect(clippy::disallowed_methods, reason = "the folder is in a repository, which keeps the earlier contents")]
fn the_folder_of_the_release_before_is_of_one_piece() {
    let wanted = recorded(&PREVIOUS.definitions());
    if std::env::var_os("EBB_RENEW_PREVIOUS").is_some() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("previous");
        std::fs::write(folder.join("messages.txt"), &wanted).unwrap();
        std::fs::write(folder.join("methods.txt"), methods()).unwrap();
        return;
    }
    let differs = wanted.lines().zip(MESSAGES.lines()).find(|(wanted, found)| wanted != found);
    assert!(
        wanted == MESSAGES,
        "messages.txt is not of these definitions (EBB_RENEW_PREVIOUS=1 writes it): {differs:?}"
    );
}

#[test]
fn no_definition_has_changed_its_meaning() {
    assert_eq!(check(&PREVIOUS.definitions(), &CURRENT.definitions()), Vec::<String>::new());
}

/// Goal: no line of a new name outlives the folder that needs it: it would excuse a later change. Method: each old name
/// stands in the folder, and each new one in this release.
#[test]
fn names_that_changed_are_those_of_the_previous_release() {
    let (before, now) = (PREVIOUS.definitions(), CURRENT.definitions());
    let (before, now) = (messages(&before), messages(&now));
    for (was, is) in RENAMED {
        assert!(before.contains_key(*was) && now.contains_key(*is), "{was} is called {is}");
    }
    for (message, was, is) in RENAMED_FIELDS {
        let has = |of: &prost_types::DescriptorProto, name: &str| of.field.iter().any(|field| field.name() == name);
        assert!(has(before[*message], was) && has(now[*message], is), "{was} of {message} is called {is}");
    }
}

#[test]
fn calls_keep_their_numbers() {
    let now = methods();
    assert!(METHODS.lines().count() > 50);
    for line in METHODS.lines() {
        let (name, number) = line.split_once(' ').unwrap();
        let line = format!("{} {number}", name_now(name));
        assert!(now.lines().any(|other| other == line), "the release before has {line}");
    }
}

/// Goal: this release loses nothing that the previous one wrote, on a connection, in the log or in a checkpoint.
/// Method: it reads every recorded message and writes it again.
#[test]
fn this_release_understands_all_messages_of_the_previous_one() {
    let mut read = 0;
    for line in MESSAGES.lines() {
        let (name, text) = line.split_once(' ').unwrap();
        let bytes: Vec<u8> =
            (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect();
        let name = name_now(name);
        let again = CURRENT.again(name, &bytes).unwrap_or_else(|| panic!("{name} is gone")).expect(name);
        assert_eq!(hex(&again), text, "{name} loses something");
        read += 1;
    }
    assert!(read > 200, "{read} messages");
}

/// Goal: the previous release accepts the messages of this one, as far as it knows their fields. Method: its reader
/// reads messages of this release with a value in every field. The result must have all fields that it knows.
#[test]
fn the_previous_release_understands_its_part_of_this_ones_messages() {
    let (before, now) = (PREVIOUS.definitions(), CURRENT.definitions());
    let (known, samples) = (Samples::of(&before), Samples::of(&now));
    for name in known.names() {
        let now = name_now(name);
        for number in 0..samples.count(now) {
            let read = PREVIOUS.again(name, &samples.make(now, number)).expect("it is listed").expect(name);
            if number < known.count(name) {
                assert_eq!(hex(&read), hex(&known.make(name, number)), "{name}, sample {number}");
            }
        }
    }
}

/// Definitions with a change.
fn changed(change: impl FnOnce(&mut FileDescriptorSet)) -> Vec<String> {
    let before = CURRENT.definitions();
    let mut after = before.clone();
    change(&mut after);
    check(&before, &after)
}

fn heartbeat(set: &mut FileDescriptorSet) -> &mut prost_types::DescriptorProto {
    set.file.iter_mut().flat_map(|file| &mut file.message_type).find(|one| one.name() == "Heartbeat").unwrap()
}

#[test]
fn changes_that_the_release_before_would_misunderstand_are_found() {
    let say = |wrong: Vec<String>| wrong.join("; ");
    assert_eq!(changed(|_| ()), Vec::<String>::new());
    let gone = changed(|set| drop(heartbeat(set).field.remove(0)));
    assert!(say(gone).contains("no field 1"));
    let renumbered = changed(|set| heartbeat(set).field[0].number = Some(90));
    assert!(say(renumbered).contains("no field 1"));
    let retyped = changed(|set| heartbeat(set).field[1].set_type(Type::Sint64));
    assert!(say(retyped).contains("boot") && !changed(|set| heartbeat(set).field[1].set_type(Type::Sint64)).is_empty());
    let listed = changed(|set| heartbeat(set).field[0].set_label(Label::Repeated));
    assert!(say(listed).contains("Repeated"));
    // A used number gets another meaning.
    let reused = changed(|set| heartbeat(set).field[0].name = Some("rack".to_owned()));
    assert!(say(reused).contains("rack"));
    let renamed = changed(|set| heartbeat(set).name = Some("Pulse".to_owned()));
    assert!(say(renamed).contains("Heartbeat is gone"));
    let value = changed(|set| {
        set.file.iter_mut().flat_map(|file| &mut file.enum_type).next().unwrap().value[1].number = Some(77)
    });
    assert!(say(value).contains("any more"));
    // New definitions break nothing.
    let grown = changed(|set| {
        let mut field = heartbeat(set).field[0].clone();
        (field.name, field.number) = (Some("news".to_owned()), Some(99));
        heartbeat(set).field.push(field);
    });
    assert_eq!(grown, Vec::<String>::new());
}
