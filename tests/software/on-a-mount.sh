#!/usr/bin/env bash
# Real programs on a cluster of its own, and beside it the same on the host's file system: what passes there must pass
# on the mount. Everything is taken down again.
#
# Usage: tests/software/on-a-mount.sh [SUITE...]   (without one: all)
# SOFTWARE_LONG=1 asks for the long form.
. "$(dirname "$0")/common.sh"

suites=("$@")
[ "${#suites[@]}" -gt 0 ] || suites=("${all_suites[@]}")
for suite in "${suites[@]}"; do
    [[ " ${all_suites[*]} " == *" $suite "* ]] || {
        echo "there is no suite $suite; there are: ${all_suites[*]}" >&2
        exit 2
    }
done
work=$(mktemp -d /var/tmp/ebb-software.XXXXXX)
export EBB_DIR=$work/cluster EBB=$ebb
end() {
    local code=$?
    "$ebb" cluster down || code=1
    if [ "$code" = 0 ]; then rm -rf "$work"; else tail -n 20 "$EBB_DIR"/log/*.log; fi
    exit "$code"
}
trap end EXIT

bash "$here/install.sh" "${suites[@]}"
mkdir -p "$work/mnt" "$work/host"
chmod 755 "$work" "$work/host"
"$ebb" cluster up --nodes 4
# On a node's host, so that the node tells the master at once when a mount is killed.
"$ebb" mount --host h1 "$work/mnt"
# These programs pass on every host: one that fails there has shown nothing.
SUITES_IN=$here FAILS_ON_HOST=refused bash "$here/../posix/compare.sh" "$work/mnt" "$work/host" "${suites[@]}"
"$ebb" fsck
