package ebb.hadoop;

import java.io.IOException;
import java.util.EnumSet;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.statistics.StoreStatisticNames;

/** Opens files. */
final class Streams {
  private final Context context;

  Streams(Context context) {
    this.context = context;
  }

  /** Whether a file is the one that is wanted; what it throws is what the caller gets, and the file is closed. */
  interface Check {
    void check(Answer.Status status) throws IOException;
  }

  FSDataInputStream open(Path path, ReadPlan plan, Check check) throws IOException {
    long caller = context.callerForRead(StoreStatisticNames.OP_OPEN);
    Answer.Opened opened;
    try {
      opened = Answer.opened(Native.open(caller, Texts.bytes(path), plan.advice, plan.end));
    } catch (ParentNotDirectoryException e) {
      throw Failures.notFound(e);
    } catch (EbbException e) {
      // Hadoop's programs tell a directory from a file by this.
      throw Failures.isKind(e, Failures.IS_DIRECTORY) ? Failures.notFound(e) : e;
    }
    OpenFile file = new OpenFile(context.session, opened.file);
    boolean isWanted = false;
    try {
      check.check(opened.status);
      isWanted = true;
    } finally {
      if (!isWanted) {
        file.close();
      }
    }
    return new FSDataInputStream(new EbbInputStream(file, path, opened.status, context::statistics));
  }

  /** A file that is to be made. */
  static final class Creation {
    final Path path;
    final Modes modes;
    final EnumSet<CreateFlag> flags;
    final boolean parents;
    /** Of the first copies, with commas between them; empty: the dataset's layout decides. */
    final String hosts;

    Creation(Path path, Modes modes, EnumSet<CreateFlag> flags, boolean parents, String hosts) {
      this.path = path;
      this.modes = modes;
      this.flags = flags;
      this.parents = parents;
      this.hosts = hosts;
    }
  }

  /**
   * Makes a file, or opens one for appending, as the flags say.
   *
   * <p>{@code SYNC_BLOCK} syncs when the stream is closed. {@code NO_LOCAL_WRITE} and {@code IGNORE_CLIENT_LOCALITY}
   * say where first copies go, unless {@code fs.option.ebb.hosts} names hosts. {@code LAZY_PERSIST} and {@code
   * NEW_BLOCK} have no meaning here.
   */
  FSDataOutputStream create(Creation creation) throws IOException {
    EnumSet<CreateFlag> flags = creation.flags;
    CreateFlag.validate(flags);
    boolean syncsAtClose = context.settings.syncsAtClose || flags.contains(CreateFlag.SYNC_BLOCK);
    if (!flags.contains(CreateFlag.CREATE)) {
      if (flags.contains(CreateFlag.APPEND)) {
        return append(creation.path, syncsAtClose);
      }
      // Only what is there is overwritten. The library's flag would make it.
      Native.access(context.session.caller(), Texts.bytes(creation.path), 0);
    }
    String operation =
        creation.parents ? StoreStatisticNames.OP_CREATE : StoreStatisticNames.OP_CREATE_NON_RECURSIVE;
    long caller = context.callerForWrite(operation);
    byte[] answer;
    try {
      answer =
          Native.create(
              caller,
              Texts.bytes(creation.path),
              creation.modes.mode,
              creation.modes.umask,
              exists(flags),
              creation.parents,
              firstCopies(flags),
              Texts.bytes(creation.hosts));
    } catch (EbbException e) {
      throw Failures.isKind(e, Failures.IS_DIRECTORY) ? Failures.exists(e.getMessage(), e) : e;
    }
    return stream(creation.path, answer, syncsAtClose, flags.contains(CreateFlag.APPEND));
  }

  private static int firstCopies(EnumSet<CreateFlag> flags) {
    if (flags.contains(CreateFlag.NO_LOCAL_WRITE)) {
      return Native.FIRST_ELSEWHERE;
    }
    return flags.contains(CreateFlag.IGNORE_CLIENT_LOCALITY) ? Native.FIRST_ANYWHERE : Native.FIRST_BY_LAYOUT;
  }

  private static int exists(EnumSet<CreateFlag> flags) {
    if (flags.contains(CreateFlag.OVERWRITE)) {
      return Native.EXISTS_OVERWRITE;
    }
    return flags.contains(CreateFlag.APPEND) ? Native.EXISTS_APPEND : Native.EXISTS_FAIL;
  }

  FSDataOutputStream append(Path path, boolean syncsAtClose) throws IOException {
    long caller = context.callerForWrite(StoreStatisticNames.OP_APPEND);
    byte[] answer;
    try {
      answer = Native.append(caller, Texts.bytes(path));
    } catch (ParentNotDirectoryException e) {
      throw Failures.notFound(e);
    } catch (EbbException e) {
      throw Failures.isKind(e, Failures.IS_DIRECTORY) ? Failures.exists(e.getMessage(), e) : e;
    }
    return stream(path, answer, syncsAtClose, true);
  }

  private FSDataOutputStream stream(Path path, byte[] answer, boolean syncsAtClose, boolean appends)
      throws IOException {
    Answer.Opened opened = Answer.opened(answer);
    EbbOutputStream out = new EbbOutputStream(context.session, path, opened.file, syncsAtClose);
    return new FSDataOutputStream(out, context.statistics(), appends ? opened.status.size : 0);
  }
}
