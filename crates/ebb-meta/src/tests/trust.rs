//! Invitations and revocations.

use ebb_types::ErrorKind;
use ebb_wire::pb;
use pb::command::Command as Change;

use crate::machine::Machine;
use crate::trust::{INVITATIONS_MAX, REVOCATION_NS, REVOCATIONS_MAX};

const HOUR: i64 = 3_600_000_000_000;

fn apply(machine: &mut Machine, now_ns: i64, change: Change) -> Result<(), ErrorKind> {
    let command = pb::Command { now_ns, command: Some(change), ..Default::default() };
    machine.apply(&command).reply.map(drop).map_err(|error| error.kind())
}

fn machine() -> Machine {
    let mut machine = Machine::new();
    machine.raise_version(2).unwrap();
    machine
}

fn invitation(number: u16, host: &str) -> Change {
    Change::Invite(pb::Invitation {
        serial: number.to_be_bytes().to_vec(),
        host: host.to_owned(),
        roles: vec!["block".to_owned()],
        until_ns: HOUR,
        used_for: Vec::new(),
    })
}

fn admit(number: u16, host: &str, request: &[u8]) -> Change {
    Change::AdmitHost(pb::AdmitHost {
        serial: number.to_be_bytes().to_vec(),
        host: host.to_owned(),
        request: request.to_vec(),
    })
}

#[test]
fn a_token_admits_one_host_once_and_answers_its_repetition() {
    let mut machine = machine();
    assert_eq!(apply(&mut machine, 1, admit(1, "h1", b"a")), Err(ErrorKind::Unauthorized), "it was not made");
    apply(&mut machine, 1, invitation(1, "")).unwrap();
    apply(&mut machine, 2, admit(1, "h1", b"a")).unwrap();
    apply(&mut machine, 3, invitation(1, "")).unwrap();
    apply(&mut machine, 3, admit(1, "h1", b"a")).unwrap();
    for (host, request) in [("h1", b"b"), ("h2", b"a"), ("h2", b"b")] {
        assert_eq!(apply(&mut machine, 4, admit(1, host, request)), Err(ErrorKind::Unauthorized), "{host}");
    }
}

#[test]
fn a_token_for_a_host_admits_no_other_and_none_admits_after_its_time() {
    let mut machine = machine();
    apply(&mut machine, 1, invitation(1, "h1")).unwrap();
    assert_eq!(apply(&mut machine, 2, admit(1, "h2", b"a")), Err(ErrorKind::Unauthorized));
    assert_eq!(apply(&mut machine, HOUR + 1, admit(1, "h1", b"a")), Err(ErrorKind::Unauthorized));
    apply(&mut machine, HOUR + 1, Change::Revoke(pb::Revocation { uid: Some(1), ..Default::default() })).unwrap();
    assert_eq!(machine.invitations().count(), 0, "it is forgotten with the next change");
}

#[test]
fn invitations_and_revocations_are_bounded_and_end() {
    let mut machine = machine();
    for number in 0..INVITATIONS_MAX {
        apply(&mut machine, 1, invitation(u16::try_from(number).unwrap(), "")).unwrap();
    }
    assert_eq!(apply(&mut machine, 1, invitation(u16::MAX, "")), Err(ErrorKind::Overloaded));
    apply(&mut machine, HOUR + 1, invitation(u16::MAX, "")).unwrap();
    let revoke = || Change::Revoke(pb::Revocation { host: "h1".to_owned(), ..Default::default() });
    for _ in 0..REVOCATIONS_MAX {
        apply(&mut machine, 1, revoke()).unwrap();
    }
    assert_eq!(apply(&mut machine, 2, revoke()), Err(ErrorKind::Overloaded));
    apply(&mut machine, REVOCATION_NS + 2, revoke()).unwrap();
    let (version, list) = machine.revocations();
    assert_eq!((version, list.len(), list[0].made_ns), (REVOCATIONS_MAX as u64 + 1, 1, REVOCATION_NS + 2));
}
