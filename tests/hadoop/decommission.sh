#!/usr/bin/env bash
# Spark on hosts that go off for long, by a supply that is known ahead: `ebb yarn follow` has the executors there hear of
# it before. They move what they hold in memory to others.
#
# Usage: tests/hadoop/decommission.sh RUN DIRECTORY CLUSTER HOST...
# RUN is the directory of yarn_start, DIRECTORY a URI that does not exist yet, CLUSTER the directory of Ebb's cluster.
# Two hosts have to hold everything: they stay.
. "$(dirname "$0")/common.sh"
. "$here/rooms.sh"
. "$here/spark-submit.sh"

run=$1 directory=$2 cluster=$3
shift 3
hosts=("$@")
flags=$run/flags
log=$run/logs/spark-cache
follower= job=
mkdir -p "$flags"
end_helpers() {
    for pid in $follower $job; do kill "$pid" 2>/dev/null || true; done
    "$ebb" --dir "$cluster" power set --fraction 1 >/dev/null 2>&1 || true
}
trap end_helpers EXIT

is_flagged() { [ -e "$flags/$1" ] || ! is_running "$job"; }
# are_off COUNT: so many hosts.
are_off() { [ "$("$ebb" --dir "$cluster" power status --json | jq '[.nodes[] | select(.state == "asleep")] | length')" = "$1" ]; }
# moved COUNT: so many executors have ended after they had moved everything.
moved() {
    local count
    count=$(cat "$run"/yarn/*/log/*/*/stderr 2>/dev/null | grep -c 'all blocks migrated')
    [ "$count" -ge "$1" ] || ! is_running "$job"
}

sleep_along "$run" "$cluster" "${hosts[@]}"
follow_power "$cluster" "${#hosts[@]}" --policy activation --interval 10s --battery-seconds 0
# Half of the hosts are off, then all are on while a table is made, then half are off for long.
printf '%s\n' seconds,fraction 0,0.6 70,1 220,0.6 900,0.6 >"$run/supply.csv"
"$ebb" --dir "$cluster" power follow "$run/supply.csv" >/dev/null
# The command line of the executor's own Java, and not of the shell that started it.
"$ebb" --dir "$cluster" yarn follow --rm "http://$master:8088" --absent 60s --lead 40s \
    --leaving 'pkill -PWR -f "^[^ ]*java .*CoarseGrainedExecutorBackend .*--hostname $EBB_HOST "' >"$run/logs/follow-spark" 2>&1 &
follower=$!
# The application's master begins on a host that stays: with it, all executors would go.
code=0
wait_until 40 "that only hosts that stay offer room" has_rooms 2 || code=1
expect "the scheduler has heard which hosts are off" "$code" "$run/logs/follow-spark"
hadoop_fs "$run" -mkdir -p "$directory/events"
# The hosts that stay have room for three of them.
spark_submit "$run" yarn "$directory" --conf spark.executor.instances=5 --conf spark.executor.memory=1400m \
    --conf spark.decommission.enabled=true --conf spark.storage.decommission.enabled=true \
    --conf spark.storage.decommission.rddBlocks.enabled=true \
    --conf spark.storage.decommission.replicationReattemptInterval=1s "$here/spark_cache.py" "$flags" >"$log" 2>&1 &
job=$!
wait_until 200 "a table in the executors' memory" is_flagged cached || true
code=0
wait_until 240 "that executors have moved everything" moved 2 || code=1
expect "executors on hosts that go have heard of it, and moved what they held" "$code" "$run/logs/follow-spark"
code=0
wait_until 60 "that their hosts are off" are_off 2 || code=1
expect "then their hosts go" "$code" "$run/logs/follow-spark"
touch "$flags/away"
code=0
wait "$job" || code=$?
job=
expect "the program ends well" "$code" "$log"
cat "$run/logs/follow-spark"
grep '^parts' "$log" || true
parts=$(sed -n 's/^parts \([0-9]*\) .*/\1/p' "$log")
expect_same "every part is still in memory" "${parts:-none}" "$(sed -n 's/^parts-after //p' "$log")"
expect_same "and the sums are" equal "$(sed -n 's/^sums //p' "$log")"
"$ebb" --dir "$cluster" power set --fraction 1 >/dev/null
code=0
wait_until 90 "a healthy file system" "$ebb" --dir "$cluster" fsck || code=1
expect "all is well once the hosts are back" "$code"
finish decommission
