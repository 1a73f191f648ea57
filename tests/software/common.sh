# What the scripts of this folder share; sourced, never run. A suite is as in tests/posix: a fresh directory below its
# argument, one line for each check, one line with the counts.
#
# SOFTWARE_LONG=1 asks for the long form of each suite.

. "$(dirname "${BASH_SOURCE[0]}")/../posix/common.sh"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ebb=${EBB:-${CARGO_TARGET_DIR:-$repository/target}/debug/ebb}
# Debian's own, with Debian's libraries.
python=/usr/bin/python3
all_suites=(sqlite sqlite-full postgresql git copies stress-ng dbench bonnie small-files c-build rust-build)
# Debian's source packages that c-build makes, and where they are kept once they were fetched.
c_programs=(zlib lua5.4)
sources=${CARGO_TARGET_DIR:-$repository/target}/tools/sources

# amount SHORT LONG: the number for this form.
amount() {
    if [ "${SOFTWARE_LONG:-0}" = 1 ]; then echo "$2"; else echo "$1"; fi
}

# check NAME COMMAND...: runs it below $work; the end of what it said is shown when it fails. The bound is for a hung
# program.
check() {
    local name=$1 code=0
    shift
    (cd "$work" && timeout -k 5 "${CHECK_SECONDS:-600}" "$@") >"$scratch/log" 2>&1 </dev/null || code=$?
    judge "$name" "$code"
}

# judge NAME CODE: notes an outcome; the end of $scratch/log is shown when it is bad.
judge() {
    if [ "$2" -eq 0 ]; then
        result "$1" ok
    else
        result "$1" failed
        echo "$suite: $1 ended with $2:" >&2
        tail -n 30 "$scratch/log" | sed 's/^/    /' >&2
    fi
}

# Whether $work lies on a mount of Ebb: then the crash suites kill the mount, too.
on_ebb() {
    [ "$(findmnt -n -o FSTYPE -T "$work")" = fuse.ebb ]
}

# kill_mount: ends the process that serves $work with kill -9. The cluster is that of $EBB_DIR.
kill_mount() {
    point=$(findmnt -n -o TARGET -T "$work")
    kill -9 "$(getfattr --absolute-names --only-values -n system.ebb.mount.pid "$point")"
}

# kill_block_server HOST: ends a node's block server with kill -9.
kill_block_server() {
    kill -9 "$("$ebb" cluster status --json | jq -e --arg host "$1" \
        '.processes[] | select(.role == "block" and .host == $host) | .pid')"
}

# block_server_again HOST: the one that was killed.
block_server_again() {
    "$ebb" node start "$1" >&2
}

# mount_again: the mount that was killed is mounted at the same place.
mount_again() {
    "$ebb" mount --host h1 "$point" >&2
}

