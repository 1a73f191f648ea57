#!/usr/bin/env bash
# dbench: the file system calls that Samba made while NetBench's clients worked, by one and by several processes, with
# and without waiting for the disk. It ends at the first call that fails.
#
# Usage: tests/software/dbench.sh DIRECTORY
. "$(dirname "$0")/common.sh"

begin dbench "$1"
seconds=$(amount 2 30)
clients=$(amount 4 16)
loadfile=/usr/share/dbench/client.txt

# It says on its output what failed, and not always by its exit code.
load() { # load CLIENTS OPTION...
    dbench -D "$work" -c "$loadfile" -t "$seconds" "${@:2}" "$1" >"$scratch/said" 2>&1 || { cat "$scratch/said"; return 1; }
    cat "$scratch/said"
    # Its processes meet at a semaphore of the system's, or start one after the other where there is none.
    ! grep -v 'barrier semaphore' "$scratch/said" | grep -iE 'failed|error|unable' && grep -qE '^ *WriteX +[1-9]' "$scratch/said" &&
        nothing_left
}
nothing_left() { [ -z "$(find "$work" -mindepth 1 ! -type d)" ]; }

export work scratch seconds loadfile
step() { check "$1" bash -euo pipefail -c "$(declare -f load nothing_left); load ${*:2}"; }
step "one client" 1
step "clients" "$clients"
step "clients that wait for each write" "$clients" --sync
step "clients that sync files and directories" "$clients" --fsync --sync-dir
step "clients with extended attributes" "$clients" --xattr
finish
