#!/usr/bin/env bash
# Fig. 2 of the metablocks paper: grep, TeraGen and TeraSort on HDFS and on Ebb, in turns, on hosts that are network
# namespaces with limited links. Then the two routes of a write to its copies, and what POSIX offers beside MapReduce.
# `ebb lab metablocks --figure 2` runs it and draws.
#
# Usage: tests/hadoop/figure2.sh [OPTION...] [PART...]
#   --hosts N      hosts (6)
#   --bytes N      input (201326592)
#   --split N      bytes of a map's input, of a metablock or block; whole MiB (16777216)
#   --link MBIT    speed of each host's link, and of the link between racks, in each direction (40)
#   --rounds N     repeats (3)
#   --racks LIST   comma-separated (1,2)
#   --copies LIST  comma-separated (1,2)
#   --systems LIST comma-separated: hdfs, ebb, striped; file, where no file system is between jobs and the machine's disk
#                  (hdfs,ebb,striped)
#   --log FILE     where progress is told (stderr)
# Parts: jobs, routes, posix (without one: all). Needs root, for the namespaces.
#
# Prints a JSON line for each measurement. Ends with 0 when all could be measured and every result was right, 1 when not,
# 77 when it could not be tried.
. "$(dirname "$0")/common.sh"
. "$here/counters.sh"
. "$here/hdfs.sh"
. "$here/yarn.sh"
. "$here/links.sh"
. "$here/ebb.sh"

hosts=6 bytes=$((192 << 20)) split=$((16 << 20)) link=40 rounds=3 all_racks=1,2 all_copies=1,2 systems=hdfs,ebb,striped log=/dev/stderr
parts=()
while [ $# -gt 0 ]; do
    case $1 in
        --hosts) hosts=$2 && shift ;;
        --bytes) bytes=$2 && shift ;;
        --split) split=$2 && shift ;;
        --link) link=$2 && shift ;;
        --rounds) rounds=$2 && shift ;;
        --racks) all_racks=$2 && shift ;;
        --copies) all_copies=$2 && shift ;;
        --systems) systems=$2 && shift ;;
        --log) log=$2 && shift ;;
        jobs | routes | posix) parts+=("$1") ;;
        *)
            sed -n '/^# Usage/,/^# Parts/s/^# //p' "$0" >&2
            exit 2
            ;;
    esac
    shift
done
[ "${#parts[@]}" -gt 0 ] || parts=(jobs routes posix)
wants() { [[ " ${parts[*]} " == *" $1 "* ]]; }
say() { echo "$*" >>"$log"; }
for system in ${systems//,/ }; do
    [[ $system =~ ^(hdfs|ebb|striped|file)$ ]] || { echo "--systems: there is no $system" >&2 && exit 2; }
done

# shellcheck disable=SC2207
names=($(seq -f h%.0f "$hosts"))
work=$(mktemp -d /var/tmp/ebb-hadoop.XXXXXX)
run=$work/run
mnt=$work/mnt
cluster=$work/cluster
wrong=0

stop_all() {
    yarn_stop "$run" "${names[@]}"
    hdfs_stop "$run" "${names[@]}"
    ebb_stop "$cluster"
    kill_java "$run"
    links_down
}
end() {
    local code=$?
    trap - EXIT
    trap '' INT TERM
    stop_all || code=1
    if [ "$code" = 1 ]; then say "logs are in $run/logs"; else rm -rf "$work"; fi
    exit "$code"
}
trap end EXIT

links_allowed || skip "hosts as network namespaces need root, ip and tc"
need_memory $((3000 + 1500 * hosts)) "$hosts hosts"
bash "$here/jar.sh" >&2
bash "$here/install.sh" >&2

# start_all RACKS: both file systems, and a YARN that runs jobs on either.
start_all() {
    local copies system system_options
    rm -rf "$run" "$cluster"
    links_up "$1" "$link" "${names[@]}"
    write_hosts "$run" "${names[@]}"
    take_connector "$run"
    core_site hdfs "$run" "$split" "$cluster"
    write_xml "$run/conf/core-site.xml" "${core[@]}" fs.ebb.impl ebb.hadoop.EbbFileSystem \
        fs.AbstractFileSystem.ebb.impl ebb.hadoop.EbbFs fs.ebb.cluster.test "$cluster"
    hdfs_conf "$run" 1 "$split"
    yarn_conf "$run" "$hosts" /staging
    hdfs_start "$run" "${names[@]}"
    ebb_start "$run" "$cluster" 2 "${names[@]}"
    for copies in ${all_copies//,/ }; do
        for system in ${systems//,/ }; do
            case $system in
                ebb) make_dataset "ebb-$copies" --layout random --replicas "$copies" ;;
                striped) make_dataset "striped-$copies" --layout striped --replicas "$copies" ;;
            esac
        done
    done
    yarn_start "$run" "${names[@]}"
    # The first job pays for what the machine has not read yet: this one is not measured.
    on_system hdfs
    run_job "$run" warm-up $examples pi "${system_options[@]}" "$hosts" 1 >>"$log"
    say "$1 rack(s): ready after $SECONDS s"
}

# make_dataset NAME OPTION...
make_dataset() {
    local name=$1
    shift
    on_host master "$ebb" --dir "$cluster" dataset create "$@" --metablock "$((split >> 20))MiB" "/$name" >&2
}

# on_system SYSTEM: the options of a job whose own files are there, too: in the array `system_options`.
on_system() {
    case $1 in
        hdfs) system_options=(-Dfs.defaultFS=hdfs://master:8020) ;;
        # No task finds the sampler's file there, so the rows are parted by their first bytes.
        file)
            system_options=(-Dfs.defaultFS=file:/// -Dyarn.app.mapreduce.am.staging-dir="file://$run/staging"
                -Dmapreduce.terasort.simplepartitioner=true)
            ;;
        *) system_options=(-Dfs.defaultFS=ebb://test/) ;;
    esac
}

# place SYSTEM COPIES: the directory of its files.
place() {
    case $1 in
        hdfs) echo "hdfs://master:8020/copies-$2" ;;
        file) echo "file://$run/files/copies-$2" ;;
        *) echo "ebb://test/$1-$2/files" ;;
    esac
}

# machine_cpu: seconds that all cores have worked.
machine_cpu() { awk '$1 == "cpu" { print ($2 + $3 + $4 + $7 + $8) / 100 }' /proc/stat; }

# measure JOB SYSTEM COPIES COMMAND...: prints a line. COMMAND sets job_log.
measure() {
    local job=$1 system=$2 copies=$3 before cpu begin seconds code=0
    shift 3
    sync
    before=$(link_bytes "${names[@]}")
    cpu=$(machine_cpu)
    begin=$EPOCHREALTIME
    "$@" >>"$log" || code=$?
    seconds=$(awk "BEGIN { printf \"%.3f\", $EPOCHREALTIME - $begin }")
    cpu=$(awk "BEGIN { printf \"%.2f\", $(machine_cpu) - $cpu }")
    [ "$code" = 0 ] || { tail -n 30 "$job_log" >>"$log" && say "$job on $system failed" && exit 1; }
    seconds=$(sed -n 's/^seconds //p' "$job_log" | grep . || echo "$seconds")
    awk -v job="$job" -v system_name="$system" -v copies="$copies" -v racks="$EBB_HADOOP_RACKS" -v round="$round" \
        -v seconds="$seconds" -v cpu="$cpu" -v maps="$(counter "Launched map tasks")" \
        -v local="$(counter "Data-local map tasks")" \
        -v failed="$(($(counter "Failed map tasks") + $(counter "Failed reduce tasks")))" '
        FNR == NR { before[$1] = $2; next }
        {
            grown = $2 - before[$1]
            if ($1 ~ /^trunk/) { if (grown > trunk) trunk = grown; next }
            if ($1 ~ /-out$/) sent += grown
            if (grown > busiest) busiest = grown
        }
        END {
            printf "{\"job\":\"%s\",\"system\":\"%s\",\"copies\":%d,\"racks\":%d,\"round\":%d,\"seconds\":%s,\"cpu_seconds\":%s,", \
                job, system_name, copies, racks, round, seconds, cpu
            printf "\"network_bytes\":%.0f,\"busiest_link_bytes\":%.0f,\"trunk_bytes\":%.0f,", sent, busiest, trunk
            printf "\"maps\":%d,\"local_maps\":%d,\"failed\":%d}\n", maps, local, failed
        }' <(echo "$before") <(link_bytes "${names[@]}")
}

# job JOB SYSTEM COPIES NAME ARGUMENT...: one of Hadoop's examples.
job() {
    local job=$1 system=$2 copies=$3 system_options
    shift 3
    on_system "$system"
    measure "$job" "$system" "$copies" run_job "$run" "$job-$system-$copies" $examples "$1" "${system_options[@]}" \
        -Ddfs.replication="$copies" -Dmapreduce.input.fileinputformat.split.maxsize="$split" "${@:2}"
}

# same WHAT VALUE: with all systems and rounds.
declare -A first_values
same() {
    [ -n "${first_values[$1]:-}" ] || first_values[$1]=$2
    [ "${first_values[$1]}" != "$2" ] || return 0
    say "WRONG: $1 is $2, and was ${first_values[$1]}"
    wrong=1
}

# order ROUND: the systems, each round another one first: an array `ordered`.
order() {
    local all at
    IFS=, read -ra all <<<"$systems"
    ordered=()
    for at in "${!all[@]}"; do ordered+=("${all[(at + ($1 - 1) * (${#all[@]} - 1)) % ${#all[@]}]}"); done
}

# turn COPIES SYSTEM...: each job on each system, in this order.
turn() {
    local copies=$1 system at
    shift
    for system; do
        at=$(place "$system" "$copies")
        job teragen "$system" "$copies" teragen -Dmapreduce.job.maps="$hosts" $((bytes / 100)) "$at/tera"
        same "the checksum of what TeraGen makes" "$(counter CHECKSUM)"
    done
    for system; do
        at=$(place "$system" "$copies")
        job grep "$system" "$copies" grep "$at/tera" "$at/found" 'E[0-9]E'
        same "grep's matches" "$(counter "Reduce output records")"
    done
    for system; do
        at=$(place "$system" "$copies")
        # TeraSort names one host for each split unless told not to, and leaves YARN no choice.
        job terasort "$system" "$copies" terasort -Dmapreduce.terasort.use.terascheduler=false \
            -Dmapreduce.terasort.output.replication="$copies" -Dmapreduce.job.reduces="$hosts" "$at/tera" "$at/sorted"
        [ "$round" != 1 ] || validate "$system" "$copies" "$at"
    done
    for system; do hadoop_fs "$run" -rm -r -skipTrash -f "$(place "$system" "$copies")/*" >/dev/null 2>>"$run/logs/rm"; done
}

# validate SYSTEM COPIES DIRECTORY: that the rows are in order, and that their checksum is that of what was generated.
validate() {
    local system_options
    on_system "$1"
    run_job "$run" "validate-$1-$2" $examples teravalidate "${system_options[@]}" "$3/sorted" "$3/validated" >>"$log"
    same "the checksum of what TeraSort sorts" "$(hadoop_fs "$run" -cat "$3/validated/part-*" 2>/dev/null | tr -s '\t\n' ' ')"
}

# routes: TeraGen in three copies, through a pipeline and from a single source, by one writer and by one on each host.
routes() {
    local writers system
    for writers in 1 "$hosts"; do
        for system in hdfs pipeline single-source; do
            job "write-$writers" "$system" 3 teragen -Dmapreduce.job.maps="$writers" $((bytes / 100 / hosts * writers)) \
                "$(place "$system" 3)/tera"
        done
        for system in hdfs pipeline single-source; do
            hadoop_fs "$run" -rm -r -skipTrash "$(place "$system" 3)/tera" >/dev/null 2>>"$run/logs/rm"
        done
    done
}

# posix_part PART SYSTEM HOST: one part of PosixUses.
posix_part() {
    local java_command there at=$mnt/posix-2/file
    [ "$2" = mount ] || at=hdfs://master:8020/posix/file
    in_java "$run" 512m PosixUses "$1" "$at" "$((bytes >> 20))" 1000
    job_log=$run/logs/posix-$1-$2
    network_of "$3"
    NM_HOST=$3 "${there[@]}" "${java_command[@]}" >"$job_log" 2>&1
}

# posix_uses: the file is written where no copy is near, then used on the first host.
posix_uses() {
    local part system
    remount master
    for system in hdfs mount; do posix_part make "$system" master; done
    for part in random hot update append; do
        for system in hdfs mount; do
            remount h1
            measure "$part" "$system" 2 posix_part "$part" "$system" h1
        done
    done
}

# remount HOST: with an empty cache.
remount() {
    [ ! -d "$mnt" ] || "$ebb" umount "$mnt" >/dev/null
    mkdir -p "$mnt"
    on_host "$1" "$ebb" --dir "$cluster" mount --host "$1" "$mnt" >/dev/null
}

printf '{"hosts":%d,"bytes":%d,"split":%d,"link_bytes_per_second":%d,"rounds":%d,"cores":%d}\n' \
    "$hosts" "$bytes" "$split" $((link * 125000)) "$rounds" "$(nproc)"
for racks in ${all_racks//,/ }; do
    start_all "$racks"
    if wants routes && [ "$racks" = 1 ]; then
        make_dataset pipeline-3 --replicas 3 --replication pipeline
        make_dataset single-source-3 --replicas 3 --replication single-source
    fi
    if wants posix && [ "$racks" = 1 ]; then
        make_dataset posix-2 --replicas 2
    fi
    for ((round = 1; round <= rounds; round++)); do
        say "$racks rack(s), round $round of $rounds, after $SECONDS s"
        for copies in ${all_copies//,/ }; do
            order "$round"
            ! wants jobs || turn "$copies" "${ordered[@]}"
        done
        [ "$racks" != 1 ] || {
            ! wants routes || routes
            ! wants posix || posix_uses
        }
    done
    [ ! -d "$mnt" ] || { "$ebb" umount "$mnt" >/dev/null && rmdir "$mnt"; }
    on_host master "$ebb" --dir "$cluster" fsck >>"$log"
    stop_all
done
say "figure2: $SECONDS s"
exit "$wrong"
