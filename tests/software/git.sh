#!/usr/bin/env bash
# git: a repository with history is made, cloned, branched, merged, repacked, collected and used from several work
# trees; everything is proved by git's own fsck and by comparing contents.
#
# Usage: tests/software/git.sh DIRECTORY
. "$(dirname "$0")/common.sh"

begin git "$1"
commits=$(amount 30 300)
files=$(amount 150 1500)
export HOME=$scratch GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=$scratch/gitconfig
git config --global user.name "A Tester" && git config --global user.email tester@example.org
git config --global init.defaultBranch main && git config --global advice.detachedHead false
# As a careful person has it: objects and references are synced.
git config --global core.fsync all

# A tree of small files and a larger one, changed by each commit; all content follows from numbers.
make() {
    git init -q origin && cd origin
    local number=0 file
    for ((file = 0; file < files; file++)); do
        mkdir -p "d$((file % 17))/e$((file % 5))"
        seq "$file" $((file + 200)) >"d$((file % 17))/e$((file % 5))/f$file"
    done
    ln -s d1/e1 a-link
    printf '#!/bin/sh\nexit 7\n' >program && chmod 755 program
    seq 1 100000 >large
    git add -A && git commit -qm "start"
    for ((number = 1; number <= commits; number++)); do
        file=$((number * 7 % files))
        echo "line $number" >>"d$((file % 17))/e$((file % 5))/f$file"
        git mv -k "d$((number % 17))" "moved-$number" 2>/dev/null && git mv "moved-$number" "d$((number % 17))"
        git commit -qam "commit $number"
        [ $((number % 10)) -ne 0 ] || git tag "t$number"
    done
    [ "$(git rev-list --count HEAD)" = $((commits + 1)) ]
}

sound() { git -C "$1" fsck --full --strict --no-dangling && [ -z "$(git -C "$1" status --porcelain)" ]; }

clone_by_transport() { git clone -q "file://$work/origin" clone && sound clone; }
clone_by_links() { git clone -q --local origin linked && sound linked; }
clone_bare() { git clone -q --mirror "file://$work/origin" mirror.git && git -C mirror.git fsck --full --strict; }

merge() {
    cd clone
    git checkout -qb side HEAD~5
    echo side >only-on-side && git add only-on-side && git commit -qm side
    git checkout -q main && git merge -q --no-edit side
    git checkout -qb rebased HEAD~3 && echo more >more && git add more && git commit -qm more
    git rebase -q main && git checkout -q main && git merge -q --ff-only rebased
    git stash list && echo changed >>program && git stash -q && git stash pop -q && git checkout -q program
    sound .
}

push() { git -C clone push -q origin HEAD:refs/heads/pushed && [ "$(git -C origin rev-parse pushed)" = "$(git -C clone rev-parse HEAD)" ]; }

repack() {
    local before
    before=$(git -C clone rev-parse 'HEAD^{tree}')
    git -C clone repack -q -a -d -f --depth=20 --window=10 && sound clone
    git -C clone gc -q --prune=now --aggressive && sound clone
    git -C clone pack-refs --all && git -C clone commit-graph write --reachable
    git verify-pack clone/.git/objects/pack/*.idx
    [ "$(git -C clone rev-parse 'HEAD^{tree}')" = "$before" ]
}

worktrees() {
    local tree
    cd clone
    for tree in 1 2 3; do git worktree add -q "../tree-$tree" -b "tree-$tree"; done
    for tree in 1 2 3; do
        (
            cd "../tree-$tree"
            for step in 1 2 3 4 5; do
                echo "$tree $step" >"by-$tree-$step" && git add "by-$tree-$step" && git commit -qm "$tree $step"
            done
        ) &
    done
    wait
    for tree in 1 2 3; do
        git merge -q --no-edit "tree-$tree"
        git worktree remove "../tree-$tree"
    done
    [ "$(find . -maxdepth 1 -name 'by-*' | wc -l)" = 15 ] && git worktree prune && sound .
}

bisect() {
    cd clone
    git bisect start HEAD "$(git rev-list --max-parents=0 HEAD)"
    git bisect run sh -c '! [ -e only-on-side ]'
    git show --name-only --format= refs/bisect/bad | grep -qx only-on-side
    git bisect reset
    sound .
}

archive() {
    git -C origin archive --format=tar HEAD | tar -x -C "$scratch"
    git -C origin checkout -q -f HEAD
    diff -r --no-dereference -x .git "$scratch/d1" origin/d1 && cmp "$scratch/large" origin/large
}

# A check is a function, run by a shell that stops at the first failure.
for step in make clone_by_transport clone_by_links clone_bare merge push repack worktrees bisect archive; do
    export work scratch commits files
    check "$step" bash -euc "$(declare -f sound "$step"); $step"
done
finish
