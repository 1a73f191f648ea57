# Runs MapReduce jobs and reads what their client says at the end: the counters. Sourced.

examples=org.apache.hadoop.examples.ExampleDriver
# What the jobs so far have added up to.
all_maps=0 all_data_local=0

# run_job RUN NAME PROGRAM ARGUMENT...: prints a line with what it took. PROGRAM is a class. What the
# client said is in RUN/logs/job-NAME.
run_job() {
    local run=$1 name=$2 begin=$EPOCHREALTIME code=0
    job_log=$run/logs/job-$name
    shift 2
    hadoop "$run" "$@" >"$job_log" 2>&1 </dev/null || code=$?
    job_line "$name" "$(awk "BEGIN { print $EPOCHREALTIME - $begin }")"
    return "$code"
}

# counter TEXT: the sum over the jobs in $job_log; 0 if they do not mention it.
counter() {
    awk -F= -v name="$1" '{ sub(/^[ \t]+/, "", $1) } $1 == name { sum += $2 } END { printf "%.0f", sum }' "$job_log"
}

# job_line NAME SECONDS
job_line() {
    local launched local_maps failed killed
    launched=$(counter "Launched map tasks")
    local_maps=$(counter "Data-local map tasks")
    failed=$(($(counter "Failed map tasks") + $(counter "Failed reduce tasks")))
    killed=$(($(counter "Killed map tasks") + $(counter "Killed reduce tasks")))
    printf '%s: %.1f s, %s CPU s, data-local %d of %d (rack-local %d, elsewhere %d), %d failed, %d killed\n' "$1" "$2" \
        "$(awk "BEGIN { printf \"%.1f\", $(counter "CPU time spent (ms)") / 1000 }")" "$local_maps" "$launched" \
        "$(counter "Rack-local map tasks")" "$(counter "Other local map tasks")" "$failed" "$killed"
}

# count_locality: takes the last job into the sums. Not for jobs that read nothing.
count_locality() {
    all_maps=$((all_maps + $(counter "Launched map tasks")))
    all_data_local=$((all_data_local + $(counter "Data-local map tasks")))
}

# running_job_id LOG
running_job_id() {
    sed -n 's/.*Running job: \(job_[0-9_]*\).*/\1/p' "$1" | tail -n 1
}
