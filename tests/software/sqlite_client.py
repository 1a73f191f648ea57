"""Transactions on a SQLite database, and the proof that none of them is lost or half there.

sqlite_client.py make DATABASE MODE
    Accounts with a hundred each. MODE is delete (a rollback journal) or wal.
sqlite_client.py work DATABASE MODE WORKER FIRST
    Moves money and notes it as (WORKER, number), from FIRST on, until it is ended; prints each number once committed.
sqlite_client.py words DATABASE MODE WORKER FIRST
    The same as words for Debian's sqlite3, on standard output.
sqlite_client.py prove DATABASE WORKER:COUNT...
    Fails unless the database is sound, each account has what the notes say, and each worker's first COUNT transactions
    are there, and at most one more. Prints how many each has, in the order of the arguments.
"""

import random
import sqlite3
import sys
import time

ACCOUNTS = 200
# Between two transactions. A writer that waits for SQLite's lock looks at it up to a tenth of a second apart: beside one
# that never paused, on a disk that is fast to sync, it waited for minutes.
PAUSE_SECONDS = 0.01


def connect(path, mode):
    base = sqlite3.connect(path, timeout=120, isolation_level=None)
    told = base.execute(f"PRAGMA journal_mode={mode}").fetchone()[0]
    assert told == mode, f"journal mode {told} instead of {mode}"
    base.execute("PRAGMA synchronous=FULL")
    return base


def make(path, mode):
    base = connect(path, mode)
    base.execute("BEGIN")
    base.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER, filler BLOB)")
    base.execute("CREATE TABLE moved (worker, number, step, source, target, amount, PRIMARY KEY (worker, number, step))")
    for account in range(ACCOUNTS):
        base.execute("INSERT INTO account VALUES (?, 100, zeroblob(600))", (account,))
    base.execute("COMMIT")


def transactions(worker, first, say, acknowledge):
    # A page cache that is too small for long transactions: what they change is in the database before they commit, and
    # a rollback journal is all that leads back.
    say("PRAGMA cache_size=10")
    dice = random.Random(worker * 1_000_003 + first)
    number = first
    while True:
        say("BEGIN IMMEDIATE")
        for step in range(dice.choice([1, 1, 1, 40])):
            source, target = dice.sample(range(ACCOUNTS), 2)
            amount = dice.randint(1, 50)
            say("UPDATE account SET balance = balance - ?, filler = randomblob(600) WHERE id = ?", amount, source)
            say("UPDATE account SET balance = balance + ? WHERE id = ?", amount, target)
            say("INSERT INTO moved VALUES (?, ?, ?, ?, ?, ?)", worker, number, step, source, target, amount)
        if dice.randrange(10) == 0:
            say("ROLLBACK")
            continue
        say("COMMIT")
        acknowledge(number)
        number += 1


def work(path, mode, worker, first):
    base = connect(path, mode)

    def acknowledge(number):
        print(number, flush=True)
        time.sleep(PAUSE_SECONDS)

    transactions(worker, first, lambda words, *values: base.execute(words, values), acknowledge)


def words(path, mode, worker, first):
    def say(text, *values):
        for value in values:
            text = text.replace("?", str(value), 1)
        print(text + ";")

    print(".bail on\n.timeout 120000")
    print("PRAGMA synchronous=FULL;")

    def acknowledge(number):
        say("SELECT ?", number)
        print(f".shell sleep {PAUSE_SECONDS}")

    transactions(worker, first, say, acknowledge)


def prove(path, counts):
    base = sqlite3.connect(path, timeout=120, isolation_level=None)
    found = base.execute("PRAGMA integrity_check").fetchall()
    assert found == [("ok",)], f"the integrity check finds {found}"
    wrong = base.execute("""
        SELECT id, balance, 100 - (SELECT total(amount) FROM moved WHERE source = id)
            + (SELECT total(amount) FROM moved WHERE target = id) AS noted
        FROM account WHERE balance != noted""").fetchall()
    assert not wrong, f"balances differ from the notes: {wrong}"
    assert base.execute("SELECT count(*) FROM account").fetchone() == (ACCOUNTS,)
    for worker, count in counts:
        rows = base.execute("SELECT DISTINCT number FROM moved WHERE worker = ? ORDER BY number", (worker,))
        numbers = [row[0] for row in rows]
        assert numbers == list(range(len(numbers))), f"worker {worker} has a gap: {numbers}"
        assert count <= len(numbers) <= count + 1, f"worker {worker}: {count} acknowledged, {len(numbers)} there"
        print(len(numbers), end=" ")
    print()


def main():
    what, path, *rest = sys.argv[1:]
    if what == "make":
        make(path, rest[0])
    elif what in ("work", "words"):
        {"work": work, "words": words}[what](path, rest[0], int(rest[1]), int(rest[2]))
    elif what == "prove":
        prove(path, [tuple(map(int, word.split(":"))) for word in rest])
    else:
        sys.exit(__doc__)


main()
