#!/usr/bin/env bash
# Localized storage nodes on hosts that are network namespaces with limited links: two racks, each with a storage node of
# four volumes and hosts without disks. Readers read from their own rack, also while a storage node dies. Jobs of YARN
# run beside their data, and one of them through the death of a storage node. RAID sets inside a storage node live through
# the loss of a disk, not through that of the node.
#
# Usage: tests/hadoop/sub-racks.sh [OPTION...] [PART...]
#   --hosts N    hosts of each rack (3)
#   --bytes N    what TeraSort sorts (64000000)
#   --file N     bytes of the file that is read (100663296)
#   --split N    bytes of a map's input (4194304)
#   --link MBIT  speed of each host's link, in each direction (100)
#   --lsn MBIT   speed of each storage node's link, and of the link between the racks (200)
# Parts: reader, jobs, disks (without one: all). Needs root, for namespaces and for disks that can fail.
#
# Ends with 0 when all is well, 1 when a check failed, 77 when it could not be tried.
. "$(dirname "$0")/common.sh"
. "$here/counters.sh"
. "$here/yarn.sh"
. "$here/links.sh"
. "$here/ebb.sh"

hosts=3 bytes=64000000 file=$((96 << 20)) split=$((4 << 20)) link=100 lsn_rate=200
parts=()
while [ $# -gt 0 ]; do
    case $1 in
        --hosts) hosts=$2 && shift ;;
        --bytes) bytes=$2 && shift ;;
        --file) file=$2 && shift ;;
        --split) split=$2 && shift ;;
        --link) link=$2 && shift ;;
        --lsn) lsn_rate=$2 && shift ;;
        reader | jobs | disks) parts+=("$1") ;;
        *)
            sed -n '/^# Usage/,/^# Parts/s/^# //p' "$0" >&2
            exit 2
            ;;
    esac
    shift
done
[ "${#parts[@]}" -gt 0 ] || parts=(reader jobs disks)
wants() { [[ " ${parts[*]} " == *" $1 "* ]]; }

export EBB_HADOOP_SERVED=$hosts
# shellcheck disable=SC2207
names=($(seq -f h%.0f $((2 * hosts))))
# A host of each rack.
near=h1 far=h$((hosts + 1))
work=$(mktemp -d /var/tmp/ebb-hadoop.XXXXXX)
run=$work/run
# Below the run, so that its processes are known as those of the run.
cluster=$run/cluster

# A file system of its own for each volume of a storage node.
make_disks() {
    local disk
    for disk in "$cluster"/nodes/lsn{1,2}/volume-{1,2,3,4}; do
        mkdir -p "$disk"
        truncate -s 512M "$disk.image"
        mkfs.ext4 -q "$disk.image"
        mount -o loop,noatime "$disk.image" "$disk"
        rmdir "$disk/lost+found"
    done
    chmod 700 "$cluster"
}
drop_disks() {
    local disk
    for disk in "$cluster"/nodes/lsn{1,2}/volume-{1,2,3,4}; do
        ! mountpoint -q "$disk" || umount "$disk" || umount -l "$disk"
    done
}

end() {
    local code=$? mount
    trap - EXIT
    trap '' INT TERM
    yarn_stop "$run" "${names[@]}"
    for mount in "$work"/mnt-*; do
        [ ! -d "$mount" ] || "$ebb" umount "$mount" >/dev/null 2>&1 || true
    done
    ebb_stop "$cluster" || code=1
    kill_java "$run"
    links_down || code=1
    drop_disks
    if [ "$code" = 1 ]; then echo "logs are in $run/logs" >&2; else rm -rf "$work"; fi
    exit "$code"
}
trap end EXIT

links_allowed || skip "hosts as network namespaces need root, ip and tc"
! wants jobs || {
    need_memory $((1500 + 1400 * hosts)) "$((2 * hosts)) hosts"
    bash "$here/jar.sh"
    bash "$here/install.sh"
}
links_up 2 "$link" lsn1 lsn2 "${names[@]}"
write_hosts "$run" lsn1 lsn2 "${names[@]}"
! wants disks || make_disks
ebb_start "$run" "$cluster" 2 lsn1 lsn2 "${names[@]}"

# in_cluster ARGUMENT...
in_cluster() { on_host master "$ebb" --dir "$cluster" "$@"; }
# on_mount HOST: mounts there, and sets `mnt`. A mount that is there already begins with an empty cache.
on_mount() {
    mnt=$work/mnt-$1
    [ ! -d "$mnt" ] || "$ebb" umount "$mnt" >/dev/null
    mkdir -p "$mnt"
    on_host "$1" "$ebb" --dir "$cluster" mount --host "$1" "$mnt" >/dev/null
}
# between_racks COMMAND...: sets `crossed` to the bytes that passed between the racks meanwhile.
between_racks() {
    local before code=0
    before=$(trunk_bytes)
    "$@" || code=$?
    crossed=$(($(trunk_bytes) - before))
    return "$code"
}
trunk_bytes() { link_bytes | awk '/^trunk/ { sum += $2 } END { printf "%.0f", sum }'; }
# seconds_since TIME: with tenths.
seconds_since() { awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $1 }"; }
# expect_less NAME VALUE LIMIT
expect_less() {
    local code=0
    [ "$2" -lt "$3" ] || code=1
    expect "$1" "$code"
}
kill_lsn() { kill_processes "$run" "block-$1"; }
# start_lsn NAME: returns when everything has all its copies again.
start_lsn() {
    start_block "$run" "$cluster" "$1"
    wait_until 60 "the return of $1" ebb_serves "$cluster" $((2 * hosts + 2))
    wait_until 120 "the return of all copies" in_cluster fsck
}
hash_on() { on_host "$1" sha256sum "$work/mnt-$1/data/file" | cut -d' ' -f1; }

# A writer waits while fewer than --min-copies storage nodes are there, and here are but two. A job's temporary files are in /.
in_cluster dataset set / --min-copies 1
in_cluster dataset create /data --layout lsn --min-copies 1
in_cluster dataset create /single --layout lsn --replicas 1

# Each rack reads its own copy. Then one storage node dies in the middle of a read in its own rack.
reader() {
    local host begin hash
    head -c "$file" /dev/urandom >"$work/file"
    hash=$(sha256sum "$work/file" | cut -d' ' -f1)
    on_mount $near
    begin=$EPOCHREALTIME
    between_racks on_host $near dd if="$work/file" of="$mnt/data/file" bs=1M conv=fsync status=none
    echo "$near wrote $((file >> 20)) MiB in $(seconds_since "$begin") s; $((crossed >> 20)) MiB between the racks"
    for host in $near $far; do
        on_mount "$host"
        begin=$EPOCHREALTIME
        between_racks hash_on "$host" >"$work/hash"
        echo "$host read $((file >> 20)) MiB in $(seconds_since "$begin") s; $((crossed >> 10)) KiB between the racks"
        expect_same "$host reads what was written" "$hash" "$(cat "$work/hash")"
        expect_less "$host reads within its rack" "$crossed" $((file / 50))
    done
    on_mount $far
    begin=$EPOCHREALTIME
    (sleep 2 && kill_lsn lsn2) &
    between_racks hash_on $far >"$work/hash"
    wait $!
    echo "$far read it in $(seconds_since "$begin") s while lsn2 died; $((crossed >> 20)) MiB between the racks"
    expect_same "a reader gets all bytes although its storage node dies" "$hash" "$(cat "$work/hash")"
    expect_less "most of them from the other rack" $((file / 4)) "$crossed"
    start_lsn lsn2
}

# Jobs on data in one copy, which is near to one rack only; then one on two copies while a storage node dies.
jobs() {
    local code=0 job
    take_connector "$run"
    core_site ebb "$run" "$split" "$cluster"
    write_xml "$run/conf/core-site.xml" "${core[@]}"
    yarn_conf "$run" $((2 * hosts)) /staging
    yarn_start "$run" "${names[@]}"
    echo "YARN on two sub-racks of $hosts hosts: ready after $SECONDS s"
    between_racks bash "$here/mapreduce.sh" "$run" ebb://test/single/mapreduce "$bytes" "$split" || code=1
    expect "jobs on one copy, $((crossed >> 20)) MiB between the racks" "$code"

    run_job "$run" rows $examples teragen -Dmapreduce.job.maps=$((2 * hosts)) $((bytes / 100)) ebb://test/data/rows ||
        expect "rows are made" 1 "$job_log"
    find_rows before
    find_rows while-lsn1-dies &
    job=$!
    wait_until 60 "the start of the job" has_tasks
    kill_lsn lsn1
    code=0
    wait "$job" || code=$?
    expect "a job ends well although a storage node dies" "$code" "$run/logs/job-while-lsn1-dies"
    expect_same "it finds what it found before" "$(found before)" "$(found while-lsn1-dies)"
    start_lsn lsn1
}
# find_rows NAME: greps all rows.
find_rows() {
    run_job "$run" "$1" $examples grep -Dmapreduce.input.fileinputformat.split.maxsize="$split" ebb://test/data/rows \
        "ebb://test/data/$1" 'E[0-9]E'
}
found() { hadoop_fs "$run" -cat "ebb://test/data/$1/part-*" | sort | sha256sum; }
# Whether a map of the job has ended, and others have not.
has_tasks() { grep -qE ' map [1-9][0-9]?%' "$run/logs/job-while-lsn1-dies"; }

# RAID sets inside a storage node.
disks() {
    local hash before code=0
    in_cluster dataset create /inside --layout lsn --min-copies 1
    head -c "$file" /dev/urandom >"$work/file"
    hash=$(sha256sum "$work/file" | cut -d' ' -f1)
    on_mount $near
    on_host $near dd if="$work/file" of="$mnt/inside/file" bs=1M conv=fsync status=none

    before=$(lsn_bytes)
    in_cluster dataset set /inside --redundancy 2+1 --domain volume --accept node-loss --encode immediate
    in_cluster raid encode /inside
    wait_until 120 "the copies to go" is_thin
    crossed=$(($(lsn_bytes) - before))
    echo "$((file >> 20)) MiB were encoded; the storage nodes' links carried $((crossed >> 10)) KiB meanwhile"
    expect_less "encoding needs no network" "$crossed" $((file / 20))
    expect_reads "what is encoded" "$hash"

    # A disk with cold data alone is found to have failed when something of it is read. Four metablocks in turn have some
    # of each disk. A network that made 36 MiB again would carry at least twice as much.
    sync && echo 3 >/proc/sys/vm/drop_caches
    on_mount $near
    before=$(lsn_bytes)
    xfs_io -x -c shutdown "$cluster/nodes/lsn1/volume-2"
    expect_same "a reader does not notice" "$(part_of "$work/file")" "$(part_of "$mnt/inside/file")"
    wait_until 120 "the loss to be made up for" is_whole_without volume-2
    crossed=$(($(lsn_bytes) - before))
    echo "what a disk had was made again; the storage nodes' links carried $((crossed >> 20)) MiB meanwhile, 16 of them to the reader"
    expect_less "a rebuild needs no network" "$crossed" $((file * 6 / 10))
    expect_reads "after the rebuild" "$hash"

    kill_lsn lsn1
    on_mount $far
    on_host $far timeout 300 cat "$mnt/inside/file" >"$work/read" 2>"$work/error" || code=$?
    echo "without its storage node: exit code $code, $(cat "$work/error")"
    expect "a reader is told that cold data are out of reach" $((code == 0 || code == 124))
    code=0
    in_cluster fsck >"$work/fsck" || true
    grep -m 3 -i "out of reach" "$work/fsck" || expect "fsck says so" 1
    start_lsn lsn1
    expect_reads "when it is back" "$hash"

    # Two copies would have to wait for a third storage node.
    in_cluster dataset set /inside --replicas 1 >/dev/null
    in_cluster --timeout 300s node drain lsn1 >"$work/drain" || code=$?
    expect "lsn1 is drained" "$code" "$work/drain"
    wait_until 60 "lsn1 to be empty" is_empty lsn1
    expect_reads "from the other storage node" "$hash"
    wait_until 120 "the RAID sets on lsn2" is_thin
    in_cluster raid status
    expect_reads "encoded on the other" "$hash"
}
# expect_reads WHEN HASH: each rack, with an empty cache.
expect_reads() {
    local host got
    for host in $near $far; do
        on_mount "$host"
        got=$(on_host "$host" sha256sum "$work/mnt-$host/inside/file" | cut -d' ' -f1)
        expect_same "$host reads what was written: $1" "$2" "$got"
    done
}
inside() { in_cluster raid status --json | jq -e ".datasets[] | select(.path == \"/inside\") | $1"; }
is_thin() { inside '.encoded_bytes > 0 and .due_bytes == 0 and .sealed_bytes == 0'; }
# part_of FILE: 16 MiB, of which the first metablock is left out: it has the turn of the second.
part_of() { dd if="$1" bs=1M skip=4 count=16 status=none | sha256sum; }
# is_whole_without VOLUME: of lsn1. A list with a volume that has failed ends with 1.
is_whole_without() {
    local nodes
    nodes=$(in_cluster node list --json) || true
    jq -e --arg volume "/$1" '.[] | select(.host == "lsn1") | .volumes[] | select(.path | endswith($volume)) | .state == "poisoned"' \
        <<<"$nodes" && inside '.lost_some == 0 and .lost_too_many == 0'
}
is_empty() { in_cluster node list --json | jq -e --arg host "$1" '.[] | select(.host == $host) | [.volumes[].replicas] | add == 0'; }
lsn_bytes() { link_bytes lsn1 lsn2 | awk '/^lsn/ { sum += $2 } END { printf "%.0f", sum }'; }

code=0
for part in "${parts[@]}"; do "$part"; done
in_cluster fsck || expect "the cluster is sound" 1
finish "sub-racks" || code=1
echo "sub-racks: $SECONDS s"
exit "$code"
