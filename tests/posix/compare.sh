#!/usr/bin/env bash
# Runs every suite on a mount and on a directory of the host's own file system, prints both lines, and fails unless
# everything that passes on the host passes on the mount.
#
# Usage: tests/posix/compare.sh MOUNT [HOST_DIRECTORY] [SUITE...]   (suites: pjdfstest fsx fio-verify)
. "$(dirname "$0")/common.sh"

mount=${1:?"usage: compare.sh MOUNT [HOST_DIRECTORY] [SUITE...]"}
host=${2:-${TMPDIR:-/var/tmp}}
suites=("${@:3}")
lists=$(mktemp -d)
trap 'rm -rf "$lists"' EXIT

status=0
for suite in "${suites[@]:-pjdfstest fsx fio-verify}"; do
    for name in $suite; do
        # A failure on either side is judged below: what fails on the host may fail on the mount.
        POSIX_RESULTS=$lists/host "$here/$name.sh" "$host" || true
        POSIX_RESULTS=$lists/mount "$here/$name.sh" "$mount" || true
        missing=$(comm -23 <(grep $'\tok$' "$lists/host" | sort) <(grep $'\tok$' "$lists/mount" | sort) | cut -f1)
        if [ ! -s "$lists/host" ] || [ ! -s "$lists/mount" ]; then
            echo "$name: one side left no results" >&2
            status=1
        elif [ -n "$missing" ]; then
            echo "$name: passes on the host and not on the mount:" >&2
            echo "$missing" | sed 's/^/    /' >&2
            status=1
        fi
        rm -f "$lists/host" "$lists/mount"
    done
done
exit $status
