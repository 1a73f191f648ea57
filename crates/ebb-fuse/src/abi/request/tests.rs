use super::*;

fn message(number: u32, body: &[u8]) -> (Header, Bytes) {
    let mut out = Vec::new();
    out.extend_from_slice(&((IN_HEADER + body.len()) as u32).to_ne_bytes());
    out.extend_from_slice(&number.to_ne_bytes());
    for long in [77_u64, 5] {
        out.extend_from_slice(&long.to_ne_bytes());
    }
    for word in [1000_u32, 100, 4321, 0] {
        out.extend_from_slice(&word.to_ne_bytes());
    }
    out.extend_from_slice(body);
    (header(&out).unwrap(), Bytes::from(out))
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn longs(longs: &[u64]) -> Vec<u8> {
    longs.iter().flat_map(|long| long.to_ne_bytes()).collect()
}

#[test]
fn the_header_names_the_caller_and_the_inode() {
    let (header, message) = message(opcode::LOOKUP, b"name\0");
    let expected =
        Header { opcode: opcode::LOOKUP, unique: 77, inode: InodeId::new(5), uid: 1000, gid: 100, pid: 4321 };
    assert_eq!(header, expected);
    assert_eq!(
        parse(&header, message).unwrap(),
        Request::Inode(InodeRequest::Lookup { name: Bytes::from_static(b"name") })
    );
}

#[test]
fn times_before_1970_and_beyond_the_range_survive() {
    assert_eq!(time((-2_i64) as u64, 800_000_000), WallTime(-1_200_000_000));
    assert_eq!(time(i64::MAX as u64, 0), WallTime(i64::MAX));
    assert_eq!(time(i64::MIN as u64, 0), WallTime(i64::MIN));
}

#[test]
fn only_the_named_attributes_are_set() {
    let mut body = words(&[fattr::SIZE | fattr::MTIME_NOW | fattr::FH | fattr::KILL_SUIDGID, 0]);
    body.extend(longs(&[9, 4096, 0, 1, 2, 3]));
    body.extend(words(&[1, 2, 3, 0o100_644, 0, 7, 8, 0]));
    let (header, message) = message(opcode::SETATTR, &body);
    let expected = SetAttr {
        size: Some(4096),
        mtime: Some(SetTime::Now),
        by_handle: true,
        privileges: Privileges::Taken,
        ..SetAttr::default()
    };
    assert_eq!(
        parse(&header, message).unwrap(),
        Request::Inode(InodeRequest::SetAttr { set: expected, file: Some(9) })
    );
}

#[test]
fn a_lock_to_the_end_is_not_a_lock_to_a_signed_maximum() {
    let mut body = longs(&[3, 99, 10, i64::MAX as u64]);
    body.extend(words(&[libc::F_WRLCK as u32, 12, crate::abi::LK_FLOCK, 0]));
    let (header, message) = message(opcode::SETLKW, &body);
    let (kind, sort) = (LockKind::Exclusive, LockSort::Flock);
    let lock = Lock { kind, sort, owner: 99, start: 10, end: None, pid: Some(12) };
    assert_eq!(
        parse(&header, message).unwrap(),
        Request::Lock(LockRequest::SetLock { lock, if_locked: IfLocked::Wait })
    );
}

#[test]
fn a_write_brings_exactly_the_bytes_that_it_announces() {
    let mut body = longs(&[3, 1 << 40]);
    body.extend(words(&[4, 0]));
    body.extend(longs(&[0]));
    body.extend(words(&[libc::O_APPEND as u32, 0]));
    body.extend(b"data");
    let (header, whole) = message(opcode::WRITE, &body);
    let Request::File(FileRequest::Write(Write { offset, data, flags, .. })) = parse(&header, whole.clone()).unwrap()
    else {
        panic!("not a write")
    };
    assert_eq!((offset, &data[..], flags), (1 << 40, &b"data"[..], libc::O_APPEND as u32));
    let cut = whole.slice(..whole.len() - 1);
    assert_eq!(parse(&header, cut).unwrap_err().kind(), ebb_types::ErrorKind::Protocol);
}

/// Every prefix of every kind of request is refused or understood, never a panic.
#[test]
fn no_message_is_too_short_to_be_refused() {
    for number in 0..64 {
        for fill in [0_u8, 1, 0xff] {
            let (header, whole) = message(number, &[fill; 120]);
            for len in IN_HEADER..=whole.len() {
                let _ = parse(&header, whole.slice(..len));
            }
        }
    }
    assert!(super::header(&[0; IN_HEADER - 1]).is_err());
}
