#!/usr/bin/env bash
# Spark on hosts that go off for long: `ebb yarn follow` has its executors there hear of it, and they move what they
# hold in memory to those that stay.
#
# Usage: tests/hadoop/decommission.sh RUN DIRECTORY CLUSTER HOST...
# RUN is the directory of yarn_start, DIRECTORY a URI that does not exist yet, CLUSTER the directory of Ebb's cluster.
. "$(dirname "$0")/common.sh"
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

power_is_told() { "$ebb" --dir "$cluster" power status --json >/dev/null 2>&1; }
is_cached() { [ -e "$flags/cached" ] || ! is_running "$job"; }
# gone COUNT: so many executors have ended after they had moved everything.
gone() { [ "$(grep -lE 'Finished decommissioning|all blocks migrated' "$run"/yarn/*/log/*/*/stderr 2>/dev/null | wc -l)" -ge "$1" ]; }

for host in "${hosts[@]}"; do
    "$ebb" --dir "$cluster" node attach "$host" "$(cat "$run/pids/nodemanager-$host")" >/dev/null
done
"$ebb" --dir "$cluster" cluster up --nodes "${#hosts[@]}" --policy activation --interval 20s >/dev/null
wait_until 60 "an answer about power" power_is_told
hadoop_fs "$run" -mkdir -p "$directory/events"
spark_submit "$run" yarn "$directory" --conf spark.executor.instances=4 --conf spark.decommission.enabled=true \
    --conf spark.storage.decommission.enabled=true --conf spark.storage.decommission.rddBlocks.enabled=true \
    --conf spark.storage.decommission.replicationReattemptInterval=1s "$here/spark_cache.py" "$flags" >"$log" 2>&1 &
job=$!
wait_until 150 "a table in the executors' memory" is_cached || true
# The command line of the executor's own Java, and not of the shell that started it.
"$ebb" --dir "$cluster" yarn follow --rm "http://$master:8088" --absent 20s --lead 30s \
    --leaving 'pkill -PWR -f "^[^ ]*java .*CoarseGrainedExecutorBackend .*--hostname $EBB_HOST "' >"$run/logs/follow-spark" 2>&1 &
follower=$!
"$ebb" --dir "$cluster" power set --fraction 0.6 >/dev/null
code=0
wait_until 90 "that executors have moved everything" gone 1 || code=1
expect "executors on hosts that go have heard of it, and moved what they held" "$code" "$run/logs/follow-spark"
touch "$flags/away"
code=0
wait "$job" || code=$?
job=
expect "the program ends well" "$code" "$log"
cat "$run/logs/follow-spark"
parts=$(sed -n 's/^parts \([0-9]*\) .*/\1/p' "$log")
expect_same "every part is still in memory" "${parts:-none}" "$(sed -n 's/^parts-after //p' "$log")"
expect_same "and the sums are" equal "$(sed -n 's/^sums //p' "$log")"
"$ebb" --dir "$cluster" power set --fraction 1 >/dev/null
finish decommission
