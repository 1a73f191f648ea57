package ebb.hadoop;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InterruptedIOException;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathIsNotEmptyDirectoryException;
import org.apache.hadoop.security.AccessControlException;

/** Makes Hadoop's exceptions of Ebb's kinds. The library's sentence stays: it names the path and the remedy. */
final class Failures {
  static final String CROSS_DEVICE = "CrossDevice";
  static final String INVALID = "Invalid";
  static final String IS_DIRECTORY = "IsDirectory";
  static final String NO_ATTRIBUTE = "NoAttribute";
  static final String STALE = "Stale";
  static final String UNSUPPORTED = "Unsupported";

  private Failures() {}

  /** The exception for a failure. The library throws what this returns. */
  static IOException of(String kind, String message) {
    switch (kind) {
      case "NotFound":
        return new FileNotFoundException(message);
      case "Exists":
        return new FileAlreadyExistsException(message);
      case "NotDirectory":
        return new ParentNotDirectoryException(message);
      case "NotEmpty":
        return new NotEmpty(message);
      case "AccessDenied":
      case "NotPermitted":
        return new AccessControlException(message);
      case "QuotaExceeded":
        return new EbbQuotaException(message);
      case "Interrupted":
        return new InterruptedIOException(message);
      default:
        return new EbbException(kind, message);
    }
  }

  static boolean isKind(IOException failure, String kind) {
    return failure instanceof EbbException && ((EbbException) failure).getKind().equals(kind);
  }

  /** The kind of a failure that is told once more, in other words. */
  static String kindOf(IOException failure) {
    return failure instanceof EbbException ? ((EbbException) failure).getKind() : "Io";
  }

  /** For calls where Hadoop has one answer to a missing name and to a name below a file: there is no such file. */
  static FileNotFoundException notFound(IOException cause) {
    if (cause instanceof FileNotFoundException) {
      return (FileNotFoundException) cause;
    }
    return (FileNotFoundException) new FileNotFoundException(cause.getMessage()).initCause(cause);
  }

  /** A file system or stream was used after it had been closed. Callers in Hadoop search for these two words. */
  static IOException closed(Object what) {
    return new EbbException(STALE, "Filesystem closed: " + what);
  }

  static FileAlreadyExistsException exists(String message, Throwable cause) {
    return (FileAlreadyExistsException) new FileAlreadyExistsException(message).initCause(cause);
  }

  static FileNotFoundException notFile(Path path) {
    return new FileNotFoundException(path + " is not a file");
  }

  /** Hadoop would put its own words around a path; ours has a sentence already. */
  private static final class NotEmpty extends PathIsNotEmptyDirectoryException {
    private static final long serialVersionUID = 1;

    private final String message;

    NotEmpty(String message) {
      super(message);
      this.message = message;
    }

    @Override
    public String getMessage() {
      return message;
    }
  }
}
