package ebb.hadoop;

import java.io.IOException;
import java.util.function.Supplier;
import org.apache.hadoop.fs.FileSystem;

/** What the parts of one file system share: its settings, its session and its counters. */
final class Context {
  final Settings settings;
  final Session session;
  final Counters counters;
  /** Asked each time: a {@code FileContext} exchanges it after the file system was initialized. */
  private final Supplier<FileSystem.Statistics> statistics;

  Context(Settings settings, Session session, Supplier<FileSystem.Statistics> statistics) {
    this.settings = settings;
    this.session = session;
    this.counters = new Counters(session);
    this.statistics = statistics;
  }

  FileSystem.Statistics statistics() {
    return statistics.get();
  }

  /** Counts a call that changes nothing, and answers with the caller's number. */
  long callerForRead(String operation) throws IOException {
    counters.add(operation);
    statistics().incrementReadOps(1);
    return session.caller();
  }

  /** Counts a call that changes something, and answers with the caller's number. */
  long callerForWrite(String operation) throws IOException {
    counters.add(operation);
    statistics().incrementWriteOps(1);
    return session.caller();
  }
}
