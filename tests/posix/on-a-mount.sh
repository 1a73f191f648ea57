#!/usr/bin/env bash
# The whole comparison on a cluster of its own: four nodes, a mount, every suite, everything taken down again.
#
# Usage: tests/posix/on-a-mount.sh [SUITE...]
. "$(dirname "$0")/common.sh"

ebb=${CARGO_TARGET_DIR:-$repository/target}/debug/ebb
work=$(mktemp -d /var/tmp/ebb-posix.XXXXXX)
export EBB_DIR=$work/cluster
end() {
    local code=$?
    "$ebb" cluster down || code=1
    if [ "$code" = 0 ]; then rm -rf "$work"; else tail -n 20 "$EBB_DIR"/log/*.log; fi
    exit "$code"
}
trap end EXIT

bash "$here/install.sh"
mkdir -p "$work/mnt" "$work/host"
chmod 755 "$work"
"$ebb" cluster up --nodes 4
"$ebb" mount "$work/mnt"
bash "$here/compare.sh" "$work/mnt" "$work/host" "$@"
sync -f "$work/mnt"
"$ebb" fsck
