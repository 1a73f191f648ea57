#!/usr/bin/env bash
# Jobs on a running YARN of which a part is killed with SIGKILL: a task, the job's master, and the master in the middle
# of the commit; on Ebb also a whole host, and the master of the file system. A job that ends well has to have written
# all, and one that does not must not look as if it had.
#
# Usage: tests/hadoop/faults.sh RUN DIRECTORY [CLUSTER]
# RUN is the directory of yarn_start, DIRECTORY a URI that does not exist yet, CLUSTER the directory of Ebb's cluster.
. "$(dirname "$0")/common.sh"
. "$here/counters.sh"
. "$here/yarn.sh"

run=$1 directory=$2 cluster=${3:-}
rows=400000
# Of the rows that TeraGen writes, in their order: they depend on nothing but their number.
hash=9ffce463e83166c18a9aafc4e413341070dea49d

# The committer that shows nothing before a job's commit: what a task committed waits in _temporary/N/TASK. (Hadoop's
# other one, version 2, gives files their final names as each task ends.)
committer=(-Dmapreduce.fileoutputcommitter.algorithm.version=1)

# generate NAME ARGUMENT...: TeraGen in the background; sets $application when it was accepted.
generate() {
    local name=$1
    shift
    (run_job "$run" "$name" $examples teragen "${committer[@]}" "$@" "$rows" "$directory/$name") &
    job=$!
    job_log=$run/logs/job-$name
    wait_until 120 "the start of $name" submitted
    application=$(running_job_id "$job_log" | sed s/job_/application_/)
}

submitted() {
    [ -n "$(running_job_id "$job_log")" ]
}

# kill_when NAME GLOB TEXT...: see KillWhen; of the job's own processes.
kill_when() {
    kill_any_when "$1" "$2" "$run/yarn/" "$application" "${@:3}"
}

# kill_any_when NAME GLOB TEXT...: of all processes.
kill_any_when() {
    local code=0
    hadoop "$run" KillWhen "$2" 120 "${@:3}" >"$run/logs/kill-$1" 2>&1 || code=$?
    expect "$(tail -n 1 "$run/logs/kill-$1" | sed "s|$directory/||")" "$code" "$run/logs/kill-$1"
}

# ended: waits for the job; its exit code is in $code.
ended() {
    code=0
    wait "$job" || code=$?
}

# expect_whole NAME FILES: all rows in so many files, the mark of success, and nothing else.
expect_whole() {
    local names
    expect_same "$1: every row is there, once" "$hash" \
        "$(hadoop_fs "$run" -cat "$directory/$1/part-m-*" | sha1sum | cut -d' ' -f1)"
    names=$(hadoop_fs "$run" -ls "$directory/$1" | awk '{ print $NF }' | sed -n "s|.*/$1/||p")
    expect_same "$1: nothing temporary is left" "$2 parts and _SUCCESS" \
        "$(grep -c part-m- <<<"$names") parts and $(grep -v part-m- <<<"$names" | tr '\n' ' ' | sed 's/ $//')"
}

task_killed() {
    generate task-killed -Dmapreduce.job.maps=4
    kill_when task "$directory/task-killed/_temporary/1/_temporary/attempt_*_m_000002_0/part-*" YarnChild _m_000002_0
    ended
    expect "a job ends well although a task was killed" "$code" "$job_log"
    expect_same "one attempt failed" 1 "$(counter "Failed map tasks")"
    expect_whole task-killed 4
}

# The second master takes over what was committed, by the history that the dead one had written so far. With one map at
# a time, the history has the first one when the second one writes.
master_killed() {
    generate master-killed -Dmapreduce.job.maps=2 -Dmapreduce.job.running.map.limit=1
    kill_when master "$directory/master-killed/_temporary/1/_temporary/attempt_*_m_000001_0/part-*" MRAppMaster
    ended
    expect "a job ends well although its master was killed" "$code" "$job_log"
    # On file:/// what a dead process had flushed is not there.
    [[ $directory = file:* ]] || expect_same "the second master recovers finished maps" yes \
        "$(cat "$run"/yarn/*/log/"$application"/container_*_02_000001/syslog 2>/dev/null |
            grep -q "Recovering task .* from prior app attempt, status was SUCCEEDED" && echo yes || echo no)"
    expect_whole master-killed 2
}

# All maps in the master, one after the other, so that it has many files to commit. The next master cannot know how far
# the commit was, and gives up.
commit_killed() {
    # The client asks for a job that failed at a history server. There is none, and it need not wait long for one.
    local many=(-Dmapreduce.job.maps=24 -Dmapreduce.job.ubertask.enable=true -Dmapreduce.job.ubertask.maxmaps=24
        -Dipc.client.connect.max.retries=1)
    generate commit-killed "${many[@]}"
    kill_when commit "$directory/commit-killed/part-m-*" MRAppMaster
    ended
    expect_same "a job whose commit was cut off fails" FAILED \
        "$(curl -sf "http://$master:8088/ws/v1/cluster/apps/$application" | jq -r .app.finalStatus)"
    names=$(hadoop_fs "$run" -ls "$directory/commit-killed" | awk '{ print $NF }')
    expect_same "and leaves no _SUCCESS" "" "$(grep _SUCCESS <<<"$names" || true)"
    echo "  $(grep -c part-m- <<<"$names" || true) of 24 parts had been committed"
    hadoop_fs "$run" -rm -r -skipTrash "$directory/commit-killed" >/dev/null
    mv "$job_log" "$job_log.1"
    generate commit-killed "${many[@]}"
    ended
    expect "the same job ends well when it is run again" "$code" "$job_log"
    expect_whole commit-killed 24
}

# What runs on a host dies with it: block server, NodeManager, containers. YARN gives them up after a while
# (nodemanager_expiry), and tasks run again elsewhere.
host_killed() {
    local pid
    pid=$("$ebb" --dir "$cluster" node list --json | jq '.[] | select(.host == "h2") | .pid')
    # The job's master asks a NodeManager that is gone for three minutes, unless told not to.
    generate host-killed -Dmapreduce.job.maps=4 -Dyarn.client.nodemanager-connect.max-wait-ms=5000 \
        -Dyarn.client.nodemanager-connect.retry-interval-ms=1000
    kill_any_when host "$directory/host-killed/_temporary/1/_temporary/attempt_*_m_*_0/part-*" "$run/yarn/h2/"
    kill -9 "$pid"
    ended
    expect "a job ends well although a host was lost" "$code" "$job_log"
    "$ebb" --dir "$cluster" node start h2 >/dev/null
    start_node_manager "$run" h2
    expect_whole host-killed 4
}

file_master_killed() {
    generate file-master-killed -Dmapreduce.job.maps=4
    kill_any_when file-master "$directory/file-master-killed/_temporary/1/_temporary/attempt_*_m_000002_0/part-*" \
        "$cluster" master
    # For a while nothing answers.
    sleep 3
    "$ebb" cluster up --dir "$cluster" >/dev/null
    ended
    expect "a job ends well although the file system's master was killed and started again" "$code" "$job_log"
    expect_same "no attempt failed" 0 "$(($(counter "Failed map tasks") + $(counter "Failed reduce tasks")))"
    expect_whole file-master-killed 4
}

quota_full() {
    local system=${directory%/*/*} text
    "$ebb" --dir "$cluster" dataset create --replicas 2 --quota 20MiB /full >/dev/null
    code=0
    run_job "$run" quota-full $examples teragen -Dmapreduce.job.maps=2 -Dmapreduce.map.maxattempts=1 \
        -Dipc.client.connect.max.retries=1 "$rows" "$system/full/out" || code=$?
    expect_same "a job that meets a full quota fails" 1 "$((code != 0))"
    application=$(running_job_id "$job_log" | sed s/job_/application_/)
    text=$(cat "$run"/yarn/*/log/"$application"/*/syslog | sed -n 's/.*QuotaException: //p' | sort -u)
    expect_same "and its task says which" yes "$(grep -q '/full has used up its quota of 20.0 MiB' <<<"$text" && echo yes || echo "no: $text")"
    expect_same "and leaves no _SUCCESS" "" "$(hadoop_fs "$run" -ls "$system/full/out" 2>/dev/null | grep _SUCCESS || true)"
}

hadoop_fs "$run" -mkdir -p "$directory"
task_killed
master_killed
commit_killed
if [ -n "$cluster" ]; then
    host_killed
    file_master_killed
    quota_full
fi
finish faults
