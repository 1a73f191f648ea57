#!/usr/bin/env bash
# The main job on real input, as a user would do it: a cluster of real processes, a mount, a kernel source tree and its
# tar copied in while a block server is killed, words counted where the data lies while another is killed; then the
# cluster follows the power of sun and wind (demo-power.sh), and goes on with less than two nodes need.
#
#   EBB_DEMO_TREE=DIR   use this tree (and a tar of it) instead of Debian's linux-source-6.1
#   EBB_DEMO_DIR=DIR    keep cluster and mount here (default: a new directory under target/demo, removed at the end)
set -euo pipefail
cd "$(dirname "$0")/.."

ebb=$PWD/target/debug/ebb
[ -n "${CARGO_TARGET_DIR:-}" ] && ebb=$CARGO_TARGET_DIR/debug/ebb
cache=$PWD/target/demo
mkdir -p "$cache"
work=${EBB_DEMO_DIR:-$(mktemp -d "$cache/run.XXXXXX")}
export EBB_DIR=$work/cluster
mnt=$work/mnt
started=$(date +%s)
nodes=9
killed=0
failed_ops=0
children=()

say() { printf '%s\n' "demo: $*"; }
die() { say "FAILED: $*"; exit 1; }
now_ms() { date +%s%3N; }
# come WHAT COMMAND...: waits until the command is true, for two minutes at most.
come() {
    local what=$1 deadline=$(($(date +%s) + 120))
    shift
    until "$@"; do
        [ "$(date +%s)" -lt "$deadline" ] || { "$ebb" fsck || true; die "$what did not come within 120 s"; }
        sleep 0.3
    done
}

cleanup() {
    local code=$?
    trap '' INT TERM
    for child in "${children[@]}"; do kill "$child" 2>/dev/null || true; done
    if [ -e "$EBB_DIR/cluster.toml" ]; then
        "$ebb" cluster down >/dev/null 2>"$work/down.err" || { cat "$work/down.err"; code=1; }
    fi
    case $code in
        0 | 130 | 143) [ -n "${EBB_DEMO_DIR:-}" ] || rm -rf "$work" ;;
        *) say "what is left to look at is in $work; logs in $EBB_DIR/log" ;;
    esac
    exit "$code"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# --- Input ------------------------------------------------------------------------------------------------------

fetch_kernel() {
    tree=$cache/linux
    tar=$cache/linux.tar
    [ -e "$cache/.fetched" ] && return
    say "fetching Debian's linux-source-6.1 (139 MB, once)"
    rm -rf "$cache/fetch" "$tree" "$tar"
    mkdir -p "$cache/fetch" "$tree"
    (cd "$cache/fetch" && { apt-get download linux-source-6.1 2>/dev/null || { apt-get update -qq && apt-get download linux-source-6.1; } } >/dev/null)
    dpkg-deb -x "$cache"/fetch/linux-source-6.1*.deb "$cache/fetch/x"
    xz -dc "$cache"/fetch/x/usr/src/linux-source-6.1.tar.xz >"$tar"
    local top
    top=$(tar -tf "$tar" | head -n 1 | cut -d/ -f1 || true)
    local parts=()
    for part in Documentation fs include kernel lib mm net sound; do parts+=("$top/$part"); done
    tar -xf "$tar" -C "$tree" --strip-components=1 "${parts[@]}"
    rm -rf "$cache/fetch"
    touch "$cache/.fetched"
}

if [ -n "${EBB_DEMO_TREE:-}" ]; then
    tree=$EBB_DEMO_TREE
    [ -d "$tree" ] || die "EBB_DEMO_TREE=$tree is not a directory"
    tar=$work/tree.tar
    mkdir -p "$work"
    tar -cf "$tar" -C "$(dirname "$tree")" "$(basename "$tree")"
else
    fetch_kernel
fi
# What Hadoop needs is fetched once, too. Where it cannot be had, its line of the demo says so.
hadoop_lacks=
if ! { bash tests/hadoop/install.sh && EBB=$ebb bash tests/hadoop/jar.sh; } >"$cache/hadoop.log" 2>&1; then
    hadoop_lacks=$(sed -n 's/^skipped: //p' "$cache/hadoop.log" | tail -n 1)
    : "${hadoop_lacks:=see $cache/hadoop.log}"
fi
started=$(date +%s)
tree_bytes=$(find "$tree" -type f -printf '%s\n' | awk '{s+=$1} END {print s+0}')
tar_bytes=$(stat -c %s "$tar")
say "input: $(find "$tree" -type f | wc -l) files, $tree_bytes bytes; and one file of $tar_bytes bytes"

# --- Cluster and mount ------------------------------------------------------------------------------------------

mkdir -p "$work" "$mnt"
"$ebb" cluster up --nodes $nodes --dead-after-ms 3000
# Two nodes hold everything, and the others come in one by one: with less power later, nodes go off before any blinks.
"$ebb" dataset set / --layout equal-work --primaries 2 >/dev/null
"$ebb" mount "$mnt"
"$ebb" cluster status

block_pid() { "$ebb" node list --json | jq -r --arg host "$1" '.[] | select(.host == $host) | .pid'; }

kill_block() { # kill_block HOST WHAT-IS-GOING-ON
    local pid
    pid=$(block_pid "$1")
    kill -9 "$pid" || die "no process $pid to kill"
    killed=$((killed + 1))
    say "killed -9 the block server on $1 (pid $pid) while $2"
}

# --- Copy in, with a death in the middle ------------------------------------------------------------------------

copied_bytes() { # of the large file, by now
    stat -c %s "$mnt/linux.tar" 2>/dev/null || echo 0
}

copy_start=$(now_ms)
cp -r "$tree" "$mnt/tree" 2>"$work/cp-tree.err" & cp_tree=$!
cp "$tar" "$mnt/linux.tar" 2>"$work/cp-tar.err" & cp_tar=$!
children+=("$cp_tree" "$cp_tar")
while kill -0 "$cp_tar" 2>/dev/null && [ "$(copied_bytes)" -lt $((tar_bytes * 3 / 10)) ]; do sleep 0.02; done
at=$(copied_bytes)
[ "$at" -le $((tar_bytes * 8 / 10)) ] || die "less than a fifth of the copy was left ($at of $tar_bytes bytes copied)"
kill_block h2 "copying ($((at * 100 / tar_bytes)) % of the large file copied)"
wait "$cp_tar" || { failed_ops=$((failed_ops + 1)); cat "$work/cp-tar.err"; }
tar_ms=$(($(now_ms) - copy_start))
wait "$cp_tree" || { failed_ops=$((failed_ops + 1)); head "$work/cp-tree.err"; }
tree_ms=$(($(now_ms) - copy_start))
children=()
say "copied the large file in $tar_ms ms ($((tar_bytes / 1000 / (tar_ms + 1))) MB/s), the tree in $tree_ms ms ($((tree_bytes / 1000 / (tree_ms + 1))) MB/s), side by side"
"$ebb" node start h2

# --- Where it lies ----------------------------------------------------------------------------------------------

"$ebb" fs locations /linux.tar | head -n 8
say "getfattr: $(getfattr --only-values -n user.ebb.locations "$mnt/linux.tar" | head -n 1)"

# --- Count words where the data lies, with a death in the middle --------------------------------------------------

count() { # count PATH NAME [HOST-TO-KILL]
    local progress=$work/$2.progress
    "$ebb" job count "$1" --json --progress >"$work/$2.json" 2>"$progress" &
    local job=$!
    children=("$job")
    if [ -n "${3:-}" ]; then
        local done=0 total=1
        while kill -0 "$job" 2>/dev/null && [ $((done * 10)) -lt "$total" ]; do
            read -r done total < <(jq -r 'select(.total_bytes != null) | "\(.done_bytes) \(.total_bytes)"' "$progress" 2>/dev/null | tail -n 1) || { done=0 total=1; }
            : "${done:=0}" "${total:=1}"
            sleep 0.02
        done
        [ $((done * 10)) -le $((total * 8)) ] || die "less than a fifth of the counting was left"
        kill_block "$3" "counting ($((done * 100 / total)) % done)"
    fi
    wait "$job" || { failed_ops=$((failed_ops + 1)); cat "$progress"; }
    children=()
    say "$1: $(cat "$work/$2.json")"
}

count /tree tree
count /linux.tar tar h5
"$ebb" job count /linux.tar --no-locations --json >"$work/blind.json"
say "the same without locations: $(cat "$work/blind.json")"

# --- Truth ------------------------------------------------------------------------------------------------------

source_tree=$(find "$tree" -type f -print0 | LC_ALL=C.UTF-8 xargs -0 -P 2 -n 500 wc -w | awk '$2 != "total" {s+=$1} END {printf "%d", s}')
source_tar=$(LC_ALL=C.UTF-8 wc -w <"$tar")
words=$(jq -s 'map(.words) | add' "$work/tree.json" "$work/tar.json")
source=$((source_tree + source_tar))
[ "$words" = "$source" ] || die "counted $words words, the source has $source"

# --- The same by MapReduce, while copies come back ------------------------------------------------------------------

# A part of the tree, for the demo is to stay short. Hadoop passes over names that begin with a dot or an underscore, and follows
# symbolic links: this part has neither.
hadoop_tree=/tree
[ ! -d "$tree/sound/pci" ] || hadoop_tree=/tree/sound/pci
count_by_mapreduce() {
    [ -z "$hadoop_lacks" ] || { say "MapReduce is left out: $hadoop_lacks" && return; }
    EBB=$ebb bash tests/hadoop/wordcount.sh "$EBB_DIR" "$hadoop_tree" /words >"$work/mapreduce" 2>"$work/mapreduce.err" &
    children=("$!")
}
same_by_mapreduce() {
    [ -z "$hadoop_lacks" ] || return 0
    wait "${children[0]}" || { cat "$work/mapreduce.err"; die "the MapReduce job failed"; }
    children=()
    local own
    own=$("$ebb" job count "$hadoop_tree" --json | jq .words)
    [ "$(cat "$work/mapreduce")" = "$own" ] || die "MapReduce counts $(cat "$work/mapreduce") words in $hadoop_tree, Ebb $own"
    say "$hadoop_tree: Hadoop's WordCount finds the same $own words through the connector"
    "$ebb" fs rm -r --skip-trash /words >/dev/null
}
count_by_mapreduce

# --- Copies come back, on the servers that are left ---------------------------------------------------------------

whole() { "$ebb" fsck --json >"$work/fsck.json" && { [ -z "${1:-}" ] || jq -e '.orphaned == 0' "$work/fsck.json" >/dev/null; }; }
healthy() { come "$1" whole "${2:-}"; } # healthy WHAT [NO-STRAYS]
# Copies move meanwhile, so the check that passes is the one that is shown.
shown_whole() { "$ebb" fsck >"$work/fsck.txt"; }
come "three copies of everything" shown_whole
cat "$work/fsck.txt"
same_by_mapreduce
replicas=$("$ebb" fs locations /linux.tar --json | jq '[.metablocks[].replicas | length] | min')

# --- The dead one returns, and gives up what others have by now ----------------------------------------------------

"$ebb" node start h5
h5_lives() { "$ebb" node list --json | jq -e '.[] | select(.host == "h5") | .state == "live" and all(.volumes[]; .state == "live")' >/dev/null; }
come "the node that returned" h5_lives
healthy "an end of excess replicas" no-strays
# What is read often gets extra copies meanwhile, of free space alone.
extra=$("$ebb" dataset show / --json | jq .extra_bytes)
used=$(du -sB1 "$EBB_DIR"/nodes | cut -f1)
percent=$(((used - extra) * 100 / (3 * (tree_bytes + tar_bytes))))
say "space: $used bytes on all volumes, $extra of them extra copies, for $((tree_bytes + tar_bytes)) bytes in 3 copies: $percent % without the extra ones"
[ "$percent" -le 125 ] || die "the volumes take more than 125 % of what is stored"
cmp "$tar" "$mnt/linux.tar" || die "the large file differs"

# --- Less power, and less, and the job goes on ----------------------------------------------------------------------

. scripts/demo-power.sh

[ "$failed_ops" = 0 ] || die "$failed_ops operations failed"
say "ok words=$words source=$source killed=$killed failed_ops=$failed_ops replicas=$replicas seconds=$(($(date +%s) - started))"
