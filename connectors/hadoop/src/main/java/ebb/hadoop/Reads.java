package ebb.hadoop;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Reads that go on while their caller does something else, of all streams of this process.
 *
 * <p>One thread hands out what the library finished. It also completes the futures, so what depends on them should not
 * wait for another such read. Only so many bytes are on their way at once; the rest waits in line.
 */
final class Reads {
  static final Reads SHARED = new Reads(new OfNative());

  private static final Logger LOG = LoggerFactory.getLogger(Reads.class);
  private static final long MOST_BYTES = 32L << 20;

  /** One read of the library. */
  abstract static class Read {
    final OpenFile file;
    final long offset;
    final int length;

    Read(OpenFile file, long offset, int length) {
      this.file = file;
      this.offset = offset;
      this.length = length;
    }

    /** The direct buffer to read into, from its byte {@link #at} on. Called once, when the read begins. */
    abstract ByteBuffer buffer();

    abstract int at();

    /** Whether somebody still waits for it. */
    abstract boolean isWanted();

    /** All bytes are in the buffer, and the library has let go of it. */
    abstract void onDone();

    /** The library does not use the buffer any more, if there was one. */
    abstract void onFailed(IOException failure);

    /** It will not be answered; the library may still use the buffer, which must not go to anybody else. */
    abstract void onLost(IOException failure);
  }

  /** The library's part. */
  interface Source {
    void begin(Read read, ByteBuffer buffer, long ticket) throws IOException;

    long[] next();

    void failure(long ticket) throws IOException;
  }

  private final Source source;
  private final AtomicLong tickets = new AtomicLong();
  private final Map<Long, Read> begun = new ConcurrentHashMap<>();

  // Guarded by this.
  private final Queue<Read> waiting = new ArrayDeque<>();
  private long begunBytes;
  private Thread thread;

  Reads(Source source) {
    this.source = source;
  }

  /** Begins a read now or later. It ends with {@link Read#onDone} or {@link Read#onFailed}. */
  void submit(Read read) {
    synchronized (this) {
      startThread();
      waiting.add(read);
    }
    beginWaiting();
  }

  private void startThread() {
    if (thread == null) {
      thread = new Thread(this::handOut, "ebb-reads");
      thread.setDaemon(true);
      // The loader of whoever came first must not be kept alive by it.
      thread.setContextClassLoader(Reads.class.getClassLoader());
      thread.start();
    }
  }

  private void beginWaiting() {
    for (Read read = nextToBegin(); read != null; read = nextToBegin()) {
      begin(read);
    }
  }

  private synchronized Read nextToBegin() {
    Read read = waiting.peek();
    // One that is larger than all that may be on the way goes alone.
    if (read == null || begunBytes > 0 && begunBytes + read.length > MOST_BYTES) {
      return null;
    }
    begunBytes += read.length;
    return waiting.remove();
  }

  private synchronized void onEnded(Read read) {
    begunBytes -= read.length;
  }

  private void begin(Read read) {
    long ticket = tickets.incrementAndGet();
    IOException failure = null;
    if (!read.isWanted()) {
      failure = new IOException("nobody waits for this read any more");
    } else {
      begun.put(ticket, read);
      try {
        source.begin(read, read.buffer(), ticket);
      } catch (IOException e) {
        failure = e;
      } catch (RuntimeException | OutOfMemoryError e) {
        failure = new IOException("cannot begin to read " + read.length + " bytes: " + e, e);
      }
    }
    if (failure != null) {
      begun.remove(ticket);
      onEnded(read);
      fail(read, failure);
    }
  }

  private void handOut() {
    while (true) {
      long[] pairs;
      try {
        pairs = source.next();
      } catch (RuntimeException | Error e) {
        giveUp(e);
        return;
      }
      for (int i = 0; pairs != null && i + 1 < pairs.length; i += 2) {
        handOut(pairs[i], pairs[i + 1]);
      }
      beginWaiting();
    }
  }

  private void handOut(long ticket, long got) {
    Read read = begun.remove(ticket);
    IOException failure = got == -1 ? reason(ticket) : null;
    if (read == null) {
      return;
    }
    onEnded(read);
    if (failure == null && got < read.length) {
      failure = new EOFException("the file ends " + (read.length - got) + " bytes before the end of the range");
    }
    if (failure != null) {
      fail(read, failure);
      return;
    }
    try {
      read.onDone();
    } catch (RuntimeException | Error e) {
      LOG.error("a program's reaction to a finished read failed", e);
    }
  }

  private IOException reason(long ticket) {
    try {
      source.failure(ticket);
      return new IOException("the read failed, and the library does not know why");
    } catch (IOException e) {
      return e;
    }
  }

  private static void fail(Read read, IOException failure) {
    try {
      read.onFailed(failure);
    } catch (RuntimeException | Error e) {
      LOG.error("a program's reaction to a failed read failed", e);
    }
  }

  /** Nobody would answer any more: what waits is told so, and what comes next tries again with a new thread. */
  private void giveUp(Throwable reason) {
    LOG.error("the thread that hands out reads ended", reason);
    List<Read> lost = new ArrayList<>();
    synchronized (this) {
      lost.addAll(begun.values());
      lost.addAll(waiting);
      begun.clear();
      waiting.clear();
      begunBytes = 0;
      thread = null;
    }
    for (Read read : lost) {
      read.onLost(new IOException("the thread that hands out reads ended", reason));
    }
  }

  private static final class OfNative implements Source {
    @Override
    public void begin(Read read, ByteBuffer buffer, long ticket) throws IOException {
      Native.beginRead(read.file.number(), read.offset, buffer, read.at(), read.length, ticket);
    }

    @Override
    public long[] next() {
      return Native.nextReads();
    }

    @Override
    public void failure(long ticket) throws IOException {
      Native.readFailure(ticket);
    }
  }
}
