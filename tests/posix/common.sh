# What the scripts of this folder share; sourced, never run.
#
# A suite runs in a fresh directory below its argument, writes one line `NAME<TAB>ok|skipped|failed` for each of its
# tests to the file $POSIX_RESULTS (if set), and prints one line with the counts. Details go to stderr when a test fails.

set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../.." && pwd)

# tool NAME: where a test program is: $EBB_TOOLS/bin, the build directory's tools/bin, or the path.
tool() {
    local candidate
    for candidate in "${EBB_TOOLS:-/nonexistent}/bin/$1" "${CARGO_TARGET_DIR:-$repository/target}/tools/bin/$1"; do
        if [ -x "$candidate" ]; then
            echo "$candidate"
            return
        fi
    done
    command -v "$1" && return
    echo "$1 is missing: run tests/posix/install.sh, or set EBB_TOOLS to the directory that has bin/$1" >&2
    return 1
}

# begin NAME DIRECTORY: makes the directory $work to run in, and removes it at the end.
begin() {
    suite=$1
    if [ ! -d "$2" ]; then
        echo "$suite: $2 is not a directory" >&2
        exit 2
    fi
    scratch=$(mktemp -d)
    results=$scratch/results
    : >"$results"
    work=$(mktemp -d "$2/$suite.XXXXXX")
    # Other users must be able to get in.
    chmod 755 "$work"
    trap 'rm -rf "$work" "$scratch"' EXIT
}

# result NAME ok|skipped|failed
result() {
    printf '%s\t%s\n' "$1" "$2" >>"$results"
}

# Prints the counts; fails if a test failed or none passed.
finish() {
    local passed skipped failed
    passed=$(grep -c $'\tok$' "$results" || true)
    skipped=$(grep -c $'\tskipped$' "$results" || true)
    failed=$(grep -c $'\tfailed$' "$results" || true)
    if [ -n "${POSIX_RESULTS:-}" ]; then
        sort "$results" >"$POSIX_RESULTS"
    fi
    echo "$suite on $(findmnt -n -o FSTYPE -T "$work"): $passed passed, $skipped skipped, $failed failed"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}
