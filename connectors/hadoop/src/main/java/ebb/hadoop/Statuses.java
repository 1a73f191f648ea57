package ebb.hadoop;

import java.util.Set;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;

/** Hadoop's view of a status. */
final class Statuses {
  private static final long NS_PER_MS = 1_000_000;

  private Statuses() {}

  static EbbFileStatus of(Answer.Status status, Path path) {
    return new EbbFileStatus(status, path, target(status));
  }

  /** Rounded down, also before 1970. */
  static long ms(long ns) {
    return Math.floorDiv(ns, NS_PER_MS);
  }

  static FsPermission permission(Answer.Status status) {
    // Hadoop knows the sticky bit and neither set-user-id nor set-group-id.
    return new FsPermission((short) (status.mode & 01777));
  }

  static Set<FileStatus.AttrFlags> attributes(Answer.Status status) {
    return FileStatus.attributes(status.hasAcl, false, false, false);
  }

  /** The time of the last change of attributes is not in it: a rename changes that. */
  static String etag(Answer.Status status) {
    if (status.kind != Answer.Status.FILE) {
      return null;
    }
    return String.join(
        "-", Long.toHexString(status.inode), Long.toHexString(status.size), Long.toHexString(status.modifiedNs));
  }

  /** Where a link leads, as it was given. Null if it is no link; a target that is no text is a dangling one here. */
  static Path target(Answer.Status status) {
    if (!status.isLink()) {
      return null;
    }
    String text = Texts.textOrNull(status.target);
    return text == null || text.isEmpty() ? new Path("/") : new Path(null, null, text);
  }
}
