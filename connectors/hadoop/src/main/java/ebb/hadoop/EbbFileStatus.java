package ebb.hadoop;

import org.apache.hadoop.fs.EtagSource;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;

/** A status with what tells a file's contents from earlier ones. */
public class EbbFileStatus extends FileStatus implements EtagSource {
  private static final long serialVersionUID = 1;

  private final String etag;

  EbbFileStatus(Answer.Status status, Path path, Path target) {
    super(
        status.isDirectory() ? 0 : status.size,
        status.isDirectory(),
        status.isDirectory() ? 0 : status.copies,
        status.isDirectory() ? 0 : status.metablockSize,
        Statuses.ms(status.modifiedNs),
        Statuses.ms(status.accessedNs),
        Statuses.permission(status),
        status.owner,
        status.group,
        target,
        path,
        Statuses.attributes(status));
    etag = Statuses.etag(status);
  }

  /** Changes with a file's contents, and not when it is renamed. Null for what is not a file. */
  @Override
  public String getEtag() {
    return etag;
  }
}
