#!/usr/bin/env bash
# Installs the programs that the suites of this folder use, from Debian: nothing is built. Says nothing when nothing is
# missing.
#
# Usage: tests/software/install.sh [SUITE...]   (all without one)
. "$(dirname "$0")/common.sh"

packages() {
    case $1 in
        sqlite) echo sqlite3 python3 libsqlite3-0 procps ;;
        postgresql) echo postgresql postgresql-common procps ;;
        git) echo git ;;
        copies) echo rsync tar acl attr python3 ;;
        stress-ng) echo stress-ng ;;
    esac
}

wanted=(attr util-linux)
for suite in "${@:-sqlite postgresql git copies stress-ng}"; do
    for name in $suite; do
        # shellcheck disable=SC2207
        wanted+=($(packages "$name"))
    done
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
