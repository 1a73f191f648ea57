#!/usr/bin/env bash
# Jobs on a YARN whose nodes sleep. First they blink: block server, NodeManager and containers of a host are frozen together, for
# seconds. Then half of the hosts go off for long, and the scheduler hears of it before.
#
# Usage: tests/hadoop/power.sh RUN DIRECTORY CLUSTER BYTES SPLIT_BYTES HOST...
# RUN is the directory of yarn_start, DIRECTORY a URI that does not exist yet, CLUSTER the directory of Ebb's cluster.
. "$(dirname "$0")/common.sh"
. "$here/counters.sh"
. "$here/rooms.sh"

run=$1 directory=$2 cluster=$3 bytes=$4 split=$5
shift 5
hosts=("$@")
splits=(-Dmapreduce.input.fileinputformat.split.maxsize="$split")
follower=
watcher=
end_helpers() {
    for pid in $follower $watcher; do kill "$pid" 2>/dev/null || true; done
    "$ebb" --dir "$cluster" power set --fraction 1 >/dev/null 2>&1 || true
}
trap end_helpers EXIT

# job NAME ARGUMENT...: ends well, and no attempt failed: whatever slept, the plan foresaw it.
job() {
    local name=$1 code=0
    shift
    run_job "$run" "$name" $examples "$@" || code=$?
    expect "$name ends well" "$code" "$job_log"
    expect_same "$name has no failed attempt" 0 "$(($(counter "Failed map tasks") + $(counter "Failed reduce tasks")))"
}

# validate NAME DIRECTORY: that TeraSort sorted all that TeraGen made.
validate() {
    local name=$1 sums
    job "validate-$name" teravalidate "$2" "$directory/validated-$name"
    sums=$(hadoop_fs "$run" -cat "$directory/validated-$name/part-*" 2>/dev/null | tr -s '\t\n' ' ' | sed 's/ $//')
    expect_same "every row of $name is there, in order" "checksum $generated" "$sums"
}

# watch_frozen FILE: writes down each host whose NodeManager is seen stopped.
watch_frozen() {
    local host pid
    while true; do
        for host in "${hosts[@]}"; do
            pid=$(cat "$run/pids/nodemanager-$host")
            [ "$(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null | cut -c1)" != T ] || echo "$host" >>"$1"
        done
        sleep 0.2
    done
}

sleep_along "$run" "$cluster" "${hosts[@]}"
job teragen-power teragen -Dmapreduce.job.maps=4 $((bytes / 100)) "$directory/tera"
generated=$(printf %x "$(counter CHECKSUM)")

# --- Blinks -------------------------------------------------------------------------------------------------------
follow_power "$cluster" "${#hosts[@]}" --policy blink-staggered --interval 6s
"$ebb" --dir "$cluster" power set --fraction 0.7 >/dev/null
watch_frozen "$run/frozen" &
watcher=$!
job terasort-blinking terasort "${splits[@]}" -Dmapreduce.job.reduces=2 "$directory/tera" "$directory/sorted-blinking"
kill "$watcher"
watcher=
slept=$(sort -u "$run/frozen" 2>/dev/null | wc -l)
code=0
[ "$slept" -ge 2 ] || code=1
expect "$slept of ${#hosts[@]} NodeManagers were seen frozen meanwhile, with their containers" "$code"
"$ebb" --dir "$cluster" power set --fraction 1 >/dev/null
validate blinking "$directory/sorted-blinking"

# --- A long absence -----------------------------------------------------------------------------------------------
"$ebb" --dir "$cluster" power policy activation >/dev/null
"$ebb" --dir "$cluster" yarn follow --rm "http://$master:8088" --absent 20s --lead 5s >"$run/logs/follow" 2>&1 &
follower=$!
"$ebb" --dir "$cluster" power set --fraction 0.6 >/dev/null
off=$((${#hosts[@]} / 2))
code=0
wait_until 60 "that hosts offer no room" has_rooms $((${#hosts[@]} - off)) || code=1
expect "the scheduler has heard that $off hosts go off" "$code" "$run/logs/follow"
job terasort-geared terasort "${splits[@]}" -Dmapreduce.job.reduces=2 "$directory/tera" "$directory/sorted-geared"
"$ebb" --dir "$cluster" power set --fraction 1 >/dev/null
code=0
wait_until 60 "that all hosts offer room" has_rooms "${#hosts[@]}" || code=1
expect "all hosts offer room again" "$code" "$run/logs/follow"
validate geared "$directory/sorted-geared"
finish power
