#!/usr/bin/env bash
# A Rust build: crates of this project (ebb-types and ebb-layout), with what they depend on as cargo vendors it, procedural
# macros and build scripts among it. Source, vendored source and target directory are on the file system. It builds, its
# tests pass (the long form has those of ebb-layout, which need more crates), a second build does nothing, a changed file
# has what depends on it built anew and nothing else, and two cargos at once wait for each other.
#
# Usage: tests/software/rust-build.sh DIRECTORY
. "$(dirname "$0")/common.sh"

begin rust-build "$1"
tested=$(amount ebb-types ebb-layout)
export work scratch repository tested
# Nothing of the caller's build comes in.
unset CARGO_TARGET_DIR RUSTFLAGS CARGO_INCREMENTAL CARGO_BUILD_RUSTFLAGS RUSTC_WRAPPER
export CARGO_TERM_COLOR=never CARGO_NET_OFFLINE=true

sources() {
    mkdir -p "$work/ws/crates" "$work/ws/.cargo"
    cp -a "$repository/crates/ebb-types" "$repository/crates/ebb-layout" ws/crates/
    cp "$repository"/{Cargo.lock,rust-toolchain.toml} ws/
    sed 's|^members = .*|members = ["crates/*"]|' "$repository/Cargo.toml" >ws/Cargo.toml
    # The lock file names crates of other platforms, too, which no build here has fetched: this step alone may fetch.
    cd ws && CARGO_NET_OFFLINE=false cargo vendor vendor >.cargo/config.toml
    grep -q '^directory = "vendor"' .cargo/config.toml && [ -d vendor/proptest ]
}
# Versions are those that the project's own build uses.
build() {
    cd ws && cargo build 2>&1 | tee "$scratch/said"
    grep -q 'Compiling ebb-layout' "$scratch/said" && [ -s target/debug/libebb_layout.rlib ]
}
tests_pass() { cd ws && cargo test -p "$tested" 2>&1 | tee "$scratch/said" && grep -q '^test result: ok. [1-9]' "$scratch/said"; }
second_build_does_nothing() {
    cd ws && cargo build -v >"$scratch/said" 2>&1 || { cat "$scratch/said"; exit 1; }
    ! grep -E 'Dirty|Compiling|Running' "$scratch/said" && grep -q 'Fresh ebb-layout' "$scratch/said"
}
a_change_builds_what_depends_on_it() {
    cd ws && echo '/// One more.' >>crates/ebb-layout/src/lib.rs && echo 'pub const ONE_MORE: u8 = 1;' >>crates/ebb-layout/src/lib.rs
    cargo build -v >"$scratch/said" 2>&1 || { cat "$scratch/said"; exit 1; }
    grep 'Compiling' "$scratch/said"
    [ "$(grep -c Compiling "$scratch/said")" = 1 ] && grep -q 'Compiling ebb-layout' "$scratch/said"
    cargo build -v >"$scratch/said" 2>&1 && ! grep Compiling "$scratch/said"
}
two_at_once() {
    cd ws && touch crates/ebb-types/src/lib.rs
    cargo build >"$scratch/one" 2>&1 &
    cargo check >"$scratch/two" 2>&1 || { cat "$scratch/two"; exit 1; }
    wait "$!" || { cat "$scratch/one"; exit 1; }
    cargo build -v 2>&1 | grep -E 'Dirty|Compiling' && exit 1
    cargo check -v 2>&1 | grep -E 'Dirty|Checking' && exit 1
    true
}
clean() { cd ws && cargo clean && [ ! -e target ]; }

for step in sources build tests_pass second_build_does_nothing a_change_builds_what_depends_on_it two_at_once clean; do
    check "$step" bash -euo pipefail -c "$(declare -f "$step"); $step"
done
finish
