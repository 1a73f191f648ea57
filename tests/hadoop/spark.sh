#!/usr/bin/env bash
# Spark on a running YARN, and on workers of its own: Parquet, tables, and streams. The driver of a stream, and one in
# the middle of a commit, are killed and started again.
#
# Usage: tests/hadoop/spark.sh RUN DIRECTORY
# RUN is the directory of yarn_start, DIRECTORY a URI that does not exist yet.
. "$(dirname "$0")/common.sh"
. "$here/spark-submit.sh"

run=$1 directory=$2
hadoop_fs "$run" -mkdir -p "$directory/events"

# session MASTER CODE DIRECTORY STEP...: one driver, that has to end with this code. It says itself what it checked.
session() {
    local begin=$EPOCHREALTIME code=0 log
    log=$run/logs/spark-${1%%[*}-$4
    spark_submit "$run" "$1" "$directory" "$here/spark_job.py" "${@:3}" >"$log" 2>&1 || code=$?
    printf 'spark %s on %s: %.1f s\n' "${*:4}" "$1" "$(awk "BEGIN { print $EPOCHREALTIME - $begin }")"
    grep '^  ok' "$log" || true
    if [ "$code" = "$2" ]; then code=0; else echo "Spark ended with $code" >>"$log" && code=1; fi
    expect "it ends with $2" "$code" "$log"
}

session yarn 0 "$directory/yarn" parquet table stream-source
# 137: by SIGKILL.
session yarn 137 "$directory/yarn" stream-killed
session yarn 137 "$directory/yarn" stream commit-killed
names=$(hadoop_fs "$run" -ls "$directory/yarn/many" | awk '{ print $NF }')
expect_same "a job that died in its commit leaves no _SUCCESS" "" "$(grep _SUCCESS <<<"$names" || true)"
echo "  $(grep -c /part- <<<"$names" || true) of 200 files had been committed"
session yarn 0 "$directory/yarn" commit
session 'local-cluster[2,1,700]' 0 "$directory/workers" parquet table
hadoop_fs "$run" -cat "$directory/events/*" 2>/dev/null | grep -o '"Locality":"[A-Z_]*"' | tr -d '"' | sort | uniq -c |
    awk '{ printf "%s%s of %d tasks", (NR > 1 ? ", " : "  "), $2, $1 } END { print "" }' || true
finish spark
