#!/usr/bin/env bash
# Hadoop's own contract suites and ours against the connector, on a real cluster: a scratch one that this script makes, with a data
# set for each version of Hadoop. Prints the counts; ends with 1 if a test failed.
#
# Usage: tests/hadoop/contracts.sh [VERSION...]        3.4 and 3.5 unless named
. "$(dirname "$0")/common.sh"

versions=("$@")
[ $# -gt 0 ] || versions=(3.4 3.5)
bash "$here/install.sh" programs
[ -x "$ebb" ] || { echo "$ebb is not there: build it first" >&2; exit 1; }

work=$(mktemp -d "${TMPDIR:-/tmp}/ebb-contracts.XXXXXX")
cluster=$work/cluster
stop() {
    trap '' INT TERM
    "$ebb" --dir "$cluster" cluster down >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

library=$(library_folder)
"$ebb" --dir "$cluster" cluster up --nodes 4 >/dev/null
code=0
for version in "${versions[@]}"; do
    log=$work/hadoop-$version.log
    begin=$SECONDS
    mvn -B -f "$repository/connectors/hadoop/pom.xml" "-Phadoop-$version" test \
        "-Debb.native.dir=$library" "-Debb.test.cluster=$cluster" "-Debb.test.program=$ebb" \
        "-Debb.test.uri=ebb://test/suites-$version" >"$log" 2>&1 || code=1
    grep -E '^\[(ERROR|WARNING)\].*(FAILURE|ERROR)!|^\[ERROR\] +[A-Z]\w+Test|BUILD FAILURE' "$log" | head -n 40 || true
    counts=$(grep -E '^\[(INFO|WARNING|ERROR)\] Tests run:.*[0-9]$' "$log" | tail -n 1 | sed 's/^\[[A-Z]*\] //')
    echo "Hadoop $version: ${counts:-no test ran} ($((SECONDS - begin)) s)"
    if [ -z "$counts" ]; then
        ! grep -qE 'Could not (resolve|transfer)|Non-resolvable' "$log" || skip "Maven could not fetch what the suites need"
        code=1
        tail -n 40 "$log" >&2
    fi
done
exit "$code"
