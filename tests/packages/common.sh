# What the scripts of this folder share; sourced, never run.
set -euo pipefail

# check NAME COMMAND...: one line with the result; what the command printed only if it failed.
check() {
    local name=$1 said
    shift
    if said=$("$@" 2>&1); then
        echo "ok      $name"
    else
        echo "FAILED  $name"
        sed 's/^/        /' <<<"${said:-nothing was printed}"
    fi
}

# refused CODE WORDS COMMAND...: the command ends with this code, and its error has these words.
refused() {
    local wanted=$1 words=$2 said code=0
    shift 2
    said=$("$@" 2>&1) || code=$?
    [ "$code" = "$wanted" ] && [[ $said == *"$words"* ]] || { echo "code $code: $said"; return 1; }
}

# equal WANTED FOUND
equal() { [ "$1" = "$2" ] || { printf 'wanted: %s\nfound:  %s\n' "$1" "$2"; return 1; }; }

# soon SECONDS COMMAND...: the command succeeds within this time.
soon() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || { "$@"; return; }
        sleep 0.2
    done
}

# mount_pid MOUNTPOINT: the process that serves it.
mount_pid() { getfattr --absolute-names --only-values -n system.ebb.mount.pid "$1" 2>/dev/null; }
