#!/usr/bin/env bash
# One program on the connector, on a mount and on HDFS, in turns on one machine: medians, and the processor seconds that the whole
# machine spent for each. Use a machine that does nothing else.
#
# Usage: tests/hadoop/bench.sh [MIB [FILES [TURNS]]]      1024, 10000, 3
. "$(dirname "$0")/common.sh"
. "$here/hdfs.sh"
. "$here/yarn.sh"

mib=${1:-1024} files=${2:-10000} turns=${3:-3}
hosts=(h1 h2 h3)
work=$(mktemp -d /var/tmp/ebb-hadoop.XXXXXX)
run=$work/run
mnt=$work/mnt
end() {
    trap - EXIT INT TERM
    hdfs_stop "$run" "${hosts[@]}" || true
    [ ! -d "$work/cluster" ] || "$ebb" cluster down --dir "$work/cluster" >/dev/null || true
    kill_java "$run"
    rm -rf "$work"
}
trap end EXIT
trap 'exit 130' INT TERM

bash "$here/install.sh"
write_hosts "$run" "${hosts[@]}"
take_connector "$run"
core_site hdfs "$run" $((64 << 20)) "$work/cluster"
write_xml "$run/conf/core-site.xml" "${core[@]}" fs.ebb.impl ebb.hadoop.EbbFileSystem fs.ebb.cluster.test "$work/cluster"
cp "$here/log4j.properties" "$run/conf"
hdfs_conf "$run" 3 $((64 << 20))
"$ebb" cluster up --dir "$work/cluster" --nodes 3 --replicas 3 >/dev/null
mkdir "$mnt"
"$ebb" mount --dir "$work/cluster" --host h1 "$mnt" >/dev/null
hdfs_start "$run" "${hosts[@]}"

declare -A uris=([ebb]=ebb://test/bench [mount]=file://$mnt/bench-mount [hdfs]=hdfs://master:8020/bench)
for ((turn = 1; turn <= turns; turn++)); do
    for system in ebb mount hdfs; do
        in_java "$run" 1g FileSystemBench "${uris[$system]}" "$mib" "$files"
        # As a server in a data centre would run it: with all of the compiler.
        NM_HOST=h1 "${java_command[@]/-XX:TieredStopAtLevel=1/-XX:+TieredCompilation}" 2>"$run/logs/bench-$system" |
            sed "s/^/$system /" >>"$work/figures" || { cat "$run/logs/bench-$system" >&2; exit 1; }
        sync
    done
done
median() { sort -n | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
printf '%-14s %20s %20s %20s\n' "" "connector (CPU s)" "mount (CPU s)" "HDFS (CPU s)"
for figure in $(awk '{ print $2 }' "$work/figures" | awk '!seen[$0]++'); do
    printf '%-14s' "$figure"
    for system in ebb mount hdfs; do
        of=$(awk -v s="$system" -v f="$figure" '$1 == s && $2 == f' "$work/figures")
        printf ' %12.0f (%5.2f)' "$(awk '{ print $3 }' <<<"$of" | median)" "$(awk '{ print $5 }' <<<"$of" | median)"
    done
    printf ' %s\n' "$(awk -v f="$figure" '$2 == f { print $4; exit }' "$work/figures")"
done
