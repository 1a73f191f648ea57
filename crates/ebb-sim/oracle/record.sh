#!/usr/bin/env bash
# Makes simgrid.json anew: gives the oracle's cases to SimGrid.
# SimGrid comes from PyPI where its build succeeds (it has no wheels: it wants CMake and the Boost headers), else from
# Debian's packages, which are unpacked beside it and not installed. Nothing is left behind.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

cargo run -q -p ebb-sim --example oracle_cases >"$work/cases.json"
python3 -m venv "$work/venv"
python="$work/venv/bin/python"
if "$python" -m pip install -q --only-binary :all: simgrid >"$work/pip.log" 2>&1; then
    echo "record: SimGrid from PyPI" >&2
else
    command -v apt-get >/dev/null || { echo "record: no wheel of simgrid and no apt-get; pip said:" >&2; cat "$work/pip.log" >&2; exit 1; }
    echo "record: no wheel of simgrid here; taking Debian's python3-simgrid" >&2
    mapfile -t packages < <(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
        --no-replaces --no-enhances python3-simgrid | grep -E '^(python3-simgrid|libsimgrid|libboost|libns3|libgsl|libgfortran|libquadmath|libxml2|libicu|libsqlite3)')
    [ "${#packages[@]}" -gt 0 ] || { echo "record: apt knows no python3-simgrid; try apt-get update" >&2; exit 1; }
    (cd "$work" && apt-get download -qq "${packages[@]}" 2>/dev/null && for deb in *.deb; do dpkg-deb -x "$deb" root; done)
    export LD_LIBRARY_PATH="$work/root/usr/lib/$(uname -m)-linux-gnu" PYTHONPATH="$work/root/usr/lib/python3/dist-packages"
    python=python3
fi
"$python" "$here/simgrid_oracle.py" <"$work/cases.json" >"$work/simgrid.json"
mv "$work/simgrid.json" "$here/simgrid.json"
echo "record: $(python3 -c 'import json,sys; d=json.load(open(sys.argv[1])); print("SimGrid", d["simgrid"], len(d["cases"]), "cases", sum(map(len, d["ends"])), "flows")' "$here/simgrid.json")" >&2
