"""Many small files. small_files.py STEP DIRECTORY COUNT, with the steps in the order of STEPS, each after the other.

Half of the files lie in one directory, half in a tree with fifty to a directory; each has bytes of its own, up to 4 KiB.
"""

import hashlib
import os
import sys
from concurrent.futures import ProcessPoolExecutor

PROCESSES = 4
# Of what changes names, every fifth file has its share.
SOME = 5


def path(root, index):
    if index % 2:
        return f"{root}/flat/f{index}"
    return f"{root}/tree/{index // 5000}/{index // 100}/f{index}"


def content(index):
    seed = hashlib.sha256(str(index).encode()).digest()
    return (seed * 128)[: index * 2654435761 % 4097]


def each(job, root, count, step=1):
    """Does it for every step-th number, by processes that take them in turns; their answers together."""
    with ProcessPoolExecutor(PROCESSES) as pool:
        parts = [pool.submit(part, job, root, range(start * step, count, PROCESSES * step)) for start in range(PROCESSES)]
        return [answer for done in parts for answer in done.result()]


def part(job, root, numbers):
    return [job(root, index) for index in numbers]


def make_one(root, index):
    name = path(root, index)
    os.makedirs(os.path.dirname(name), exist_ok=True)
    with open(name, "xb") as file:
        file.write(content(index))


def read_one(root, index):
    with open(path(root, index), "rb") as file:
        assert file.read() == content(index), f"file {index} has other bytes"


def size_one(root, index):
    status = os.stat(path(root, index))
    assert status.st_size == len(content(index)) and status.st_nlink == 1, f"file {index}: {status}"
    return status.st_ino


def rename_one(root, index):
    # From the one directory into the tree, or the other way, and back.
    name = path(root, index)
    other = path(root, index ^ 1) + ".moved"
    os.rename(name, other)
    assert not os.path.lexists(name)
    os.rename(other, name)


def link_one(root, index):
    os.link(path(root, index), f"{root}/links/l{index}")
    return os.stat(f"{root}/links/l{index}").st_ino


def unlink_one(root, index):
    os.unlink(path(root, index))
    if index % SOME:
        return
    with open(f"{root}/links/l{index}", "rb") as file:
        assert file.read() == content(index) and os.fstat(file.fileno()).st_nlink == 1
    os.unlink(f"{root}/links/l{index}")


def listed(root):
    """Names of files, as directories tell them."""
    names = []
    for _, _, files in os.walk(root, onerror=fail):
        names += files
    return names


def fail(error):
    raise error


def check_listing(root, count):
    names = listed(root)
    assert len(names) == count, f"{len(names)} names are listed, {count} are there"
    assert set(names) == {f"f{index}" for index in range(count)}, "the listing has other names"


def main():
    step, root, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if step == "make":
        os.mkdir(f"{root}/flat")
        each(make_one, root, count)
    elif step == "list":
        check_listing(root, count)
    elif step == "read":
        each(read_one, root, count)
    elif step == "attributes":
        inodes = each(size_one, root, count)
        assert len(set(inodes)) == count, "inode numbers are not distinct"
    elif step == "rename":
        each(rename_one, root, count, SOME)
        check_listing(root, count)
        each(read_one, root, count, SOME)
    elif step == "link":
        os.mkdir(f"{root}/links")
        inodes = each(link_one, root, count, SOME)
        assert len(set(inodes)) == len(inodes) == len(os.listdir(f"{root}/links")) == count // SOME
    elif step == "remove":
        each(unlink_one, root, count)
        assert listed(root) == []
        for directory, _, _ in os.walk(root, topdown=False):
            if directory != root:
                os.rmdir(directory)
        assert os.listdir(root) == []
    else:
        sys.exit(__doc__)


main()
