#!/usr/bin/env bash
# TestDFSIO on a running YARN: files that are written and read as streams, one by each map.
#
# Usage: tests/hadoop/dfsio.sh RUN DIRECTORY
# FILES and FILE_MB are how many files and how large they are (4 of 16 MB).
. "$(dirname "$0")/common.sh"
. "$here/counters.sh"

run=$1 directory=$2
for direction in write read; do
    code=0
    run_job "$run" "dfsio-$direction" org.apache.hadoop.fs.TestDFSIO "-Dtest.build.data=$directory" "-$direction" \
        -nrFiles "${FILES:-4}" -size "${FILE_MB:-16}MB" -resFile "$run/logs/dfsio-results" || code=$?
    expect "TestDFSIO $direction ends well" "$code" "$job_log"
    grep -hoE 'Throughput mb/sec: *[0-9.]+|Average IO rate mb/sec: *[0-9.]+' "$job_log" | sed 's/^/  /' || true
done
finish dfsio
