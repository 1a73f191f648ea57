#!/usr/bin/env bash
# bonnie++: a file is written, rewritten and read, with seeks between, and many small files are made, looked at and
# removed, in order and at random. What it measures is of no interest here; it ends when a call fails or when it does not
# read what it wrote.
#
# Usage: tests/software/bonnie.sh DIRECTORY
. "$(dirname "$0")/common.sh"

begin bonnie "$1"
PATH=$PATH:/usr/sbin
mebibytes=$(amount 32 1024)
# In units of 1024, as bonnie++ has it, in four directories.
files=$(amount 1 32)
user=
[ "$(id -u)" != 0 ] || user="-u root"

bonnie() { # bonnie OPTION...: leaves one line of figures and no file
    # shellcheck disable=SC2086
    bonnie++ -d "$work" $user -q -r 0 -s "$mebibytes" -n "$files:16384:0:4" -m software "$@" >"$scratch/figures"
    cat "$scratch/figures"
    [ "$(grep -c '^[0-9.]*,.*software,' "$scratch/figures")" = 1 ] && [ -z "$(ls -A "$work")" ]
}

export work scratch user mebibytes files
step() { check "$1" bash -euo pipefail -c "$(declare -f bonnie); bonnie ${*:2}"; }
step "by blocks" -f
step "synced after each file" -f -b
step "without the page cache" -f -D
[ "${SOFTWARE_LONG:-0}" != 1 ] || step "by characters" -x 2
finish
