//! Credentials of callers. Each request has the user and group. Supplementary groups are read from
//! `/proc`.

use std::fs;

use ebb_types::Credentials;

use crate::abi::request::Header;

/// User and group only, for requests whose answer does not depend on supplementary groups.
#[must_use]
pub fn of_header(header: &Header) -> Credentials {
    Credentials { uid: header.uid, gid: header.gid, groups: Vec::new() }
}

/// With supplementary groups, for requests that are checked again after the kernel.
///
/// - The calling thread waits for the answer, so its entry in `/proc` exists and does not change.
/// - A thread of another PID namespace has number 0. It counts as a member of its own group only.
/// - Groups are not cached, because a thread may change its groups between two calls.
/// - The read of the file takes about 20 microseconds, and only for callers other than root.
#[must_use]
pub fn with_groups(header: &Header) -> Credentials {
    let mut credentials = of_header(header);
    if !credentials.is_root() && header.pid != 0 {
        // If the read fails, the thread is gone, and its request no longer matters.
        if let Ok(status) = fs::read(format!("/proc/{}/status", header.pid)) {
            credentials.groups = groups_in(&status);
        }
    }
    credentials
}

/// Parses the line `Groups:` of proc_pid_status(5).
fn groups_in(status: &[u8]) -> Vec<u32> {
    status
        .split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(b"Groups:"))
        .and_then(|line| std::str::from_utf8(line).ok())
        .map(|line| line.split_ascii_whitespace().filter_map(|group| group.parse().ok()).collect())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use ebb_types::InodeId;

    use super::*;

    #[test]
    fn groups_are_found_between_other_lines() {
        assert_eq!(groups_in(b"Name:\tx\nGroups:\t4 24 1000 \nNStgid:\t1\n"), [4, 24, 1000]);
        assert!(groups_in(b"Groups:\t \n").is_empty());
        assert!(groups_in(b"").is_empty());
    }

    #[test]
    fn a_thread_that_does_not_exist_has_no_groups() {
        let header = Header { opcode: 1, unique: 1, inode: InodeId::new(1), uid: 7, gid: 8, pid: u32::MAX };
        assert_eq!(with_groups(&header), Credentials { uid: 7, gid: 8, groups: Vec::new() });
    }
}
