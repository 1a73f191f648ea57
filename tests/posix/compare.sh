#!/usr/bin/env bash
# Runs every suite on a mount and on a directory of the host's own file system, prints both lines, and fails unless
# everything that passes on the host passes on the mount.
#
# Usage: tests/posix/compare.sh MOUNT [HOST_DIRECTORY] [SUITE...]   (suites: pjdfstest fsx fio-verify)
# $SUITES_IN: another folder with suites, and a host-only.txt of its own.
# $FAILS_ON_HOST=refused: what fails on the host fails the run. Without it such a check is left out of the comparison.
. "$(dirname "$0")/common.sh"

folder=${SUITES_IN:-$here}

mount=${1:?"usage: compare.sh MOUNT [HOST_DIRECTORY] [SUITE...]"}
host=${2:-${TMPDIR:-/var/tmp}}
suites=("${@:3}")
lists=$(mktemp -d)
trap 'rm -rf "$lists"' EXIT

status=0
for suite in "${suites[@]:-pjdfstest fsx fio-verify}"; do
    for name in $suite; do
        # A failure on either side is judged below: what fails on the host may fail on the mount.
        POSIX_RESULTS=$lists/host bash "$folder/$name.sh" "$host" || true
        POSIX_RESULTS=$lists/mount bash "$folder/$name.sh" "$mount" || true
        # What no FUSE mount can be asked is named in host-only.txt, and must be skipped there, not failed.
        grep -v '^#' "$folder/host-only.txt" | cut -f1 | sed 's/$/\tskipped/' | sort |
            comm -12 - <(sort "$lists/mount") | cut -f1 >"$lists/excused"
        while read -r test; do
            echo "$name: $test is not compared: $(grep "^$test"$'\t' "$folder/host-only.txt" | cut -f2)"
        done <"$lists/excused"
        missing=$(comm -23 <(grep $'\tok$' "$lists/host" | cut -f1 | sort) \
            <({ grep $'\tok$' "$lists/mount" | cut -f1; cat "$lists/excused"; } | sort))
        if [ ! -s "$lists/host" ] || [ ! -s "$lists/mount" ]; then
            echo "$name: one side left no results" >&2
            status=1
        elif [ "${FAILS_ON_HOST:-allowed}" = refused ] && failing=$(grep $'\tfailed$' "$lists/host" | cut -f1); then
            echo "$name: fails on the host, so the mount was compared with nothing:" >&2
            echo "$failing" | sed 's/^/    /' >&2
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
