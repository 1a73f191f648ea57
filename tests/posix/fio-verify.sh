#!/usr/bin/env bash
# fio writes patterns with checksums and reads them back, in each way that a program can do I/O.
#
# Usage: tests/posix/fio-verify.sh DIRECTORY
. "$(dirname "$0")/common.sh"

begin fio-verify "$1"
program=$(tool fio)
for job in "$here"/fio/*.fio; do
    test=$(basename "$job" .fio)
    mkdir "$work/$test"
    if timeout 300 "$program" --directory="$work/$test" --aux-path="$scratch" --output="$scratch/log" "$job" \
        >>"$scratch/log" 2>&1; then
        result "$test" ok
    else
        result "$test" failed
        echo "fio $test:" >&2
        grep -m 20 -iE 'fio:|verify|error|err=' "$scratch/log" >&2 || tail -20 "$scratch/log" >&2
    fi
    rm -rf "${work:?}/$test"
done
finish
