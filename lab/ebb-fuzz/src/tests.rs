//! The deterministic layer, and that it can fail.

use std::time::Duration;

use super::*;
use crate::run::{Fault, Found, run, run_input};
use crate::target::nothing;
use crate::targets::ALL;

/// Goal: no decoder panics, hangs or takes more than its cap, in so many cases of one seed. Method: every target of
/// the registry whose name begins so; each test is a part of them, so that they run side by side.
fn hold(prefix: &str) {
    let chosen: Vec<&Target> = ALL.iter().filter(|target| target.name.starts_with(prefix)).collect();
    assert!(!chosen.is_empty(), "there are targets of {prefix}");
    chosen.into_iter().for_each(run::hold);
}

#[test]
fn decoders_of_the_wire_hold() {
    hold("wire/");
    hold("fuse/");
}

#[test]
fn decoders_of_the_state_machine_hold() {
    hold("meta/");
}

#[test]
fn decoders_of_the_masters_disk_hold() {
    hold("master/");
    hold("handoff/");
}

#[test]
fn decoders_of_volumes_hold() {
    hold("store/");
    hold("block/");
    hold("raid/");
}

#[test]
fn decoders_of_power_hold() {
    hold("power/");
}

#[test]
fn decoders_of_the_planners_hold() {
    hold("plan/");
}

#[test]
fn every_target_is_in_some_test() {
    let tested = ["wire/", "fuse/", "meta/", "master/", "handoff/", "store/", "block/", "raid/", "power/", "plan/"];
    for target in ALL {
        assert!(tested.iter().any(|prefix| target.name.starts_with(prefix)), "{} is in no test", target.name);
        assert_eq!(ALL.iter().filter(|other| other.name == target.name).count(), 1, "{} is there once", target.name);
    }
}

/// The table for people says what the registry says, in its order.
#[test]
fn the_table_of_decoders_is_true() {
    let table = include_str!("../../../docs/formats/decoders.md");
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| `")).collect();
    let due: Vec<String> =
        ALL.iter().map(|target| format!("| `{}` | {} | {} |", target.name, target.source, target.cap)).collect();
    let named: Vec<String> = rows
        .iter()
        .filter(|line| line.split('`').nth(1).is_some_and(|name| ALL.iter().any(|target| target.name == name)))
        .map(|line| line.split('|').take(4).collect::<Vec<_>>().join("|") + "|")
        .collect();
    assert_eq!(named, due, "rows begin `| target | source | cap |`");
}

/// An empty element of a list is two bytes of a message, and whole in memory: no list of any message takes more than
/// the caps of messages allow.
#[test]
fn lists_of_nothing_are_within_their_caps() {
    let mut most = (0, String::new());
    let mut look = |target: &Target, case: String, bytes: &[u8]| {
        let taken = run_input(target, bytes).unwrap_or_else(|fault| panic!("{case}: {fault}"));
        most = most.clone().max((taken.peak / bytes.len(), case));
    };
    for field in 1..=28_u8 {
        let nothing = [&[field << 3 | 2, 0][..], &[field << 3, 0]];
        // Keys of more than one byte begin with field 16.
        let nothing = if field < 16 {
            nothing.map(<[u8]>::to_vec)
        } else {
            [2, 0].map(|kind| vec![(field << 3 | kind) | 0x80, field >> 4, 0])
        };
        for element in nothing {
            let list = element.repeat(4000);
            for number in 0..ebb_wire::Method::ALL.len() as u16 {
                let bytes = [&number.to_le_bytes()[..], &list].concat();
                for name in ["wire/requests", "wire/replies"] {
                    let target = command::find(ALL, name).expect("it is there");
                    look(
                        target,
                        format!("{name} of {:?}, field {field}", ebb_wire::Method::ALL[usize::from(number)]),
                        &bytes,
                    );
                }
            }
            let record = [&[element.len() as u8][..], &element].concat();
            look(
                command::find(ALL, "meta/commands").expect("it is there"),
                format!("command {field}"),
                &record.repeat(4000),
            );
            let call = [&(list.len() as u16).to_le_bytes()[..], &list].concat();
            look(command::find(ALL, "handoff/call").expect("it is there"), format!("logged, field {field}"), &call);
            look(command::find(ALL, "wire/share").expect("it is there"), format!("share, field {field}"), &list);
        }
    }
    println!("most: {} bytes for each: {}", most.0, most.1);
}

/// A decoder with one seeded bug behind a word that mutation finds at once.
fn broken(decode: fn(&[u8]) -> bool) -> Target {
    Target {
        name: "broken",
        source: "a test",
        cap: Cap { base: 4096, times: 4 },
        shape: Shape::Bytes,
        cases: 500,
        decode,
        samples: || vec![b"\x02\0\0\0 a sample".to_vec()],
        repair: nothing,
    }
}

/// The first number of the input, as a length.
fn length(bytes: &[u8]) -> usize {
    bytes.first_chunk().map_or(0, |head| u32::from_le_bytes(*head) as usize)
}

fn first_fault(decode: fn(&[u8]) -> bool) -> Option<Found> {
    command::quietly(|| run(&broken(decode), 1, 0..500, None)).faults.into_iter().next()
}

#[test]
fn a_panic_is_found_and_comes_again() {
    let decode: fn(&[u8]) -> bool = |bytes| bytes[..length(bytes).min(bytes.len() + 1)].is_ascii();
    let found = first_fault(decode).expect("a length of more than there is");
    assert!(matches!(&found.fault, Fault::Panic(words) if words.contains("out of range")), "{found}");
    let target = broken(decode);
    let again = mutate::input(&target, &(target.samples)(), found.seed, found.case);
    assert_eq!(again, found.bytes);
    assert!(found.to_string().contains(&format!("replay broken 1 {}", found.case)), "{found}");
}

#[test]
fn memory_above_the_cap_is_found() {
    // As much as the input says, below what would end the process.
    let found = first_fault(|bytes| Vec::<u8>::with_capacity(length(bytes).min(1 << 26)).is_empty());
    assert!(matches!(found.expect("a long length").fault, Fault::Memory(had, may) if had > may));
}

#[test]
fn memory_within_the_cap_is_none_of_its_business() {
    assert!(first_fault(|bytes| bytes.repeat(3).is_empty()).is_none());
    // Given back before more is taken: the greatest amount held at a time counts.
    let often: fn(&[u8]) -> bool = |_| (0..100).all(|_| vec![1_u8; 4000].len() == 4000);
    assert!(first_fault(often).is_none());
}

#[test]
fn a_decode_that_takes_too_long_is_found() {
    let target = broken(|bytes| {
        let began = run::thread_time();
        while bytes == b"slow" && run::thread_time() - began <= run::TIME_MAX + Duration::from_millis(1) {}
        true
    });
    assert!(run_input(&target, b"fast").is_ok());
    match run_input(&target, b"slow") {
        Err(Fault::Time(took)) => assert!(took > run::TIME_MAX),
        other => panic!("{other:?}"),
    }
}

#[test]
fn cases_are_the_same_in_every_run_and_differ_from_each_other() {
    let target = &targets::ALL[0];
    let samples = (target.samples)();
    let inputs = |seed| (0..200).map(|case| mutate::input(target, &samples, seed, case)).collect::<Vec<_>>();
    assert_eq!(inputs(1), inputs(1));
    assert_ne!(inputs(1), inputs(2));
    let mut distinct = inputs(1);
    distinct.sort();
    distinct.dedup();
    assert!(distinct.len() > 150, "{} of 200 differ", distinct.len());
}

/// Repairs are worth their name: what an encoder made stays as it is, and a broken sum is mended.
#[test]
fn repairs_leave_samples_as_they_are() {
    for target in ALL {
        for (number, sample) in (target.samples)().into_iter().enumerate() {
            let mut repaired = sample.clone();
            (target.repair)(&mut repaired);
            // Request numbers are given anew, and torn ends mended; both on purpose.
            if !["meta/commands", "handoff/segment"].contains(&target.name) {
                assert_eq!(repaired, sample, "sample {number} of {}", target.name);
            }
        }
    }
}
