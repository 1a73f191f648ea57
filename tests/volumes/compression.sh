#!/usr/bin/env bash
# Frozen metablocks on btrfs: they shrink, and the bytes stay the same while block servers die. Needs root, for a loop device.
#
# Usage: tests/volumes/compression.sh
set -euo pipefail

repository=$(cd "$(dirname "$0")/../.." && pwd)
ebb=${EBB:-${CARGO_TARGET_DIR:-$repository/target}/debug/ebb}
work=$(mktemp -d)
mnt=$work/btrfs
cluster=$mnt/cluster
failed=0

end() {
    local code=$?
    [ ! -e "$cluster/cluster.toml" ] || "$ebb" --dir "$cluster" cluster down >/dev/null || true
    ! mountpoint -q "$mnt" || umount "$mnt" || umount -l "$mnt"
    if [ "$code" = 0 ]; then rm -rf "$work"; else echo "what is left is in $work" >&2; fi
}
trap end EXIT

expect() { # expect NAME COMMAND...
    local name=$1
    shift
    if "$@"; then echo "ok      $name"; else echo "FAILED  $name"; failed=$((failed + 1)); fi
}
in_cluster() { "$ebb" --dir "$cluster" "$@"; }
# wait_until SECONDS WHAT COMMAND...
wait_until() {
    local end=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || { echo "compression: waited in vain for $what" >&2; exit 1; }
        sleep 0.5
    done
}
total() { in_cluster node list --json | jq "[.[].volumes[].$1] | add"; }
all_live() { in_cluster node list --json | jq -e 'map(select(.state == "live")) | length == 4'; }
is_encoded() {
    in_cluster raid status --json |
        jq -e '.datasets[] | select(.path == "/cold") | .encoded_bytes > .user_bytes * 0.9 and .sealed_bytes == 0'
}
kill_block_server() { # kill_block_server HOST
    kill -9 "$(in_cluster cluster status --json |
        jq -e --arg host "$1" '.processes[] | select(.role == "block" and .host == $host) | .pid')"
}
# is_compressed LEAST
is_compressed() { [ "$(total compressed_bytes)" -ge "$1" ]; }
used_mib() {
    sync -f "$mnt"
    echo $(($(df --output=used -k "$mnt" | tail -n 1) / 1024))
}
read_sum() { in_cluster fs cat /cold/log | sha256sum | cut -d' ' -f1; }
is_right() { [ "$(read_sum)" = "$sum" ]; }

mkdir "$mnt"
truncate -s 4G "$work/image"
mkfs.btrfs -q "$work/image" >/dev/null
mount -o loop,noatime "$work/image" "$mnt" 2>"$work/error" || {
    echo "compression: skipped, no btrfs can be mounted here: $(cat "$work/error")"
    exit 0
}
in_cluster cluster up --nodes 4 --racks 1 >/dev/null

# Text as logs are: about 170 MB.
awk 'BEGIN {
    srand(1)
    for (line = 0; line < 2000000; line++)
        printf "2026-11-24T10:00:%06.3fZ INFO request %08x of user %d answered with 200 in %d ms\n", \
            line % 60000 / 1000, rand() * 4294967296, rand() * 100000, rand() * 300
}' >"$work/log"
size=$(stat -c %s "$work/log")
sum=$(sha256sum <"$work/log" | cut -d' ' -f1)
in_cluster dataset create /cold --replicas 2 --metablock 4MiB --redundancy 2+1 --encode immediate >/dev/null
in_cluster fs put "$work/log" /cold/log
wait_until 120 "the RAID sets" is_encoded
wait_until 60 "the copies to go" in_cluster fsck
plain=$(used_mib)
expect "nothing is compressed before it is asked for" [ "$(total compressed_bytes)" = 0 ]

# The administrator sets it while all is in use; block servers die in the middle of it, and come back.
for volume in "$cluster"/nodes/*/volume-1; do setfattr -n btrfs.compression -v zstd "$volume"; done
wait_until 60 "the first compressed replica" is_compressed 1
for host in h1 h3; do
    kill_block_server "$host"
    in_cluster node start "$host" >/dev/null
done
wait_until 60 "four block servers" all_live
# With the rows it is half as much again. The last metablocks may find no others for a RAID set.
wait_until 180 "all to be compressed" is_compressed $((size * 3 / 2 * 9 / 10))
compressed=$(used_mib)
echo "        $plain MiB are $compressed MiB"
expect "what is frozen takes less than half" [ $((2 * compressed)) -lt "$plain" ]
expect "the bytes are those that were written" is_right
expect "every byte agrees with its checksum" in_cluster fsck --scrub
expect "writes go on" in_cluster fs put "$work/log" /cold/later
in_cluster fs rm /cold/later
kill_block_server h2
expect "they are decoded from what is compressed" is_right
in_cluster node start h2 >/dev/null
wait_until 60 "four block servers" all_live
[ "$failed" = 0 ] && echo "compression: all as expected"
exit $((failed > 0))
