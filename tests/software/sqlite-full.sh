#!/usr/bin/env bash
# SQLite on a full volume: a transaction that finds no room fails with SQLITE_FULL and nothing else, the database is sound
# and has every earlier one, and once something else was removed it goes on.
#
# Usage: tests/software/sqlite-full.sh DIRECTORY
# On Ebb it runs on a cluster of its own, of which one of three nodes has a small disk; on others, on a small disk.
. "$(dirname "$0")/common.sh"

begin sqlite-full "$1"
# Large beside what a volume keeps for its journal.
disk_mib=768
# What is left to the database by what else lies there: more than the room that is promised to open files for what they
# may write next, and given back a while after they are closed.
left_mib=80
as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo -n)
small=$work/small
disk=$small
of_its_own=

down() {
    [ -z "$of_its_own" ] || "$ebb" cluster down || true
    ! mountpoint -q "$disk" || "${as_root[@]}" umount --lazy "$disk"
    rm -rf "$work" "$scratch"
}
trap down EXIT

small_disk() { "${as_root[@]}" mount -t tmpfs -o "size=${disk_mib}m,mode=0777" tmpfs "$disk"; }

mkdir "$small"
if on_ebb; then
    # Beside the mount: a cluster on itself would be another question.
    of_its_own=$scratch/cluster
    export EBB_DIR=$of_its_own
    disk=$of_its_own/nodes/h1
    "$ebb" cluster up --nodes 3 >/dev/null
    "$ebb" cluster down
    mv "$disk" "$scratch/away" && mkdir "$disk" && small_disk && cp -a "$scratch/away/." "$disk"
    "$ebb" cluster up --nodes 3 >/dev/null
    small=$scratch/mnt
    mkdir "$small" && "$ebb" mount "$small"
else
    small_disk
fi

for mode in delete wal; do
    check "$mode: full and again" $python "$here/sqlite_full.py" "$small" "$mode" "$left_mib"
done
# The cluster has lost nothing, either. On other file systems there is nobody to ask.
sound=(true)
[ -z "$of_its_own" ] || sound=("$ebb" fsck)
check "sound afterwards" "${sound[@]}"
finish
