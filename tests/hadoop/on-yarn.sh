#!/usr/bin/env bash
# Real jobs on a real YARN whose NodeManagers have the names of the file system's hosts. A cluster is started for it,
# and everything is taken down again. The same on HDFS is what Ebb is compared with.
#
# Usage: tests/hadoop/on-yarn.sh [OPTION...] [SUITE...]
#   --on ebb|hdfs|file  the file system (ebb)
#   --hosts N           hosts, in two racks (4)
#   --replicas N        copies (2)
#   --bytes N           what TeraSort sorts (64000000)
#   --split N           bytes of a map's input, of a metablock or block; whole MiB (4194304)
#   --keep              keep the logs
# Suites: mapreduce (without one: this), spark, faults, dfsio; on ebb alone: power, decommission.
#
# Ends with 0 when all is well, 1 when a check failed, 77 when it could not be tried.
. "$(dirname "$0")/common.sh"
. "$here/hdfs.sh"
. "$here/yarn.sh"

file_system=ebb hosts=4 replicas=2 bytes=64000000 split=4194304 keep=no
suites=()
while [ $# -gt 0 ]; do
    case $1 in
        --on) file_system=$2 && shift ;;
        --hosts) hosts=$2 && shift ;;
        --replicas) replicas=$2 && shift ;;
        --bytes) bytes=$2 && shift ;;
        --split) split=$2 && shift ;;
        --keep) keep=yes ;;
        mapreduce | spark | faults | dfsio | power | decommission) suites+=("$1") ;;
        *)
            sed -n '/^# Usage/,/^# Suites/s/^# //p' "$0" >&2
            exit 2
            ;;
    esac
    shift
done
[ "${#suites[@]}" -gt 0 ] || suites=(mapreduce)
[[ $file_system =~ ^(ebb|hdfs|file)$ ]] || {
    echo "there is no file system $file_system; there are: ebb, hdfs, file" >&2
    exit 2
}

case $file_system in
    ebb) root=ebb://test/hadoop staging=/staging ;;
    hdfs) root=hdfs://master:8020/hadoop staging=/staging ;;
esac
work=$(mktemp -d /var/tmp/ebb-hadoop.XXXXXX)
run=$work/run
names=$(seq -f h%.0f "$hosts")
# shellcheck disable=SC2206
names=($names)
write_hosts "$run" "${names[@]}"

end() {
    local code=$?
    trap - EXIT
    trap '' INT TERM
    yarn_stop "$run" "${names[@]}"
    case $file_system in
        hdfs) hdfs_stop "$run" "${names[@]}" ;;
        ebb) [ ! -d "$work/cluster" ] || "$ebb" cluster down --dir "$work/cluster" >/dev/null || code=1 ;;
    esac
    kill_java "$run"
    if [[ $keep = no && $code != 1 ]]; then
        rm -rf "$work"
    else
        echo "logs are in $run/logs, and those of containers in $run/yarn/*/log" >&2
    fi
    exit "$code"
}
trap end EXIT

bash "$here/install.sh" "$([[ " ${suites[*]} " != *" "@(spark|decommission)" "* ]] || echo spark)"
if curl -s -o /dev/null --connect-timeout 1 "http://$master:8088"; then
    skip "another run uses $network.*: set EBB_HADOOP_NETWORK, for example to 127.0.2"
fi
[ "$file_system" != file ] || root=file://$run/data staging=$run/staging
need_memory $((1500 + 700 * hosts)) "$hosts hosts"
core_site "$file_system" "$run" "$split" "$work/cluster"
write_xml "$run/conf/core-site.xml" "${core[@]}"
[[ " ${suites[*]} " != *" faults "* ]] || nodemanager_expiry=15000
yarn_conf "$run" "$hosts" "$staging"
export EXPECT_LOCAL=${EXPECT_LOCAL:-90}
case $file_system in
    ebb)
        take_connector "$run"
        "$ebb" cluster up --dir "$work/cluster" --nodes "$hosts" --racks 2 --replicas "$replicas" >/dev/null
        layout=()
        if [[ " ${suites[*]} " == *" "@(power|decommission)" "* ]]; then
            # Two nodes hold everything, also what jobs put into the default dataset, and the others can go off.
            layout=(--layout equal-work --primaries 2)
            "$ebb" dataset set --dir "$work/cluster" / "${layout[@]}" >/dev/null
        fi
        # Another dataset may have other primaries, and too little power for both stops one of them.
        if [[ " ${suites[*]} " != *" decommission "* ]]; then
            "$ebb" dataset create --dir "$work/cluster" "${layout[@]}" --replicas "$replicas" \
                --metablock "$((split >> 20))MiB" /hadoop
        fi
        ;;
    hdfs)
        hdfs_conf "$run" "$replicas" "$split"
        hdfs_start "$run" "${names[@]}"
        ;;
    # No file is beside any host.
    file) EXPECT_LOCAL=0 ;;
esac
yarn_start "$run" "${names[@]}"
echo "YARN on $file_system, $hosts hosts: ready after $SECONDS s"

code=0
for suite in "${suites[@]}"; do
    case $suite in
        mapreduce) bash "$here/mapreduce.sh" "$run" "$root/mapreduce" "$bytes" "$split" || code=1 ;;
        power | decommission)
            [ "$file_system" = ebb ] || { echo "$suite: only Ebb's nodes sleep" && continue; }
            sizes=()
            [ "$suite" != power ] || sizes=("$bytes" "$split")
            bash "$here/$suite.sh" "$run" "$root/$suite" "$work/cluster" "${sizes[@]}" "${names[@]}" || code=1
            ;;
        faults)
            whole=("$work/cluster")
            [ "$file_system" = ebb ] || whole=()
            bash "$here/faults.sh" "$run" "$root/faults" "${whole[@]}" || code=1
            ;;
        *) bash "$here/$suite.sh" "$run" "$root/$suite" || code=1 ;;
    esac
done
if [ "$file_system" = ebb ]; then
    "$ebb" fsck --dir "$work/cluster" || code=1
fi
echo "on-yarn on $file_system: $SECONDS s"
exit "$code"
