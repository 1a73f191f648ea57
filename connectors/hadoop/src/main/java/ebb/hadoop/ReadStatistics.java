package ebb.hadoop;

import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.statistics.IOStatistics;
import org.apache.hadoop.fs.statistics.IOStatisticsContext;
import org.apache.hadoop.fs.statistics.StreamStatisticNames;
import org.apache.hadoop.fs.statistics.impl.IOStatisticsBinding;
import org.apache.hadoop.fs.statistics.impl.IOStatisticsStore;

/** Counters of one input stream, of its file system, and of the thread that opened it. */
final class ReadStatistics {
  private final IOStatisticsStore store =
      IOStatisticsBinding.iostatisticsStore()
          .withCounters(
              StreamStatisticNames.STREAM_READ_BYTES,
              StreamStatisticNames.STREAM_READ_OPERATIONS,
              StreamStatisticNames.STREAM_READ_SEEK_OPERATIONS,
              StreamStatisticNames.STREAM_READ_SEEK_BYTES_BACKWARDS,
              StreamStatisticNames.STREAM_READ_SEEK_BYTES_SKIPPED,
              StreamStatisticNames.STREAM_READ_UNBUFFERED,
              StreamStatisticNames.STREAM_READ_VECTORED_OPERATIONS,
              StreamStatisticNames.STREAM_READ_VECTORED_INCOMING_RANGES,
              StreamStatisticNames.STREAM_READ_VECTORED_COMBINED_RANGES,
              StreamStatisticNames.STREAM_READ_VECTORED_READ_BYTES_DISCARDED)
          .build();
  private final AtomicLong bytes = store.getCounterReference(StreamStatisticNames.STREAM_READ_BYTES);
  private final AtomicLong operations = store.getCounterReference(StreamStatisticNames.STREAM_READ_OPERATIONS);
  private final Supplier<FileSystem.Statistics> fileSystem;
  private final IOStatisticsContext thread = IOStatisticsContext.getCurrentIOStatisticsContext();
  private final AtomicBoolean isPublished = new AtomicBoolean();

  ReadStatistics(Supplier<FileSystem.Statistics> fileSystem) {
    this.fileSystem = fileSystem;
  }

  void addRead(long count) {
    bytes.addAndGet(count);
    operations.incrementAndGet();
    fileSystem.get().incrementBytesRead(count);
  }

  /** Counts what a read returned, and returns it. */
  int counted(int got) {
    if (got > 0) {
      addRead(got);
    }
    return got;
  }

  void addSeek(long distance) {
    store.incrementCounter(StreamStatisticNames.STREAM_READ_SEEK_OPERATIONS);
    if (distance < 0) {
      store.incrementCounter(StreamStatisticNames.STREAM_READ_SEEK_BYTES_BACKWARDS, -distance);
    } else {
      store.incrementCounter(StreamStatisticNames.STREAM_READ_SEEK_BYTES_SKIPPED, distance);
    }
  }

  void addUnbuffered() {
    store.incrementCounter(StreamStatisticNames.STREAM_READ_UNBUFFERED);
  }

  /** Counts a vectored read; the bytes between its ranges are read and thrown away. */
  void addVectored(int ranges, int reads, long discardedBytes) {
    store.incrementCounter(StreamStatisticNames.STREAM_READ_VECTORED_OPERATIONS);
    store.incrementCounter(StreamStatisticNames.STREAM_READ_VECTORED_INCOMING_RANGES, ranges);
    store.incrementCounter(StreamStatisticNames.STREAM_READ_VECTORED_COMBINED_RANGES, reads);
    store.incrementCounter(StreamStatisticNames.STREAM_READ_VECTORED_READ_BYTES_DISCARDED, discardedBytes);
  }

  IOStatistics statistics() {
    return store;
  }

  /** Adds the stream's counters to those of the thread that opened it, once. */
  void publish() {
    if (isPublished.compareAndSet(false, true)) {
      thread.getAggregator().aggregate(store);
    }
  }
}
