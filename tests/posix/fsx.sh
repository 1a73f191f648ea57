#!/usr/bin/env bash
# fsx: random operations on one file, each read compared with what was written. Fixed seeds: a failure can be repeated.
#
# Usage: tests/posix/fsx.sh DIRECTORY
# FSX_SEEDS (default "1 2 3") and FSX_SCALE (percent of the operations, default 100) make runs longer or shorter.
. "$(dirname "$0")/common.sh"

begin fsx "$1"
program=$(tool fsx)
for config in small:6000 large:600; do
    name=${config%:*}
    operations=$((${config#*:} * ${FSX_SCALE:-100} / 100))
    for seed in ${FSX_SEEDS:-1 2 3}; do
        test="$name-$operations-seed-$seed"
        if timeout 300 "$program" -q -f "$here/fsx/$name.toml" -N "$operations" -S "$seed" -P "$scratch" \
            "$work/$test" >"$scratch/log" 2>&1; then
            result "$test" ok
        else
            result "$test" failed
            echo "fsx -f fsx/$name.toml -N $operations -S $seed:" >&2
            tail -30 "$scratch/log" >&2
        fi
        rm -f "$work/$test"
    done
done
finish
