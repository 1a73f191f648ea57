"""What spark.sh has Spark do on a file system: spark_job.py DIRECTORY STEP... Ends with an error if what is read is not
what was written. Only data frames, so that no executor starts a Python of its own."""

import os
import signal
import sys
import threading
import time

from pyspark.sql import SparkSession

ROWS = 400_000
KEYS = 100
STREAM_FILES = 6
STREAM_ROWS = STREAM_FILES * 1000


def expect(what, expected, found):
    """Ends the step unless the two are equal."""
    if expected != found:
        sys.exit(f"{what}: {expected} was expected, {found} found")
    print(f"  ok      {what}", flush=True)


def names_in(spark, directory):
    """Names in a directory of the file system; none if there is no such directory."""
    path = spark._jvm.org.apache.hadoop.fs.Path(directory)
    system = path.getFileSystem(spark._jsc.hadoopConfiguration())
    if not system.exists(path):
        return []
    return [status.getPath().getName() for status in system.listStatus(path)]


def numbers(spark):
    """id, key, half and name: whole numbers, so that sums are exact."""
    return spark.range(0, ROWS, 1, 8).selectExpr(
        "id", f"id % {KEYS} as key", "cast(id as double) / 2 as half", "concat('row ', id) as name"
    )


def parquet(spark, directory):
    """Writes Parquet, and reads it: whole, some columns, and rows that a filter leaves."""
    path = f"{directory}/numbers"
    numbers(spark).write.parquet(path)
    expect("_SUCCESS is there, and nothing temporary", ["_SUCCESS"], [n for n in names_in(spark, path) if n[0] == "_"])
    read = spark.read.parquet(path)
    expect("rows", ROWS, read.count())
    row = read.selectExpr("sum(id)", "sum(half)", "count(distinct name)").first()
    expect("sums", [ROWS * (ROWS - 1) // 2, ROWS * (ROWS - 1) / 4, ROWS], list(row))
    row = read.where("id between 1000 and 1999 and key < 10").selectExpr("count(*)", "sum(id)").first()
    kept = [i for i in range(1000, 2000) if i % KEYS < 10]
    expect("rows that a filter leaves", [len(kept), sum(kept)], list(row))
    by_key = {row["key"]: row["count"] for row in read.groupBy("key").count().collect()}
    expect("rows of each key", {key: ROWS // KEYS for key in range(KEYS)}, by_key)


def table(spark, directory):
    """A table with partitions: written, added to, and one partition written over."""
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    some = numbers(spark).where("id < 4000").selectExpr("id", "name", "key % 4 as part")
    some.write.partitionBy("part").saveAsTable("numbers", path=f"{directory}/table", format="parquet")
    spark.sql("insert into numbers select id + 4000, name, part from numbers where part = 1")
    expect("rows after an insert", 5000, spark.table("numbers").count())
    spark.sql("insert overwrite numbers partition (part) select id, 'new', 2 from range(10)")
    found = {row["part"]: row["count"] for row in spark.table("numbers").groupBy("part").count().collect()}
    expect("rows after a partition was written over", {0: 1000, 1: 2000, 2: 10, 3: 1000}, found)
    parts = ["_SUCCESS"] + [f"part={part}" for part in range(4)]
    expect("no directory is left over", parts, sorted(names_in(spark, f"{directory}/table")))


def stream(spark, directory, die_in_batch):
    """Copies files of text to Parquet, a batch for each file, until all are copied. Dies as soon as `die_in_batch` has
    begun, if this is a number."""
    if die_in_batch is not None:
        die_when(spark, lambda: str(die_in_batch) in names_in(spark, f"{directory}/checkpoint/offsets"))
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(f"{directory}/source")
    query = (
        lines.selectExpr("cast(value as long) as id")
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{directory}/copied")
    )
    query.awaitTermination()
    # A reader that lists the directory would count what the dead attempt wrote: this one goes by the sink's log.
    row = spark.read.parquet(f"{directory}/copied").selectExpr("count(*)", "count(distinct id)", "sum(id)").first()
    expected = [STREAM_ROWS, STREAM_ROWS, STREAM_ROWS * (STREAM_ROWS - 1) // 2]
    expect("each row once, after a restart", expected, list(row))


def stream_source(spark, directory):
    """The files that `stream` copies."""
    spark.range(0, STREAM_ROWS, 1, STREAM_FILES).selectExpr("cast(id as string)").write.text(f"{directory}/source")


def commit(spark, directory, die):
    """Writes many small files. With `die`, the driver dies when the first of them has its final name, and is in the
    middle of its commit."""
    path = f"{directory}/many"
    if die:
        die_when(spark, lambda: any(name.startswith("part-") for name in names_in(spark, path)))
    spark.range(0, ROWS, 1, 200).write.mode("overwrite").parquet(path)
    expect("rows of many files", ROWS, spark.read.parquet(path).count())


def die_when(spark, condition):
    """Kills the driver's JVM, and this process, with SIGKILL as soon as the condition holds."""
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()

    def watch():
        while not condition():
            time.sleep(0.002)
        os.kill(jvm, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def main():
    directory, *names = sys.argv[1:]
    spark = SparkSession.builder.appName(" ".join(names)).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    steps = {
        "parquet": lambda: parquet(spark, directory),
        "table": lambda: table(spark, directory),
        "stream-source": lambda: stream_source(spark, directory),
        "stream-killed": lambda: stream(spark, directory, 3),
        "stream": lambda: stream(spark, directory, None),
        "commit-killed": lambda: commit(spark, directory, True),
        "commit": lambda: commit(spark, directory, False),
    }
    for name in names:
        steps[name]()
    spark.stop()


main()
