# Second half of the demo, read by demo.sh: the same cluster follows the power that it is given.
#
# Three days of sun and wind (scripts/renewable.csv) pass in 72 seconds while words are counted and a program on the mount
# writes, syncs and reads. Nodes sleep: all processes of each are frozen. Then there is less power than two nodes need, and
# the job that is under way goes on to the right result.

power_interval=2s
power_compress=3600
low_watts=85 # 40 W are always drawn: of the nodes one can be awake and seven must sleep
power_log=$work/power.log

power_json() { "$ebb" power status --json; }

# Writes and fsyncs a file, then reads it and a piece of the large file from the block servers, over and over. One line for
# each: what, how it ended, milliseconds.
live_program() {
    local i=0 began piece pieces=$((tar_bytes / 1048576))
    mkdir -p "$mnt/live"
    while [ ! -e "$work/live.stop" ]; do
        i=$((i + 1))
        piece=$((RANDOM * 32768 + RANDOM)) piece=$((piece % pieces))
        head -c 65536 /dev/urandom >"$work/live.new"
        began=$(now_ms)
        if dd if="$work/live.new" of="$mnt/live/$((i % 16))" bs=64K conv=fsync,notrunc status=none; then
            echo "write ok $(($(now_ms) - began))"
        else
            echo "write failed $(($(now_ms) - began))"
        fi
        began=$(now_ms)
        if dd if="$mnt/live/$((i % 16))" bs=64K iflag=direct status=none | cmp -s - "$work/live.new" &&
            dd if="$mnt/linux.tar" bs=1M skip="$piece" count=1 iflag=direct status=none |
            cmp -s - <(dd if="$tar" bs=1M skip="$piece" count=1 status=none); then
            echo "read ok $(($(now_ms) - began))"
        else
            echo "read failed $(($(now_ms) - began))"
        fi
        sleep 0.1
    done >>"$work/live.log"
}

frozen_nodes() { # of a status: nodes all processes of which show T in /proc
    local pids pid stat frozen=0
    while read -r pids; do
        for pid in $pids; do
            read -r stat <"/proc/$pid/stat" 2>/dev/null || continue 2
            stat=${stat##*) }
            [ "${stat%% *}" = T ] || continue 2
        done
        frozen=$((frozen + 1))
    done < <(jq -r '.nodes[] | select(.pids | length > 0) | .pids | join(" ")' <<<"$1")
    echo "$frozen"
}

most_frozen=0
show_power() { # one line: who is awake, watts, what the program did so far
    local status frozen awake
    status=$(power_json 2>/dev/null) || return 0
    frozen=$(frozen_nodes "$status")
    [ "$frozen" -le "$most_frozen" ] || most_frozen=$frozen
    awake=$(jq -r '[.nodes[] | if .state == "awake" then "#" elif .state == "asleep" then "." else "+" end] | join("")' <<<"$status")
    printf 'demo: [%s] %5.0f W of %5.0f W, %d nodes frozen; %d writes, %d reads%s\n' "$awake" \
        "$(jq .drawn_watts <<<"$status")" "$(jq .budget_watts <<<"$status")" "$frozen" \
        "$(grep -c '^write ok' "$work/live.log" || true)" "$(grep -c '^read ok' "$work/live.log" || true)" "$1"
    printf '%s\n' "$status" >>"$power_log"
}

job=
job_started=0
begin_job() {
    "$ebb" job count /linux.tar --json --progress >"$work/power-job.json" 2>"$work/power-job.progress" &
    job=$! job_started=$(now_ms)
    children=("$live" "$job")
}

end_job() { # waits for the job that runs, and holds its result against the source
    wait "$job" || { cat "$work/power-job.progress"; die "the job failed"; }
    local counted
    counted=$(jq .words "$work/power-job.json")
    [ "$counted" = "$source_tar" ] || die "counted $counted words, the source has $source_tar"
    jobs_done=$((jobs_done + 1))
    children=("$live")
    say "$1: $counted words, as in the source, in $(($(now_ms) - job_started)) ms"
}

progress() { jq -r 'select(.total_bytes != null) | "; job \(.done_bytes * 100 / .total_bytes | floor) %"' "$work/power-job.progress" 2>/dev/null | tail -n 1; }

say "now by power: policy tide, an interval of $power_interval; three days of sun and wind in 72 seconds"
"$ebb" cluster up --nodes "$nodes" --policy tide --interval "$power_interval" --battery-seconds 2 >/dev/null
told_power() { power_json >/dev/null 2>&1; }
come "an answer about power" told_power
jobs_done=0
: >"$work/live.log"
live_program & live=$!
children=("$live")
"$ebb" power follow scripts/renewable.csv --compress "$power_compress" >/dev/null
trace_end=$(($(now_ms) + 259200 * 1000 / power_compress))
begin_job
while [ "$(now_ms)" -lt "$trace_end" ]; do
    show_power "$(progress)"
    sleep 2
    kill -0 "$job" 2>/dev/null || { end_job "while the power changed" && begin_job; }
done
kill -0 "$job" 2>/dev/null || { end_job "while the power changed" && begin_job; }

say "less power than two nodes need: $low_watts W for everything"
most_frozen=0
"$ebb" power set --watts "$low_watts" >/dev/null
for ((tries = 1; ; tries++)); do
    while kill -0 "$job" 2>/dev/null; do
        show_power "$(progress)"
        sleep 1
    done
    end_job "with less power than two nodes need"
    # A job may be over before the nodes have gone. The next one has less power from its beginning.
    if [ "$most_frozen" -ge $((nodes - 2)) ] || [ "$tries" = 5 ]; then break; fi
    begin_job
done
[ "$most_frozen" -ge $((nodes - 2)) ] || die "at most $most_frozen nodes were seen frozen"

touch "$work/live.stop"
wait "$live"
children=()
live_failed=$(grep -c failed "$work/live.log" || true)
failed_ops=$((failed_ops + live_failed))
slowest() { awk -v what="$1" '$1 == what && $3 > most {most = $3} END {print most + 0}' "$work/live.log"; }
say "the program: $(grep -c '^write ok' "$work/live.log") writes with fsync (slowest $(slowest write) ms), $(grep -c '^read ok' "$work/live.log") reads (slowest $(slowest read) ms), $live_failed failed"
"$ebb" power set --fraction 1 >/dev/null
all_awake() { power_json | jq -e 'all(.nodes[]; .state == "awake")' >/dev/null; }
come "the waking of all nodes" all_awake
"$ebb" power status | head -n 1
healthy "every copy, after the dark"
