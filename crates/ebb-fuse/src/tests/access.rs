//! Permissions: ACL, masks, groups, set-user-id bits, read-only mounts.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::fixture::Mounted;
use crate::MountOptions;

/// Runs a shell as user and group 65534 with further groups. Returns its success and its output.
fn as_other_user(mounted: &Mounted, groups: &str, script: &str) -> (bool, String) {
    let output = std::process::Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534"])
        .args(if groups.is_empty() { vec!["--clear-groups".to_owned()] } else { vec![format!("--groups={groups}")] })
        .args(["sh", "-euc", script])
        .current_dir(mounted.root())
        .output()
        .unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.success(), text)
}

fn open_to_all(mounted: &Mounted) {
    // Other users cannot enter a directory made by `tempfile`. The mount's root has the file
    // system's own mode.
    fs::set_permissions(mounted.root(), fs::Permissions::from_mode(0o777)).unwrap();
}

#[test]
fn access_lists_go_through_the_standard_tools() {
    let mounted = Mounted::new();
    mounted.shell("touch f; chmod 640 f; setfacl -m u:12:r,g:34:rw f");
    let list = mounted.shell("getfacl -cn f");
    assert_eq!(list, "user::rw-\nuser:12:r--\ngroup::r--\ngroup:34:rw-\nmask::rw-\nother::---\n\n");
    assert_eq!(fs::metadata(mounted.path("f")).unwrap().mode() & 0o777, 0o660);
    mounted.shell("setfacl -b f");
    assert_eq!(mounted.shell("getfacl -cn f"), "user::rw-\ngroup::r--\nother::---\n\n");
}

#[test]
fn a_default_list_replaces_the_mask() {
    let mounted = Mounted::new();
    mounted.shell("mkdir d; setfacl -d -m u::rwx,g::rwx,o::r d; umask 077; touch d/f plain; mkdir d/e");
    assert_eq!(fs::metadata(mounted.path("plain")).unwrap().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(mounted.path("d/f")).unwrap().mode() & 0o777, 0o664);
    assert!(mounted.shell("getfacl -cn d/e").contains("default:other::r--"));
}

#[test]
fn the_kernel_enforces_bits_and_lists() {
    let mounted = Mounted::new();
    open_to_all(&mounted);
    mounted.shell("echo secret > f; chmod 600 f; echo listed > l; chmod 600 l; setfacl -m u:65534:r l");
    let (ok, text) = as_other_user(&mounted, "", "cat l; cat f");
    assert!(!ok && text.starts_with("listed\n") && text.contains("Permission denied"), "{text}");
}

#[test]
fn supplementary_groups_reach_the_file_system() {
    let mounted = Mounted::new();
    open_to_all(&mounted);
    let (ok, text) = as_other_user(&mounted, "4242", "touch f; chgrp 4242 f; stat -c %g f");
    assert!(ok && text == "4242\n", "{text}");
    let (ok, text) = as_other_user(&mounted, "", "chgrp 4242 f");
    assert!(!ok && text.contains("not permitted"), "{text}");
}

#[test]
fn a_write_by_others_takes_set_user_id_away() {
    let mounted = Mounted::new();
    open_to_all(&mounted);
    mounted.shell("for n in written truncated cut; do echo long > $n; chown 7:8 $n; chmod 6777 $n; done");
    let mode = |name: &str| fs::metadata(mounted.path(name)).unwrap().mode() & 0o7777;
    assert_eq!(mode("written"), 0o6777);
    let (ok, text) = as_other_user(&mounted, "", "echo x >> written; truncate -s 2 truncated; echo y > cut");
    assert!(ok, "{text}");
    // The file system gets a truncation by open with the open. The fixture leaves the bits to the
    // write that follows.
    assert_eq!([mode("written"), mode("truncated"), mode("cut")], [0o777; 3]);
}

#[test]
fn programs_run_even_if_they_cannot_be_read() {
    let mounted = Mounted::new();
    open_to_all(&mounted);
    mounted.shell("cp /bin/true run; chmod 711 run");
    let (ok, text) = as_other_user(&mounted, "", "./run && echo ran; cat run");
    assert!(!ok && text.starts_with("ran\n"), "{text}");
}

#[test]
fn a_read_only_mount_refuses_changes() {
    let mounted = Mounted::with(MountOptions { read_only: true, ..MountOptions::default() });
    let error = fs::write(mounted.path("f"), b"x").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EROFS));
    assert_eq!(fs::read_dir(mounted.root()).unwrap().count(), 0);
}

#[test]
fn set_user_id_bits_are_kept_and_shown_and_give_nothing() {
    let script = "cp /usr/bin/id id; chmod 4755 id; stat -c %a id";
    let effective = |options: MountOptions| {
        let mounted = Mounted::with(options);
        open_to_all(&mounted);
        assert_eq!(mounted.shell(script), "4755\n");
        as_other_user(&mounted, "", "./id -u")
    };
    assert_eq!(effective(MountOptions::default()), (true, "65534\n".to_owned()));
    let allowed = MountOptions { allow_suid: true, ..MountOptions::default() };
    assert_eq!(effective(allowed), (true, "0\n".to_owned()), "who asks for it has it");
}

#[test]
fn device_files_can_be_made_and_not_opened() {
    let script = "mknod null c 1 3; stat -c '%F %t %T' null";
    let opened = |options: MountOptions| {
        let mounted = Mounted::with(options);
        assert_eq!(mounted.shell(script), "character special file 1 3\n");
        fs::read(mounted.path("null")).map_err(|error| error.raw_os_error())
    };
    assert_eq!(opened(MountOptions::default()), Err(Some(libc::EACCES)));
    assert_eq!(opened(MountOptions { allow_devices: true, ..MountOptions::default() }), Ok(Vec::new()));
}

#[test]
fn the_helper_mounts_without_devices_and_set_user_id_too() {
    use crate::kernel::{self, Flags, Unmount};
    use crate::session::handshake;
    use crate::vfs::EntryDetail;

    let directory = tempfile::tempdir().unwrap();
    let options_of = |flags: Flags| {
        let device = kernel::mount_by_helper(directory.path(), flags).unwrap();
        handshake(&device, 1 << 20, EntryDetail::Names).unwrap();
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let place = format!(" {} ", directory.path().display());
        let line = table.lines().rfind(|line| line.contains(&place)).unwrap();
        let options = line.split(' ').nth(5).unwrap().to_owned();
        kernel::unmount(directory.path(), Unmount::IfUnused).unwrap();
        options
    };
    let flags = Flags { read_only: false, allow_other: true, allow_suid: false, allow_devices: false };
    let options = options_of(flags);
    assert!(options.contains("nosuid") && options.contains("nodev"), "{options}");
    let options = options_of(Flags { allow_suid: true, allow_devices: true, ..flags });
    assert!(!options.contains("nosuid") && !options.contains("nodev"), "{options}");
}
