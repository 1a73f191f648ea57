package ebb.hadoop;

import java.io.IOException;
import java.io.OutputStream;
import java.util.Arrays;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.fs.CanSetDropBehind;
import org.apache.hadoop.fs.ClosedIOException;
import org.apache.hadoop.fs.FSExceptionMessages;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.Syncable;
import org.apache.hadoop.fs.statistics.IOStatistics;
import org.apache.hadoop.fs.statistics.IOStatisticsContext;
import org.apache.hadoop.fs.statistics.IOStatisticsSource;
import org.apache.hadoop.fs.statistics.StreamStatisticNames;
import org.apache.hadoop.fs.statistics.impl.IOStatisticsBinding;
import org.apache.hadoop.fs.statistics.impl.IOStatisticsStore;
import org.apache.hadoop.util.StringUtils;

/**
 * Writes a file. Threads take turns.
 *
 * <p>Bytes go through a buffer into the writer's cache of this process, and from there to the members of the file's
 * sets. {@code hflush} returns when all members have received them, so that they outlive this process; {@code hsync}
 * when they are on stable storage. {@code close} waits for the one or the other, and the file's status is final then.
 */
final class EbbOutputStream extends OutputStream
    implements Syncable, CanSetDropBehind, StreamCapabilities, IOStatisticsSource {
  private static final int BUFFER_BYTES = 128 << 10;
  /** The buffer begins small and grows once, since most files of a job's bookkeeping are. */
  private static final int FIRST_BUFFER_BYTES = 4 << 10;

  private final Session session;
  private final Path path;
  private final long file;
  private final boolean syncsAtClose;
  private final IOStatisticsStore store =
      IOStatisticsBinding.iostatisticsStore()
          .withCounters(
              StreamStatisticNames.STREAM_WRITE_BYTES,
              StreamStatisticNames.STREAM_WRITE_EXCEPTIONS)
          .withDurationTracking("op_hflush", "op_hsync")
          .build();
  private final AtomicLong written = store.getCounterReference(StreamStatisticNames.STREAM_WRITE_BYTES);
  private final IOStatisticsContext thread = IOStatisticsContext.getCurrentIOStatisticsContext();

  // Guarded by this.
  private byte[] buffer = new byte[FIRST_BUFFER_BYTES];
  private int count;
  private boolean isClosed;
  /** The first failure. What comes after it in the file is missing something, and so nothing comes after it. */
  private IOException failure;

  /** @param file a file that is open for writing; this closes it */
  EbbOutputStream(Session session, Path path, long file, boolean syncsAtClose) throws IOException {
    this.session = session;
    this.path = path;
    this.file = file;
    this.syncsAtClose = syncsAtClose;
    session.add(this);
  }

  @Override
  public synchronized void write(int value) throws IOException {
    checkOpen();
    if (count == buffer.length) {
      makeRoom();
    }
    buffer[count++] = (byte) value;
    written.incrementAndGet();
  }

  @Override
  public synchronized void write(byte[] data, int at, int length) throws IOException {
    checkOpen();
    Objects.checkFromIndexSize(at, length, data.length);
    if (length >= BUFFER_BYTES) {
      handDown();
      handDown(data, at, length);
    } else {
      int done = 0;
      while (done < length) {
        if (count == buffer.length) {
          makeRoom();
        }
        int part = Math.min(length - done, buffer.length - count);
        System.arraycopy(data, at + done, buffer, count, part);
        count += part;
        done += part;
      }
    }
    written.addAndGet(length);
  }

  /** To the writer's cache of this process, where other streams of the process see it. */
  @Override
  public synchronized void flush() throws IOException {
    checkOpen();
    handDown();
  }

  @Override
  public synchronized void hflush() throws IOException {
    checkOpen();
    handDown();
    IOStatisticsBinding.trackDurationOfInvocation(store, "op_hflush", () -> guarded(() -> Native.push(file)));
  }

  @Override
  public synchronized void hsync() throws IOException {
    checkOpen();
    handDown();
    IOStatisticsBinding.trackDurationOfInvocation(store, "op_hsync", () -> guarded(() -> Native.sync(file)));
  }

  /** Closes the file once. A failure is told again by each further call: none may take the file for complete. */
  @Override
  public synchronized void close() throws IOException {
    IOException before = failure;
    if (!isClosed) {
      isClosed = true;
      closeFile();
      if (before == null && failure != null) {
        throw failure;
      }
    }
    if (failure != null) {
      // A new one each time: try-with-resources adds it to the one before, which must not be itself.
      throw new EbbException(Failures.kindOf(failure), path + " is not complete: " + failure.getMessage(), failure);
    }
  }

  private void closeFile() {
    try {
      if (failure == null) {
        handDown();
      }
    } catch (IOException e) {
      // It is remembered. The file is closed in spite of it, for the library forgets it only then.
    }
    buffer = new byte[0];
    count = 0;
    try {
      Native.close(file, syncsAtClose);
    } catch (IOException e) {
      remember(e);
    }
    session.remove(this);
    thread.getAggregator().aggregate(store);
  }

  private void makeRoom() throws IOException {
    if (buffer.length < BUFFER_BYTES) {
      buffer = Arrays.copyOf(buffer, BUFFER_BYTES);
    } else {
      handDown();
    }
  }

  private void handDown() throws IOException {
    if (count > 0) {
      int length = count;
      count = 0;
      handDown(buffer, 0, length);
    }
  }

  private void handDown(byte[] data, int at, int length) throws IOException {
    guarded(() -> Native.write(file, data, at, length));
  }

  private interface Call {
    void run() throws IOException;
  }

  private void guarded(Call call) throws IOException {
    try {
      call.run();
    } catch (IOException e) {
      remember(e);
      throw e;
    }
  }

  private void remember(IOException e) {
    store.incrementCounter(StreamStatisticNames.STREAM_WRITE_EXCEPTIONS);
    if (failure == null) {
      failure = e;
    }
  }

  private void checkOpen() throws IOException {
    if (isClosed) {
      throw new ClosedIOException(path.toString(), FSExceptionMessages.STREAM_IS_CLOSED);
    }
    if (failure != null) {
      throw new EbbException(
          Failures.kindOf(failure), path + " is written no further: " + failure.getMessage(), failure);
    }
  }

  /** A hint about caches of the host. What was synced leaves the writer's cache anyway. */
  @Override
  public void setDropBehind(Boolean isDropped) {}

  @Override
  public boolean hasCapability(String capability) {
    switch (StringUtils.toLowerCase(capability)) {
      case "hflush":
      case StreamCapabilities.HSYNC:
      case StreamCapabilities.DROPBEHIND:
      case StreamCapabilities.IOSTATISTICS:
      case StreamCapabilities.IOSTATISTICS_CONTEXT:
        return true;
      default:
        return false;
    }
  }

  @Override
  public IOStatistics getIOStatistics() {
    return store;
  }

  @Override
  public String toString() {
    return "EbbOutputStream of " + path;
  }
}
