"""What decommission.sh has Spark do: spark_cache.py FLAGS. Keeps a table in the memory of its executors, one copy of
each part. Writes FLAGS/cached then, waits for FLAGS/away, and looks how many parts are still there. Without a move, those
of an executor that is gone would have to be computed again."""

import os
import sys
import time

from pyspark.sql import SparkSession

PARTS = 20
EXECUTORS = 5
ROWS = 600_000


def cached_parts(spark):
    """Parts that executors hold in memory."""
    return sum(info.numCachedPartitions() for info in spark._jsc.sc().getRDDStorageInfo())


def executors(spark):
    """Executors, without the driver."""
    return spark._jsc.sc().getExecutorMemoryStatus().size() - 1


def wait_for(what, seconds, is_there):
    """Ends the program unless it comes."""
    end = time.time() + seconds
    while not is_there():
        if time.time() > end:
            sys.exit(f"{what} did not come within {seconds} s")
        time.sleep(0.2)


def main(flags):
    spark = SparkSession.builder.appName("cache").getOrCreate()
    wait_for(f"{EXECUTORS} executors", 200, lambda: executors(spark) == EXECUTORS)
    table = spark.range(0, ROWS, 1, PARTS).selectExpr("id", "concat('row ', id) as name").cache()
    total = table.selectExpr("sum(id)").first()[0]
    print(f"parts {cached_parts(spark)} on {executors(spark)} executors", flush=True)
    open(f"{flags}/cached", "w").close()
    wait_for("the flag that nodes are away", 400, lambda: os.path.exists(f"{flags}/away"))
    print(f"parts-after {cached_parts(spark)}", flush=True)
    again = table.selectExpr("sum(id)").first()[0]
    print(f"sums {'equal' if again == total == ROWS * (ROWS - 1) // 2 else 'differ'}", flush=True)
    spark.stop()


main(sys.argv[1])
