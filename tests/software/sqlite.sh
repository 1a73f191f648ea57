#!/usr/bin/env bash
# SQLite, with a rollback journal and with a write-ahead log: two writers, Python's module and Debian's sqlite3, are
# ended with kill -9 in the middle of transactions, on Ebb also their mount. Then the database must be sound, and hold
# each acknowledged transaction as a whole. On Ebb block servers are killed under them, too, and come back: that no
# writer may notice.
#
# Usage: tests/software/sqlite.sh DIRECTORY
# The kills follow from SOFTWARE_SEED (default 1), counted in transactions.
. "$(dirname "$0")/common.sh"

begin sqlite "$1"
client="$python $here/sqlite_client.py"
victims=(writers)
if on_ebb; then
    victims=(writers mount both server)
fi
rounds=$(amount 4 20)
RANDOM=${SOFTWARE_SEED:-1}
writers=()

# Each writer in a process group of its own, so that nothing of it is left.
start_writers() { # start_writers DATABASE MODE
    : >"$scratch/0" >"$scratch/1"
    set -m
    $client work "$1" "$2" 0 "${counts[0]}" >"$scratch/0" 2>>"$scratch/errors" &
    writers=("$!")
    $client words "$1" "$2" 1 "${counts[1]}" 2>>"$scratch/errors" | stdbuf -oL sqlite3 "$1" >"$scratch/1" 2>>"$scratch/errors" &
    writers+=("$!")
    set +m
}

kill_writers() {
    local group
    for group in "${writers[@]}"; do
        # The group of a pipeline goes by its first process, which bash does not tell.
        kill -9 -- "-$(ps -o pgid= -p "$group" | tr -d ' ')" 2>/dev/null || true
        wait "$group" 2>/dev/null || true
    done
}

# A block server is killed under the writers, and started again under them. Neither makes one of them fail.
server_under_them() {
    local host=h$((1 + RANDOM % 4)) so_far
    kill_block_server "$host"
    so_far=$(acknowledged 0)
    [ "$(acknowledged 1)" -le "$so_far" ] || so_far=$(acknowledged 1)
    await $((so_far + 3)) || return 1
    block_server_again "$host"
    await $((so_far + 6)) || return 1
    [ ! -s "$scratch/errors" ] || { cat "$scratch/errors"; return 1; }
}

acknowledged() { # acknowledged WORKER: complete lines with a number
    grep -c '^[0-9]' "$scratch/$1" || true
}

# Counted in what is done, so that the same happens on a slow machine.
await() { # await COUNT: until both have that many
    local end=$((SECONDS + 300)) why=
    until [ "$(acknowledged 0)" -ge "$1" ] && [ "$(acknowledged 1)" -ge "$1" ]; do
        [ "$(jobs -r | wc -l)" -eq 2 ] || why="a writer ended by itself"
        [ "$SECONDS" -lt "$end" ] || why="the writers are slower than this test can wait for"
        if [ -n "$why" ]; then
            echo "$why, with $(acknowledged 0) and $(acknowledged 1) transactions"
            cat "$scratch/errors"
            return 1
        fi
        sleep 0.02
    done
}

round() { # round DATABASE MODE VICTIM
    start_writers "$1" "$2"
    await $((2 + RANDOM % 6)) || { kill_writers; return 1; }
    case $3 in
        writers) kill_writers ;;
        mount) kill_mount; mount_again; kill_writers ;;
        both) kill_mount; kill_writers; mount_again ;;
        server) server_under_them || { kill_writers; return 1; }; kill_writers ;;
    esac
    counts=($((counts[0] + $(acknowledged 0))) $((counts[1] + $(acknowledged 1))))
    local found
    found=$($client prove "$1" "0:${counts[0]}" "1:${counts[1]}") || return 1
    read -r -a counts <<<"$found"
    [ "$(sqlite3 -cmd '.timeout 120000' "$1" 'PRAGMA integrity_check')" = ok ]
}

for mode in delete wal; do
    database=$work/$mode.db
    counts=(0 0)
    check "$mode: made" $client make "$database" "$mode"
    for ((number = 1; number <= rounds; number++)); do
        victim=${victims[((number - 1) % ${#victims[@]})]}
        code=0
        : >"$scratch/errors"
        round "$database" "$mode" "$victim" >"$scratch/log" 2>&1 || code=$?
        # One name on every file system: which victim it was is part of what is shown when it fails.
        echo "the victim: $victim; acknowledged: ${counts[*]}" >>"$scratch/log"
        judge "$mode: round $number" "$code"
    done
done
finish
