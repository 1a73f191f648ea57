#!/usr/bin/env bash
# Counts the words of all files below a path of Ebb: Hadoop's WordCount through the connector, in one JVM without YARN.
# Prints their number.
#
# Usage: tests/hadoop/wordcount.sh CLUSTER PATH RESULT
# CLUSTER is the directory of a running cluster. RESULT is a path of Ebb that does not exist yet; it gets the counts.
# Ends with 77 when it cannot be tried.
. "$(dirname "$0")/common.sh"
. "$here/counters.sh"
. "$here/yarn.sh"

cluster=$1 path=$2 result=$3
run=$(mktemp -d /var/tmp/ebb-hadoop.XXXXXX)
trap 'rm -rf "$run"' EXIT
write_hosts "$run"
take_connector "$run"
core_site ebb "$run" 0 "$cluster"
# Without the mapping to racks: no scheduler asks for any.
write_xml "$run/conf/core-site.xml" "${core[@]:0:10}" mapreduce.framework.name local \
    mapreduce.local.map.tasks.maximum 2 mapreduce.task.io.sort.mb 64
cp "$here/log4j.properties" "$run/conf"
# Small files share a map.
hadoop "$run" "$examples" wordcount \
    -Dmapreduce.job.inputformat.class=org.apache.hadoop.mapreduce.lib.input.CombineTextInputFormat \
    -Dmapreduce.input.fileinputformat.split.maxsize=$((64 << 20)) \
    -Dmapreduce.input.fileinputformat.input.dir.recursive=true \
    "ebb://test$path" "ebb://test$result" >"$run/logs/job" 2>&1 || {
    show_logs "$run" job
    exit 1
}
"$ebb" --dir "$cluster" fs cat "$result/part-r-00000" | awk -F '\t' '{ words += $2 } END { printf "%d\n", words }'
