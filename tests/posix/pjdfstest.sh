#!/usr/bin/env bash
# The POSIX conformance suite pjdfstest (the Rust one) in a directory. Needs root.
#
# Usage: tests/posix/pjdfstest.sh DIRECTORY [PATTERN...]
. "$(dirname "$0")/common.sh"

begin pjdfstest "$1"
program=$(tool pjdfstest)
# Its exit status says no more than the lines do. Colours are left out, as they would hide the words.
NO_COLOR=1 RUST_BACKTRACE=0 "$program" -c "$here/pjdfstest.toml" -p "$work" "${@:2}" >"$scratch/log" 2>&1 || true
while read -r name word; do
    case $word in
        ok | skipped) result "$name" "$word" ;;
        FAILED | *UNEXPECTEDLY) result "$name" failed ;;
    esac
done < <(grep -E '^[a-z_0-9:]+ +(ok|skipped|FAILED|PASSED UNEXPECTEDLY)$' "$scratch/log" || true)
if ! grep -q 'total$' "$scratch/log"; then
    result "the suite ran to its end" failed
fi
if grep -q $'\tfailed$' "$results"; then
    grep -A3 'FAILED$' "$scratch/log" >&2 || tail -20 "$scratch/log" >&2
fi
finish
