//! Long listings.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use ebb_types::{Credentials, InodeId};

use super::fixture::Mounted;
use crate::MountOptions;
use crate::vfs::{NewName, Vfs};

fn fill(mounted: &Mounted, directory: &str, count: u32) {
    let parent = InodeId::new(mounted.inode(directory));
    mounted.block_on(async {
        for number in 0..count {
            let name = format!("file-{number:06}");
            let new = NewName { parent, name: name.as_bytes(), mode: 0o644, umask: 0 };
            mounted.vfs.make_node(&Credentials::root(), new, ebb_types::FileKind::File, 0).await.unwrap();
        }
    });
}

/// Goal: a listing during changes has each name that existed throughout exactly once.
/// Method: every hundredth step of a listing of 10^5 names removes one listed and one unlisted name and adds one.
#[test]
fn a_listing_survives_changes_while_it_is_read() {
    const COUNT: u32 = 100_000;
    let mounted = Mounted::new();
    fs::create_dir(mounted.path("d")).unwrap();
    fill(&mounted, "d", COUNT);

    let mut seen = BTreeMap::new();
    let mut removed = BTreeSet::new();
    let mut added = 0;
    for (step, entry) in fs::read_dir(mounted.path("d")).unwrap().enumerate() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        *seen.entry(name).or_insert(0) += 1;
        if step % 100 == 0 {
            let step = step as u32;
            for number in [Some(step), (COUNT - 1).checked_sub(step)].into_iter().flatten().filter(|n| *n < COUNT) {
                let name = format!("file-{number:06}");
                if removed.insert(name.clone()) {
                    fs::remove_file(mounted.path("d").join(&name)).unwrap();
                }
            }
            fs::write(mounted.path("d").join(format!("new-{step}")), b"").unwrap();
            added += 1;
        }
    }
    for number in 0..COUNT {
        let name = format!("file-{number:06}");
        let times = seen.get(&name).copied().unwrap_or(0);
        assert!(times == 1 || times == 0 && removed.contains(&name), "{name} was listed {times} times");
    }
    assert!(seen.values().all(|times| *times == 1), "a name was listed twice");
    assert_eq!(fs::read_dir(mounted.path("d")).unwrap().count(), COUNT as usize - removed.len() + added);
}

#[test]
fn dots_come_first_and_a_place_can_be_returned_to() {
    let mounted = Mounted::new();
    fs::create_dir(mounted.path("d")).unwrap();
    fill(&mounted, "d", 300);
    let opened = fs::File::open(mounted.path("d")).unwrap();
    let mut listing = rustix::fs::Dir::read_from(&opened).unwrap();
    let names: Vec<_> = listing.by_ref().map(|entry| entry.unwrap().file_name().to_owned()).collect();
    assert_eq!(names.len(), 302);
    assert_eq!((names[0].to_bytes(), names[1].to_bytes()), (&b"."[..], &b".."[..]));
    listing.rewind();
    let offsets: Vec<_> = listing.by_ref().map(|entry| entry.unwrap().offset()).collect();
    for at in [0, 1, 2, 150, 300] {
        listing.seek(offsets[at]).unwrap();
        let next = listing.next().unwrap().unwrap().file_name().to_owned();
        assert_eq!(next, names[at + 1], "after entry {at}");
    }
    listing.seek(offsets[301]).unwrap();
    assert!(listing.next().is_none());
    assert!(rustix::fs::fsync(&opened).is_ok());
}

#[test]
fn listings_with_attributes_tell_the_same() {
    let second = Duration::from_secs(1);
    let options = MountOptions { entry_timeout: second, attr_timeout: second, ..MountOptions::default() };
    let mounted = Mounted::with(options);
    fs::create_dir(mounted.path("d")).unwrap();
    fill(&mounted, "d", 3000);
    let lines = mounted.shell("ls -l d | tail -n +2");
    assert_eq!(lines.lines().count(), 3000);
    assert!(lines.lines().all(|line| line.starts_with("-rw-r--r-- 1 root root 0 ")), "{lines}");
    assert_eq!(mounted.shell("ls -a d | head -2"), ".\n..\n");
}
