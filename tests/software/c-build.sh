#!/usr/bin/env bash
# Programs in C, from Debian's sources: unpacked, configured, made by several processes and tried by their own tests.
# What comes out has the very bytes of the same made elsewhere, make finds nothing to do afterwards and the right things
# when one file is newer, and what is left after its cleaning is what was unpacked.
# It has one form.
#
# Usage: tests/software/c-build.sh DIRECTORY
. "$(dirname "$0")/common.sh"

begin c-build "$1"
elsewhere=$scratch/elsewhere
mkdir "$elsewhere"

unpack() { mkdir "$2" && tar -C "$2" --strip-components=1 -xf "$(echo "$sources/$1"_*.orig.tar.*)"; } # unpack PROGRAM TO

# Without debugging information: it names the directory.
configure() { # configure PROGRAM
    case $1 in
        zlib) CFLAGS=-O0 ./configure ;;
        lua5.4) ;;
    esac
}

build() { # build PROGRAM
    case $1 in
        lua5.4) make -j2 linux MYCFLAGS=-O0 ;;
        *) make -j2 ;;
    esac
}

results() { # results PROGRAM: what is made for use
    case $1 in
        zlib) echo libz.a libz.so.1.* minigzip ;;
        lua5.4) echo src/liblua.a src/lua src/luac ;;
    esac
}

# A file, and what must be made anew when it is newer.
changed() { # changed PROGRAM
    case $1 in
        zlib) echo inflate.c inflate.o ;;
        lua5.4) echo src/lstrlib.c src/lstrlib.o ;;
    esac
}

try() { # try PROGRAM
    case $1 in
        lua5.4) ./src/lua "$here/sort.lua" "$work/lua.txt" && ./src/luac -o /dev/null -p "$here/sort.lua" ;;
        zlib) make test ;;
    esac
}

configured() { cd "$1" && configure "$1" && cd "$elsewhere/$1" && configure "$1"; }
made() { cd "$1" && build "$1" && cd "$elsewhere/$1" && build "$1"; }
same() { # What came out is the same, byte for byte.
    local name
    cd "$1"
    for name in $(results "$1"); do
        [ -s "$name" ] && cmp "$name" "$elsewhere/$1/$name"
    done
}
tried() { cd "$1" && try "$1"; }

# Nothing is made twice: no result and no object changes.
rests() {
    cd "$1"
    find . -type f -printf '%p %T@ %C@\n' | grep -v 'config.log' | sort >"$scratch/before"
    build "$1"
    find . -type f -printf '%p %T@ %C@\n' | grep -v 'config.log' | sort | diff "$scratch/before" -
}
remade() {
    local source object bystander
    cd "$1"
    read -r source object <<<"$(changed "$1")"
    bystander=$(find "$(dirname "$object")" -maxdepth 1 -name '*.o' ! -name "$(basename "$object")" | sort | head -n 1)
    touch "$scratch/moment" && sleep 0.01 && touch "$source" && build "$1"
    [ "$object" -nt "$source" ] && [ ! "$bystander" -nt "$source" ]
}
cleaned() {
    cd "$1"
    case $1 in
        lua5.4) make clean ;;
        *) make distclean ;;
    esac
    unpack "$1" "$scratch/fresh"
    # Neither more nor less than what came, but for what make itself made anew.
    diff -r --no-dereference "$scratch/fresh" . | tee "$scratch/differences"
    [ ! -s "$scratch/differences" ]
    rm -rf "$scratch/fresh"
}
unpacked() { unpack "$1" "$1" && unpack "$1" "$elsewhere/$1" && diff -r --no-dereference "$1" "$elsewhere/$1"; }
removed() { rm -rf "$work/$1" && [ ! -e "$work/$1" ]; }

export work scratch here sources elsewhere
for program in "${c_programs[@]}"; do
    for step in unpacked configured made same tried rests remade cleaned removed; do
        check "$program: $step" bash -euo pipefail -c \
            "$(declare -f unpack configure build results changed try "$step"); $step $program"
    done
done
finish
