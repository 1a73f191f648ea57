package ebb.hadoop;

import java.io.Closeable;
import java.io.IOException;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * The number of a file that is open for reading.
 *
 * <p>It knows nothing of the stream that uses it, so that the file of a stream that was dropped and never closed can be
 * closed when the stream is collected.
 */
final class OpenFile implements Closeable, Runnable {
  private final Session session;
  private final long file;
  private final AtomicBoolean isClosed = new AtomicBoolean();

  OpenFile(Session session, long file) throws IOException {
    this.session = session;
    this.file = file;
    session.add(this);
  }

  /** The number for a call of {@link Native}. It may be closed by then: the library answers that with an exception. */
  long number() throws IOException {
    session.check();
    return file;
  }

  @Override
  public void close() throws IOException {
    if (isClosed.compareAndSet(false, true)) {
      session.remove(this);
      Native.close(file, false);
    }
  }

  /** For the collector. */
  @Override
  public void run() {
    try {
      close();
    } catch (IOException e) {
      // Nothing was written through it, and nobody is left who could be told.
    }
  }
}
