package ebb.hadoop;

import java.io.IOException;
import java.time.LocalDateTime;
import java.time.format.DateTimeFormatter;
import org.apache.hadoop.fs.Path;

/** Snapshots of datasets. They are read at {@link #DIRECTORY} in the directory that a dataset is rooted at. */
final class Snapshots {
  static final String DIRECTORY = ".snapshot";
  /** HDFS's default. */
  private static final DateTimeFormatter NAME = DateTimeFormatter.ofPattern("'s'yyyyMMdd-HHmmss.SSS");

  private final Context context;

  Snapshots(Context context) {
    this.context = context;
  }

  Path take(Path root, String name) throws IOException {
    String given = name == null || name.isEmpty() ? NAME.format(LocalDateTime.now()) : name;
    Native.takeSnapshot(context.callerForWrite(Counters.CREATE_SNAPSHOT), Texts.bytes(root), Texts.bytes(given));
    return new Path(root, DIRECTORY + "/" + given);
  }

  void rename(Path root, String name, String newName) throws IOException {
    long caller = context.callerForWrite(Counters.RENAME_SNAPSHOT);
    Native.renameSnapshot(caller, Texts.bytes(root), Texts.bytes(name), Texts.bytes(newName));
  }

  void remove(Path root, String name) throws IOException {
    Native.removeSnapshot(context.callerForWrite(Counters.DELETE_SNAPSHOT), Texts.bytes(root), Texts.bytes(name));
  }
}
