#!/usr/bin/env bash
# Installs the programs that the suites of this folder use, from Debian: nothing is built. Fetches the sources that one of
# them builds. Says nothing when nothing is missing.
#
# Usage: tests/software/install.sh [SUITE...]   (all without one)
. "$(dirname "$0")/common.sh"

packages() {
    case $1 in
        sqlite) echo sqlite3 python3 libsqlite3-0 procps jq ;;
        sqlite-full) echo python3 libsqlite3-0 ;;
        postgresql) echo postgresql postgresql-common procps jq ;;
        git) echo git ;;
        copies) echo rsync tar acl attr python3 ;;
        stress-ng) echo stress-ng ;;
        dbench) echo dbench ;;
        bonnie) echo bonnie++ ;;
        small-files) echo python3 ;;
        c-build) echo gcc make libc6-dev tar xz-utils bzip2 ;;
    esac
}

# From the same Debian, by lists of its own: nothing is changed on this machine.
fetch_sources() { # fetch_sources PROGRAM...
    local program options missing=()
    for program in "$@"; do
        ls "$sources/$program"_*.orig.tar.* >/dev/null 2>&1 || missing+=("$program")
    done
    [ "${#missing[@]}" -gt 0 ] || return 0
    echo "fetching the sources of ${missing[*]}"
    mkdir -p "$sources/lists/partial"
    echo "deb-src http://deb.debian.org/debian $(. /etc/os-release && echo "$VERSION_CODENAME") main" >"$sources/sources.list"
    options=(-qq -o "Dir::Etc::SourceList=$sources/sources.list" -o Dir::Etc::SourceParts=- -o "Dir::State::Lists=$sources/lists"
        -o "Dir::Cache=$sources/lists" -o "APT::Sandbox::User=$(id -un)")
    apt-get "${options[@]}" update
    (cd "$sources" && apt-get "${options[@]}" source --download-only "${missing[@]}" >/dev/null)
    rm -rf "$sources/lists"
}

suites=("$@")
[ "${#suites[@]}" -gt 0 ] || suites=("${all_suites[@]}")
wanted=(attr util-linux)
for suite in "${suites[@]}"; do
    # shellcheck disable=SC2207
    wanted+=($(packages "$suite"))
    if [ "$suite" = c-build ]; then
        fetch_sources "${c_programs[@]}"
    fi
done
missing=()
for package in "${wanted[@]}"; do
    dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done
[ "${#missing[@]}" -gt 0 ] || exit 0
echo "installing ${missing[*]}"
as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo)
"${as_root[@]}" apt-get update -qq
# No database server is started by its package: the suite makes one of its own.
"${as_root[@]}" mkdir -p /etc/postgresql-common
[ -e /etc/postgresql-common/createcluster.conf ] ||
    echo 'create_main_cluster = false' | "${as_root[@]}" tee /etc/postgresql-common/createcluster.conf >/dev/null
DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
