#!/usr/bin/env bash
# Builds the Debian package and tries it: lintian, units, manual pages, and the package itself in roots of their own, without an
# init and with systemd. The machine stays as it is.
#
# What cannot be tried on a machine is named on a line "skipped ...". The last line has the counts.
#
# Usage: tests/packages/run.sh [--no-build]    the program is there already
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"
cd "$here/../.."

missing=()
for program in lintian mandoc man jq dpkg-shlibdeps; do
    command -v "$program" >/dev/null || missing+=("$program")
done
[ ${#missing[@]} = 0 ] || { echo "packages: ${missing[*]} is missing: run scripts/setup.sh" >&2; exit 1; }
# As the tests build it: another choice of packages has other features, and would be compiled anew.
[ "${1:-}" = --no-build ] || cargo test --workspace --locked --no-run -q

share=$(mktemp -d)
starter=''
end() {
    local code=$?
    [ -z "$starter" ] || kill "$starter" 2>/dev/null || true
    exec >&-
    wait
    rm -rf "$share"
    exit "$code"
}
trap end EXIT
exec 3>&1
exec > >(tee "$share/results" >&3)
counter=$!

# --- the package and its parts ---
first=$share/first.deb
second=$share/second.deb
deb=$(packaging/build.sh)
cp "$deb" "$first"
# The same package as a later revision, for an upgrade.
dpkg-deb -R "$first" "$share/tree"
sed -i 's/^\(Version: .*\)$/\1+later/' "$share/tree/DEBIAN/control"
dpkg-deb -b -Znone --root-owner-group "$share/tree" "$second" >/dev/null

lints() {
    local said
    # Run by root or not, it does the same.
    said=$(lintian --no-cfg --profile debian --display-info --pedantic --display-experimental "$first" 2>&1 |
        grep -v '^running with root privileges') || true
    equal "" "$said"
}
check "lintian finds nothing" lints
# warnings_of PAGE LEAST: those of mandoc, from this level on, and those of groff
warnings_of() {
    zcat "$1" | mandoc -T lint -W "$2" 2>&1 | grep -v 'missing date' || true
    zcat "$1" | LC_ALL=C.UTF-8 MANROFFSEQ='' MANWIDTH=80 man --warnings -E UTF-8 -l -Tutf8 -Z - 2>&1 >/dev/null
}
pages_are_clean() {
    local page least
    for page in "$share"/tree/usr/share/man/man*/*; do
        # Pages of commands are made by a library, which has a style of its own.
        case $page in *.1.gz) least=error ;; *) least=warning ;; esac
        equal "" "$(warnings_of "$page" "$least")" || { echo "in $(basename "$page")"; return 1; }
    done
}
check "manual pages have no warnings" pages_are_clean
for name in mount.ebb umount.ebb; do
    check "$name is a script for the plainest shell" dash -n "packaging/mount/$name"
done

# --- in a root of its own ---
# Tries the package beside a systemd.
booted() {
    "$here/private-root.sh" "$share" /srv/packages/boot.sh >"$share/boot.log" 2>&1 </dev/null &
    starter=$!
    if soon 60 inside systemctl is-system-running --wait; then
        inside /srv/packages/booted.sh /srv/packages/first.deb /srv/packages/second.deb ||
            echo "FAILED  the checks beside systemd came to their end"
    else
        echo "skipped units: systemd does not start in a root of its own: $(tail -n 1 "$share/boot.log")"
    fi
    kill "$starter" 2>/dev/null || true
    wait "$starter" || true
    starter=''
}
inside() { # inside COMMAND...
    local init
    init=$(pgrep -P "$(pgrep -P "$starter" -x unshare)") || { echo "it has ended"; return 1; }
    nsenter -t "$init" -a env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
        LANG=C.UTF-8 TERM=dumb "$@"
}
if reason=$("$here/private-root.sh" --try); then
    cp "$here"/*.sh "$share/"
    "$here/private-root.sh" "$share" /srv/packages/plain.sh /srv/packages/first.deb /srv/packages/second.deb ||
        echo "FAILED  the checks without an init came to their end"
    booted
else
    echo "skipped all that installs the package: $reason"
fi

# --- counts ---
exec >&3
wait "$counter"
passed=$(grep -c ^ok "$share/results" || true)
failed=$(grep -c ^FAILED "$share/results" || true)
skipped=$(grep -c ^skipped "$share/results" || true)
[ "$skipped" = 0 ] && skipped='' || skipped=", $skipped skipped"
echo "packages: $passed passed, $failed failed$skipped"
[ "$failed" = 0 ]
