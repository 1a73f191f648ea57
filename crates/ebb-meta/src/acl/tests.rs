use ebb_types::ErrorKind;
use proptest::prelude::*;

use super::*;

/// The value of an ACL with these entries, byte by byte.
fn bytes(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut out = vec![2, 0, 0, 0];
    for (tag, perm, id) in entries {
        out.extend([tag.to_le_bytes(), perm.to_le_bytes()].concat());
        out.extend(id.to_le_bytes());
    }
    out
}

const NONE: u32 = u32::MAX;

fn parse(entries: &[(u16, u16, u32)]) -> Result<Acl, ErrorKind> {
    Acl::parse(&bytes(entries)).map(|acl| acl.unwrap()).map_err(|error| error.kind())
}

/// u::rw-, u:1000:rwx, g::r--, g:300:r-x, m::rwx, o::---
fn example() -> Acl {
    parse(&[(1, 6, NONE), (2, 7, 1000), (4, 4, NONE), (8, 5, 300), (16, 7, NONE), (32, 0, NONE)]).unwrap()
}

#[test]
fn bytes_are_those_of_linux() {
    // setfacl -m u:1000:rwx on a file of mode 0640: getfattr shows these bytes.
    let shown = "02000000 01000600ffffffff 02000700e8030000 04000400ffffffff 10000700ffffffff 20000000ffffffff";
    let shown: String = shown.split(' ').collect();
    let value: Vec<u8> =
        (0..shown.len()).step_by(2).map(|at| u8::from_str_radix(&shown[at..at + 2], 16).unwrap()).collect();
    let acl = Acl::parse(&value).unwrap().unwrap();
    assert_eq!(acl.to_mode(), ModeBits { bits: 0o670, say_all: false });
    assert_eq!(acl.encode(), value);
}

#[test]
fn malformed_lists_are_refused() {
    use ErrorKind::{Invalid, Unsupported};
    let minimal = [(1u16, 6u16, NONE), (4, 4, NONE), (32, 0, NONE)];
    assert!(parse(&minimal).is_ok());
    assert_eq!(Acl::parse(&[]).unwrap(), None);
    assert_eq!(Acl::parse(&[2, 0, 0, 0]).unwrap(), None);
    assert_eq!(Acl::parse(&[2, 0]).unwrap_err().kind(), Invalid);
    assert_eq!(Acl::parse(&[1, 0, 0, 0]).unwrap_err().kind(), Unsupported);
    assert_eq!(Acl::parse(&bytes(&minimal)[..20]).unwrap_err().kind(), Invalid);
    for bad in [
        &[(1, 6, NONE), (4, 4, NONE)][..],
        &[(4, 4, NONE), (32, 0, NONE)],
        &[(1, 6, NONE), (32, 0, NONE), (4, 4, NONE)],
        &[(1, 8, NONE), (4, 4, NONE), (32, 0, NONE)],
        &[(1, 6, NONE), (1, 6, NONE), (4, 4, NONE), (32, 0, NONE)],
        &[(1, 6, NONE), (2, 6, 5), (4, 4, NONE), (32, 0, NONE)],
        &[(1, 6, NONE), (4, 4, NONE), (8, 1, 3), (32, 0, NONE)],
        &[(1, 6, NONE), (2, 6, NONE), (4, 4, NONE), (16, 7, NONE), (32, 0, NONE)],
        &[(1, 6, NONE), (4, 4, NONE), (16, 7, NONE), (16, 7, NONE), (32, 0, NONE)],
        &[(1, 6, NONE), (4, 4, NONE), (32, 0, NONE), (64, 0, NONE)],
    ] {
        assert_eq!(parse(bad), Err(Invalid), "{bad:?}");
    }
}

#[test]
fn the_mode_shows_the_mask_and_chmod_sets_it() {
    let mut acl = example();
    assert_eq!(acl.to_mode(), ModeBits { bits: 0o670, say_all: false });
    acl.chmod(0o4751);
    assert_eq!(acl.to_mode(), ModeBits { bits: 0o751, say_all: false });
    assert_eq!((acl.find(Tag::Mask), acl.find(Tag::GroupObj)), (Some(5), Some(4)));
    let mut minimal = parse(&[(1, 6, NONE), (4, 4, NONE), (32, 0, NONE)]).unwrap();
    assert_eq!(minimal.to_mode(), ModeBits { bits: 0o640, say_all: true });
    minimal.chmod(0o777);
    assert_eq!(minimal.find(Tag::GroupObj), Some(7));
}

#[test]
fn a_default_acl_is_cut_by_the_mode_asked_for() {
    let (acl, bits) = example().inherit(0o640);
    assert_eq!(bits, 0o640);
    let acl = acl.unwrap();
    assert_eq!((acl.find(Tag::Mask), acl.find(Tag::GroupObj), acl.find(Tag::User(1000))), (Some(4), Some(4), Some(7)));
    let minimal = parse(&[(1, 7, NONE), (4, 5, NONE), (32, 5, NONE)]).unwrap();
    assert_eq!(minimal.inherit(0o666), (None, 0o644));
}

#[test]
fn entries_are_asked_in_order() {
    let acl = example();
    let user = |uid, gid, groups: &[u32]| Credentials { uid, gid, groups: groups.to_vec() };
    // Owner 1, group 100.
    for (credentials, granted) in [
        (user(1, 5, &[]), 6),
        (user(1, 300, &[]), 6),
        (user(1000, 5, &[]), 7),
        (user(1000, 100, &[]), 7),
        (user(2, 100, &[]), 4),
        (user(2, 5, &[300]), 5),
        (user(2, 5, &[]), 0),
    ] {
        for want in 0..8 {
            assert_eq!(acl.permits(&credentials, 1, 100, want), granted & want == want, "{credentials:?} {want}");
        }
    }
    // In both groups: one entry must grant all that is wanted; they do not add up.
    let split = parse(&[(1, 0, NONE), (4, 4, NONE), (8, 2, 300), (16, 7, NONE), (32, 7, NONE)]).unwrap();
    let both = user(2, 100, &[300]);
    assert!(split.permits(&both, 1, 100, 4) && split.permits(&both, 1, 100, 2));
    assert!(!split.permits(&both, 1, 100, 6) && !split.permits(&both, 1, 100, 1));
}

proptest! {
    #[test]
    fn any_bytes_parse_or_are_refused(value in proptest::collection::vec(any::<u8>(), 0..80)) {
        if let Ok(Some(acl)) = Acl::parse(&value) {
            prop_assert_eq!(acl.encode().len(), value.len());
        }
    }

    #[test]
    fn valid_lists_survive_the_bytes(
        perms in proptest::array::uniform4(0u16..8),
        users in proptest::collection::vec((0u16..8, 0u32..5000), 0..4),
        groups in proptest::collection::vec((0u16..8, 0u32..5000), 0..4),
        mode in 0u32..0o1000,
    ) {
        let mut entries = vec![(1, perms[0], NONE)];
        entries.extend(users.iter().map(|(perm, id)| (2, *perm, *id)));
        entries.push((4, perms[1], NONE));
        entries.extend(groups.iter().map(|(perm, id)| (8, *perm, *id)));
        entries.push((16, perms[2], NONE));
        entries.push((32, perms[3], NONE));
        let mut acl = parse(&entries).unwrap();
        prop_assert_eq!(acl.encode(), bytes(&entries));
        let (inherited, bits) = acl.inherit(mode);
        prop_assert_eq!(bits & !mode, 0, "nothing beyond what was asked for");
        prop_assert_eq!(inherited.unwrap().to_mode().bits, bits);
        acl.chmod(mode);
        prop_assert_eq!(acl.to_mode().bits, mode);
    }
}
