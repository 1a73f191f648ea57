#!/usr/bin/env bash
# Makes simgrid.json anew: gives the oracle's cases to SimGrid. With --check the file stays, and SimGrid's answers are
# compared with it.
#
# SimGrid is installed once, into target/simgrid: from PyPI into a virtual environment where there is a wheel for this
# Python, else Debian's packages, unpacked there and not installed into the system.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
root="$(cd "$here/../../.." && pwd)"
place="${CARGO_TARGET_DIR:-$root/target}/simgrid"
mode="${1:-record}"
case "$mode" in record | --check) ;; *) echo "usage: record.sh [--check]" >&2; exit 2 ;; esac
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

unpack() {
    command -v apt-get >/dev/null || { echo "record: no wheel of simgrid and no apt-get; pip said:" >&2; cat "$work/pip.log" >&2; exit 1; }
    echo "record: no wheel of simgrid for this Python; unpacking Debian's python3-simgrid" >&2
    local packages
    mapfile -t packages < <(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
        --no-replaces --no-enhances python3-simgrid | grep -E '^(python3-simgrid|libsimgrid|libboost|libns3|libgsl|libgfortran|libquadmath|libxml2|libicu|libsqlite3)')
    [ "${#packages[@]}" -gt 0 ] || { echo "record: apt knows no python3-simgrid; try apt-get update" >&2; exit 1; }
    mkdir -p "$work/debs"
    (cd "$work/debs" && apt-get download -qq "${packages[@]}" 2>/dev/null && for deb in *.deb; do dpkg-deb -x "$deb" "$place/debian"; done)
}

if [ ! -e "$place/ready" ]; then
    rm -rf "$place"
    mkdir -p "$place"
    python3 -m venv "$place/venv"
    "$place/venv/bin/python" -m pip install -q --only-binary :all: simgrid >"$work/pip.log" 2>&1 || unpack
    touch "$place/ready"
fi
python="$place/venv/bin/python"
if [ -d "$place/debian" ]; then
    export LD_LIBRARY_PATH="$place/debian/usr/lib/$(uname -m)-linux-gnu" PYTHONPATH="$place/debian/usr/lib/python3/dist-packages"
    # The packages are built for the system's Python.
    python=/usr/bin/python3
fi

(cd "$root" && cargo run -q -p ebb-sim --example oracle_cases) >"$work/cases.json"
"$python" "$here/simgrid_oracle.py" <"$work/cases.json" >"$work/simgrid.json" 2> >(grep -v xbt_cfg/INFO >&2)
"$python" - "$mode" "$work/simgrid.json" "$here/simgrid.json" <<'END' >&2
import json, shutil, sys

mode, made, kept = sys.argv[1:]
new = json.load(open(made))
summary = f'SimGrid {new["simgrid"]}, {len(new["cases"])} cases, {sum(map(len, new["ends"]))} flows'
if mode == "record":
    shutil.copyfile(made, kept)
    print(f"record: {summary}")
else:
    old = json.load(open(kept))
    if old["cases"] != new["cases"]:
        sys.exit("record: the cases have changed since simgrid.json was made; run record.sh")
    pairs = [(a, b) for one, other in zip(old["ends"], new["ends"]) for a, b in zip(one, other)]
    worst = max(abs(a - b) / max(b, 1.0) for a, b in pairs)
    print(f"record: {summary}; the largest difference from the file is {worst:.1e}")
    sys.exit(worst > 1e-6)
END
