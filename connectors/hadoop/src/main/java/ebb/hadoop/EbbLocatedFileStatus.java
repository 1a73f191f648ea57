package ebb.hadoop;

import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.EtagSource;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;

/** A status with the hosts of a file's parts. */
public class EbbLocatedFileStatus extends LocatedFileStatus implements EtagSource {
  private static final long serialVersionUID = 1;

  private final String etag;

  EbbLocatedFileStatus(Answer.Status status, Path path, Path target, BlockLocation[] locations) {
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
        Statuses.attributes(status),
        locations);
    etag = Statuses.etag(status);
  }

  /** As that of {@link EbbFileStatus}. */
  @Override
  public String getEtag() {
    return etag;
  }
}
