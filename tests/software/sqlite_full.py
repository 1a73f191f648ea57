"""SQLite until the disk is full, and on. sqlite_full.py DIRECTORY MODE LEFT

Fills the file system of DIRECTORY but for LEFT MiB, makes a database there (MODE: delete or wal) and commits until it is
told that the disk is full; proves what is there; makes room and goes on.
"""

import errno
import os
import sqlite3
import sys
import time

MIB = 1 << 20
# Large rows: each commit asks for several syncs, and the disk is full after fewer of them.
ROW = 60_000
# For room to be used again: what is removed is freed a little later where many disks are asked.
PATIENCE = 60


def fill(path, left):
    """A file with all the room but so many bytes."""
    with open(path, "wb") as file:
        while True:
            told = os.statvfs(os.path.dirname(path))
            if told.f_bavail * told.f_frsize <= left + MIB:
                break
            try:
                file.write(os.urandom(MIB))
                file.flush()
                os.fsync(file.fileno())
            except OSError as error:
                assert error.errno == errno.ENOSPC, error
                break
    size = os.path.getsize(path)
    assert size > 8 * MIB, f"only {size} bytes found room"


def connect(path, mode):
    base = sqlite3.connect(path, timeout=60, isolation_level=None)
    assert base.execute(f"PRAGMA journal_mode={mode}").fetchone()[0] == mode
    base.execute("PRAGMA synchronous=FULL")
    # A log that grows for ever would hold what a checkpoint could free.
    base.execute("PRAGMA wal_autocheckpoint=100")
    return base


def commit(base, number):
    base.execute("BEGIN IMMEDIATE")
    for part in range(3):
        base.execute("INSERT INTO noted VALUES (?, ?, ?)", (number, part, os.urandom(ROW)))
    base.execute("COMMIT")


def prove(path, mode, count):
    """By a connection that has seen nothing before."""
    base = connect(path, mode)
    assert base.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    found = base.execute("SELECT number, count(*), sum(length(bytes)) FROM noted GROUP BY number ORDER BY number").fetchall()
    # One that was told to have failed may be there as a whole if only the answer to its last sync was bad; not here:
    # it had no room for its bytes.
    assert found == [(number, 3, 3 * ROW) for number in range(count)], f"{len(found)} of {count}"
    base.close()


def main():
    directory, mode, left = sys.argv[1], sys.argv[2], int(sys.argv[3]) * MIB
    ballast, path = f"{directory}/ballast", f"{directory}/{mode}.db"
    base = connect(path, mode)
    base.execute("CREATE TABLE noted (number, part, bytes, PRIMARY KEY (number, part))")
    fill(ballast, left)
    count, refused = 0, None
    while refused is None:
        try:
            commit(base, count)
            count += 1
        except sqlite3.OperationalError as error:
            refused = error
        assert count < 10_000, "the disk is not that large"
    print(f"{count} transactions, then: {refused} ({refused.sqlite_errorname})")
    assert refused.sqlite_errorname == "SQLITE_FULL", refused.sqlite_errorname
    assert count >= 10, count
    if base.in_transaction:
        base.execute("ROLLBACK")
    # While it is full, what is there can be read.
    assert base.execute("SELECT count(*) FROM noted").fetchone() == (3 * count,)
    assert base.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    # More attempts change nothing.
    for _ in range(5):
        try:
            commit(base, count)
            count += 1
        except sqlite3.OperationalError as error:
            assert error.sqlite_errorname == "SQLITE_FULL", error.sqlite_errorname
            if base.in_transaction:
                base.execute("ROLLBACK")
    os.unlink(ballast)
    deadline = time.monotonic() + PATIENCE
    more = 0
    while more < 50:
        try:
            commit(base, count)
            count, more = count + 1, more + 1
        except sqlite3.OperationalError as error:
            assert error.sqlite_errorname == "SQLITE_FULL", error.sqlite_errorname
            assert time.monotonic() < deadline, f"no room {PATIENCE} s after some was made"
            if base.in_transaction:
                base.execute("ROLLBACK")
            time.sleep(0.2)
    base.close()
    prove(path, mode, count)
    for name in os.listdir(directory):
        if name.startswith(mode):
            os.unlink(f"{directory}/{name}")


main()
