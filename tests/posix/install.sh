#!/usr/bin/env bash
# Installs the test programs into the build directory: pjdfstest and fsx from crates.io. fio comes from the
# distribution (package fio). Takes a minute or two the first time, nothing after that.
#
# Usage: tests/posix/install.sh
. "$(dirname "$0")/common.sh"

tools=${EBB_TOOLS:-${CARGO_TARGET_DIR:-$repository/target}/tools}
for package in pjdfstest@0.2.2 fsx@0.3.2; do
    # Without the repository's profile and lock file.
    (cd / && CARGO_TARGET_DIR="$tools/build" cargo install --quiet --locked --root "$tools" "$package")
done
rm -rf "$tools/build"
tool fio >/dev/null
echo "test programs are in $tools/bin"
