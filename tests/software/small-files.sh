#!/usr/bin/env bash
# Many small files, made by four processes: in one directory and in a tree they are listed, read back, found by their
# attributes, renamed, linked and removed, and at each step all of them are there, once, with their own bytes.
#
# Usage: tests/software/small-files.sh DIRECTORY
. "$(dirname "$0")/common.sh"

begin small-files "$1"
for step in make list read attributes rename link remove; do
    check "$step" $python "$here/small_files.py" "$step" "$work" "$(amount 10000 100000)"
done
finish
