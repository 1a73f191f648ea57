package ebb.hadoop;

import java.io.IOException;
import java.nio.ByteBuffer;

/**
 * The client library: each method is one call of {@code crates/ebb-java}.
 *
 * <p>Sessions, callers and open files are numbers. The library checks each of them: one that was given back is an
 * {@link IOException} and never a crash. Every method may be called by any number of threads at once.
 *
 * <p>Paths are absolute, as UTF-8. Times are milliseconds since 1970. Structured answers are bytes that {@link Answer}
 * reads. Every failure is the exception that {@link Failures#of} makes of its kind.
 */
final class Native {
  /** Fails if the name exists. */
  static final int EXISTS_FAIL = 0;
  /** Empties a file that exists, and puts the permission bits of the call on none but a new one. */
  static final int EXISTS_OVERWRITE = 1;
  /** Writes behind the last byte of a file that exists. */
  static final int EXISTS_APPEND = 2;

  /** First copies go where the dataset's layout has them, mostly to this host. */
  static final int FIRST_BY_LAYOUT = 0;
  /** They go to all hosts but this one in turn. */
  static final int FIRST_ELSEWHERE = 1;
  /** They go to all hosts in turn. */
  static final int FIRST_ANYWHERE = 2;

  /** How a stream reads: its reads show it. */
  static final int ADVICE_NORMAL = 0;
  /** In order: whole blocks are fetched ahead. */
  static final int ADVICE_SEQUENTIAL = 1;
  /** Here and there: nothing is fetched that was not asked for. */
  static final int ADVICE_RANDOM = 2;

  static {
    Library.load();
  }

  private Native() {}

  /** Version of the library, as Maven writes it. */
  static native byte[] version();

  // --- Sessions and users -------------------------------------------------------------------------------------------

  /**
   * Joins this process's session with a cluster, and opens it if there is none.
   *
   * @param settings a cluster's directory or a settings file
   * @param host name of this host, as the cluster knows it: decides which replica is nearest and where first copies go
   * @param readCacheBytes of the session; counts only when it is opened
   * @param dirtyBytes bytes that were written and not yet synced by all members; counts only when it is opened
   * @return the session; give it back by {@link #disconnect}
   */
  static native long connect(byte[] settings, byte[] host, long readCacheBytes, long dirtyBytes) throws IOException;

  /** Leaves a session. The last one to leave ends it, once everything written is synced and recorded. */
  static native void disconnect(long session) throws IOException;

  /**
   * A user of a session, by name: the system's user and groups of this name, else those of the cluster's table.
   *
   * @param isSuperuser the user may do everything, whatever its name
   * @throws IOException nobody knows the name
   */
  static native long caller(long session, byte[] user, boolean isSuperuser) throws IOException;

  /** Forgets a caller. */
  static native void releaseCaller(long caller);

  /** Hosts and racks, as {@link Answer#hosts}. */
  static native byte[] hosts(long session) throws IOException;

  /**
   * Bytes that this session sent to other hosts, received from them, and read from files of its own host; then those of
   * the first two that went to hosts of its sub-rack, and came from them.
   */
  static native long[] traffic(long session) throws IOException;

  // --- Names --------------------------------------------------------------------------------------------------------

  /**
   * A status as {@link Answer#status}.
   *
   * @param follow the status of a symbolic link's target, and not its own
   */
  static native byte[] status(long caller, byte[] path, boolean follow) throws IOException;

  /**
   * A part of a directory's listing, as {@link Answer#page}. A file is listed as one entry with an empty name.
   *
   * @param after 0, or what the page before says
   * @param limit most entries
   * @param located with the locations of files
   */
  static native byte[] list(long caller, byte[] path, long after, int limit, boolean located) throws IOException;

  /** Where a range of a file lies, as {@link Answer#locations}. */
  static native byte[] locations(long caller, byte[] path, long offset, long length) throws IOException;

  /**
   * Makes a directory and all that are missing above it.
   *
   * @param parents whether directories above it are made
   * @return false: it was there
   */
  static native boolean makeDirectory(long caller, byte[] path, int mode, int umask, boolean parents)
      throws IOException;

  /**
   * Renames in one step.
   *
   * @param replace a file takes the place of a file, a directory that of an empty directory; if not, an existing target
   *     is a {@code FileAlreadyExistsException}
   */
  static native void rename(long caller, byte[] source, byte[] target, boolean replace) throws IOException;

  /**
   * Removes a name; one of a directory in one step with everything below it.
   *
   * @return false: there was nothing
   */
  static native boolean remove(long caller, byte[] path, boolean recursive) throws IOException;

  /** Makes a symbolic link. The target is kept as it is given. */
  static native void link(long caller, byte[] target, byte[] link, boolean parents) throws IOException;

  /** The target of a symbolic link, as it was given. */
  static native byte[] readLink(long caller, byte[] path) throws IOException;

  // --- Attributes ---------------------------------------------------------------------------------------------------

  static native void setMode(long caller, byte[] path, int mode) throws IOException;

  /** Either may be null: it stays. Names as {@link #caller} knows them. */
  static native void setOwner(long caller, byte[] path, byte[] user, byte[] group) throws IOException;

  /** -1: it stays. */
  static native void setTimes(long caller, byte[] path, long modified, long accessed) throws IOException;

  static native void truncate(long caller, byte[] path, long size) throws IOException;

  /** Checks that the caller has these permissions: 4 read, 2 write, 1 execute or search; 0: that the path exists. */
  static native void access(long caller, byte[] path, int permissions) throws IOException;

  /** The value of an extended attribute; its name is whole, such as {@code user.color}. */
  static native byte[] getXattr(long caller, byte[] path, byte[] name) throws IOException;

  /** Names of extended attributes, each with a zero byte behind it. */
  static native byte[] listXattrs(long caller, byte[] path) throws IOException;

  /**
   * Sets an extended attribute.
   *
   * @param create whether it may be new
   * @param replace whether it may be there
   */
  static native void setXattr(long caller, byte[] path, byte[] name, byte[] value, boolean create, boolean replace)
      throws IOException;

  static native void removeXattr(long caller, byte[] path, byte[] name) throws IOException;

  /** The access control list as {@link Answer#acl}: that of the access, then, of directories, the default one. */
  static native byte[] getAcl(long caller, byte[] path) throws IOException;

  /** Sets the whole list; the text is one entry a line, as {@code setfacl(1)} has them. */
  static native void setAcl(long caller, byte[] path, byte[] entries) throws IOException;

  // --- Open files ---------------------------------------------------------------------------------------------------

  /**
   * Opens a file for reading. Its answer is its number and its status, as {@link Answer#opened}.
   *
   * @param advice one of the ADVICE constants
   * @param end offset behind which little is going to be read: nothing is fetched ahead there
   */
  static native byte[] open(long caller, byte[] path, int advice, long end) throws IOException;

  /**
   * Opens a file for writing; answers as {@link #open}.
   *
   * @param exists one of the EXISTS constants
   * @param parents whether missing directories above are made (with mode 0777 less the umask)
   * @param first one of the FIRST constants; of no account if hosts are named
   * @param hosts of its first copies, with commas between them; empty: {@code first} decides
   */
  static native byte[] create(
      long caller, byte[] path, int mode, int umask, int exists, boolean parents, int first, byte[] hosts)
      throws IOException;

  /** Opens a file that exists for writing behind its last byte; answers as {@link #open}. */
  static native byte[] append(long caller, byte[] path) throws IOException;

  /** How reads through this file go on: one of the ADVICE constants. */
  static native void advise(long file, int advice) throws IOException;

  /** The length of an open file as its writers have it now. */
  static native long length(long file) throws IOException;

  /** Reads into an array; fewer bytes only at the end of the file. -1 there. */
  static native int read(long file, long offset, byte[] out, int at, int length) throws IOException;

  /** The same into a direct buffer, from its byte {@code at} on; its position and limit do not count. */
  static native int readDirect(long file, long offset, ByteBuffer out, int at, int length) throws IOException;

  /**
   * Begins a read into a direct buffer, which stays as it is until {@link #nextReads} answers the ticket.
   *
   * @param ticket a number of the caller's choice, unique in this process
   */
  static native void beginRead(long file, long offset, ByteBuffer out, int at, int length, long ticket)
      throws IOException;

  /**
   * Waits for reads that {@link #beginRead} began. One thread of the process calls it in a loop.
   *
   * @return pairs: a ticket, and the number of bytes that were read, fewer than asked for only at the end of the file;
   *     or -1: {@link #readFailure} has the reason
   */
  static native long[] nextReads();

  /** Throws the reason for which a read failed, and forgets it. */
  static native void readFailure(long ticket) throws IOException;

  /** Writes behind the last byte that was written. Returns when the bytes are in the writer's cache. */
  static native void write(long file, byte[] data, int at, int length) throws IOException;

  /** The same from a direct buffer, from its byte {@code at} on. */
  static native void writeDirect(long file, ByteBuffer data, int at, int length) throws IOException;

  /** Returns when all members have received everything written: it survives this process. */
  static native void push(long file) throws IOException;

  /** Returns when everything written is on stable storage of all members. */
  static native void sync(long file) throws IOException;

  /**
   * Forgets a file. One for writing is pushed before, or synced: after that, its status is final.
   *
   * @throws IOException something that was written got lost; the file is gone all the same
   */
  static native void close(long file, boolean synced) throws IOException;

  // --- Whole trees, datasets, leases --------------------------------------------------------------------------------

  /** What is at and below a path: bytes of files, files, directories, bytes of all copies. */
  static native long[] summary(long caller, byte[] path) throws IOException;

  /** Space for the dataset of a path, in bytes of all copies: capacity, used, free. */
  static native long[] space(long caller, byte[] path) throws IOException;

  /** The dataset of a path, as {@link Answer#dataset}. */
  static native byte[] dataset(long caller, byte[] path) throws IOException;

  /** Takes a snapshot of the dataset that is rooted at a directory. */
  static native void takeSnapshot(long caller, byte[] path, byte[] name) throws IOException;

  static native void removeSnapshot(long caller, byte[] path, byte[] name) throws IOException;

  static native void renameSnapshot(long caller, byte[] path, byte[] name, byte[] newName) throws IOException;

  /** CRC-32C of a file's first bytes, by the checksums that are kept; no byte is read for it. */
  static native int checksum(long caller, byte[] path, long length) throws IOException;

  /** Takes a file over. True: whoever has it open for writing writes nothing more. */
  static native boolean recoverLease(long caller, byte[] path) throws IOException;

  /** Whether no other session has the file open for writing. */
  static native boolean isClosed(long caller, byte[] path) throws IOException;
}
