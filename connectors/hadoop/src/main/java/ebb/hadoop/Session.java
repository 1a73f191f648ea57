package ebb.hadoop;

import java.io.Closeable;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One file system's part of this process's session with a cluster, and the user on whose behalf it acts.
 *
 * <p>Many of them share one session in the library, so that each costs a number and no thread. Closing one pushes what
 * its streams wrote and closes them.
 */
final class Session implements Closeable {
  private static final AtomicInteger OPEN = new AtomicInteger();

  private final Settings settings;
  private final Numbers numbers;
  private final AtomicBoolean isClosed = new AtomicBoolean();
  private final Set<Closeable> streams = ConcurrentHashMap.newKeySet();

  private Session(Settings settings, Numbers numbers) {
    this.settings = settings;
    this.numbers = numbers;
    Dropped.watch(this, numbers);
  }

  static Session open(Settings settings, String user) throws IOException {
    Library.loadOrExplain();
    long session = connect(settings);
    try {
      long caller = Native.caller(session, Texts.bytes(user), user.equals(settings.superuser));
      return new Session(settings, new Numbers(session, caller));
    } catch (IOException e) {
      Native.disconnect(session);
      throw notAPath(e, e.getMessage());
    }
  }

  private static long connect(Settings settings) throws IOException {
    try {
      return Native.connect(
          Texts.bytes(settings.cluster), Texts.bytes(settings.host), settings.readCacheBytes, settings.dirtyBytes);
    } catch (IOException e) {
      String name = settings.uri.getAuthority();
      String setting = name == null ? Settings.CLUSTER : Settings.CLUSTER + "." + name;
      throw notAPath(e, e.getMessage() + " (" + setting + " names a cluster's settings file or directory)");
    }
  }

  /** A user or a settings file that is not there must not be taken for a path that is not there. */
  private static IOException notAPath(IOException failure, String message) {
    return failure instanceof FileNotFoundException ? new EbbException("NotFound", message, failure) : failure;
  }

  /** The caller's number, for a call of {@link Native}. */
  long caller() throws IOException {
    check();
    return numbers.caller;
  }

  /** The session's number, for a call of {@link Native}. */
  long session() throws IOException {
    check();
    return numbers.session;
  }

  void check() throws IOException {
    if (isClosed.get()) {
      throw Failures.closed(settings.uri);
    }
  }

  /** Remembers something that is to be closed before the session is. */
  void add(Closeable stream) throws IOException {
    streams.add(stream);
    // The order counts: either `close` sees the stream, or this sees that it was closed.
    if (isClosed.get()) {
      stream.close();
      check();
    }
  }

  void remove(Closeable stream) {
    streams.remove(stream);
  }

  @Override
  public void close() throws IOException {
    if (!isClosed.compareAndSet(false, true)) {
      return;
    }
    IOException failure = null;
    for (Closeable stream : streams) {
      try {
        stream.close();
      } catch (IOException e) {
        failure = join(failure, e);
      }
    }
    try {
      numbers.release();
    } catch (IOException e) {
      failure = join(failure, e);
    }
    if (failure != null) {
      throw failure;
    }
  }

  private static IOException join(IOException first, IOException next) {
    if (first == null) {
      return next;
    }
    first.addSuppressed(next);
    return first;
  }

  /** Of the file systems of this process, those that are open or were dropped and not collected yet. */
  static int openCount() {
    return OPEN.get();
  }

  /** What the library keeps for a file system. It outlives that, if nobody closes it. */
  private static final class Numbers implements Runnable {
    private static final Logger LOG = LoggerFactory.getLogger(Session.class);

    final long session;
    final long caller;
    private final AtomicBoolean isReleased = new AtomicBoolean();

    Numbers(long session, long caller) {
      this.session = session;
      this.caller = caller;
      OPEN.incrementAndGet();
    }

    void release() throws IOException {
      if (isReleased.compareAndSet(false, true)) {
        OPEN.decrementAndGet();
        Native.releaseCaller(caller);
        Native.disconnect(session);
      }
    }

    /** For the collector. */
    @Override
    public void run() {
      try {
        release();
      } catch (IOException e) {
        LOG.warn("the session of a file system that was dropped did not end well: {}", e.getMessage());
      }
    }
  }
}
