#!/usr/bin/env bash
# Makes the Debian package of the program that `cargo build` has made, and prints its path.
#
# Nothing is compiled for it but cargo-deb itself, once, below the build directory.
#
# Usage: packaging/build.sh
set -euo pipefail

repository=$(cd "$(dirname "$0")/.." && pwd)
cd "$repository"
# A later cargo-deb may refuse the profile "dev", which is the one that Ebb is built with.
version=3.8.0

metadata=$(cargo metadata --format-version 1 --locked --filter-platform "$(rustc -vV | sed -n 's/^host: //p')")
target=$(jq -r .target_directory <<<"$metadata")
ebb=$target/debug/ebb
[ -x "$ebb" ] || { echo "build.sh: there is no $ebb: run \`cargo build -p ebb\`" >&2; exit 1; }

# The first line of the changelog is the version that the package claims to be.
own=$(jq -r '.packages[] | select(.name == "ebb" and .source == null) | .version' <<<"$metadata")
said=$(sed -n '1s/^ebb (\([^)]*\)-[0-9]*) .*/\1/p' packaging/debian/changelog)
[ "$own" = "$said" ] || { echo "build.sh: packaging/debian/changelog begins with $said, and this is $own: write its entry" >&2; exit 1; }

tools=$target/tools
if [ "$("$tools/bin/cargo-deb" --version 2>/dev/null)" != "cargo-deb $version" ]; then
    cargo install -q --force cargo-deb --version "=$version" --locked --root "$tools" --target-dir "$tools/build" >&2
    rm -rf "$tools/build"
fi

# What the program says about itself. cargo-deb looks for it below target/release of its manifest, which means this place.
made=$target/debug/package
rm -rf "$made"
mkdir -p "$made/man1"
"$ebb" man "$made/man1"
for shell in bash zsh fish; do
    "$ebb" completions "$shell" >"$made/ebb.$shell"
done
packaging/licenses.py ebb <<<"$metadata" >"$made/third-party-licenses"
gzip -9n "$made/third-party-licenses" "$made"/man1/*

# The same commit gives the same package.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
# cargo-deb warns about the profile. Its errors are shown all the same.
"$tools/bin/cargo-deb" -q -p ebb --profile dev --no-build --strip --locked --output "$target/debian/"
