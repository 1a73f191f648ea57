package ebb.hadoop;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.util.EnumSet;
import java.util.concurrent.CompletableFuture;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.EtagSource;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.InvalidPathHandleException;
import org.apache.hadoop.fs.LeaseRecoverable;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathHandle;
import org.apache.hadoop.fs.SafeMode;
import org.apache.hadoop.fs.SafeModeAction;
import org.apache.hadoop.fs.impl.OpenFileParameters;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.LambdaUtils;
import org.apache.hadoop.util.Progressable;

/**
 * Ebb as a Hadoop file system: {@code ebb://NAME/path}.
 *
 * <p>Together with the two classes above it, it is a list of Hadoop's calls, each of which goes to the class that knows
 * about it: {@link Names}, {@link Listings}, {@link Renames}, {@link Streams}, {@link Attributes}, {@link Datasets}.
 * Symbolic links are followed by the cluster, as on a mount. {@code README.md} has the settings, and what differs from
 * HDFS.
 */
public class EbbFileSystem extends TreeFileSystem implements LeaseRecoverable, SafeMode {
  private Streams streams;

  @Override
  public void initialize(URI name, Configuration conf) throws IOException {
    super.initialize(name, conf);
    streams = new Streams(context);
  }

  @Override
  public FSDataInputStream open(Path path, int bufferSize) throws IOException {
    return streams.open(absolute(path), ReadPlan.UNKNOWN, status -> {});
  }

  @Override
  public FSDataInputStream open(PathHandle handle, int bufferSize) throws IOException {
    return open(handle, ReadPlan.UNKNOWN);
  }

  private FSDataInputStream open(PathHandle handle, ReadPlan plan) throws IOException {
    EbbPathHandle ours = EbbPathHandle.of(handle);
    try {
      return streams.open(absolute(ours.path()), plan, ours::check);
    } catch (FileNotFoundException e) {
      throw new InvalidPathHandleException(ours.path() + " is not there any more", e);
    }
  }

  @Override
  protected CompletableFuture<FSDataInputStream> openFileWithOptions(Path path, OpenFileParameters parameters)
      throws IOException {
    ReadPlan plan = ReadPlan.of(parameters, "for " + path);
    return LambdaUtils.eval(
        new CompletableFuture<>(), () -> streams.open(absolute(path), plan, status -> {}));
  }

  @Override
  protected CompletableFuture<FSDataInputStream> openFileWithOptions(PathHandle handle, OpenFileParameters parameters)
      throws IOException {
    ReadPlan plan = ReadPlan.of(parameters, "");
    return LambdaUtils.eval(new CompletableFuture<>(), () -> open(handle, plan));
  }

  /** Handles hold a path. One that follows a file to another path is not to be had. */
  @Override
  protected PathHandle createPathHandle(FileStatus status, Options.HandleOpt... options) {
    boolean mayMove =
        Options.HandleOpt.getOpt(Options.HandleOpt.Location.class, options)
            .orElse(Options.HandleOpt.moved(false))
            .allowChange();
    boolean mayChange =
        Options.HandleOpt.getOpt(Options.HandleOpt.Data.class, options)
            .orElse(Options.HandleOpt.changed(false))
            .allowChange();
    if (mayMove) {
      throw new UnsupportedOperationException("handles of Ebb do not follow a file that is renamed");
    }
    if (!status.isFile()) {
      throw new IllegalArgumentException(status.getPath() + " is not a file");
    }
    String etag = status instanceof EtagSource ? ((EtagSource) status).getEtag() : null;
    if (etag == null) {
      throw new IllegalArgumentException("this status of " + status.getPath() + " is not one of Ebb");
    }
    return new EbbPathHandle(absolute(status.getPath()), etag, mayChange);
  }

  @Override
  public FSDataOutputStream create(
      Path path,
      FsPermission permission,
      boolean overwrite,
      int bufferSize,
      short replication,
      long blockSize,
      Progressable progress)
      throws IOException {
    return create(path, permission, creating(overwrite), true, "");
  }

  @Override
  public FSDataOutputStream create(
      Path path,
      FsPermission permission,
      EnumSet<CreateFlag> flags,
      int bufferSize,
      short replication,
      long blockSize,
      Progressable progress,
      Options.ChecksumOpt checksum)
      throws IOException {
    return create(path, permission, flags, true, "");
  }

  @Override
  public FSDataOutputStream createNonRecursive(
      Path path,
      FsPermission permission,
      EnumSet<CreateFlag> flags,
      int bufferSize,
      short replication,
      long blockSize,
      Progressable progress)
      throws IOException {
    return create(path, permission, flags, false, "");
  }

  FSDataOutputStream create(
      Path path, FsPermission permission, EnumSet<CreateFlag> flags, boolean parents, String hosts)
      throws IOException {
    FsPermission asked = permission == null ? FsPermission.getFileDefault() : permission;
    Modes modes = Modes.of(asked, umask());
    return streams.create(new Streams.Creation(absolute(path), modes, flags, parents, hosts));
  }

  @Override
  @Deprecated
  protected FSDataOutputStream primitiveCreate(
      Path path,
      FsPermission permission,
      EnumSet<CreateFlag> flags,
      int bufferSize,
      short replication,
      long blockSize,
      Progressable progress,
      Options.ChecksumOpt checksum)
      throws IOException {
    return createAbsolute(path, permission, flags, true);
  }

  /** For a permission to which the caller has applied its umask. */
  FSDataOutputStream createAbsolute(Path path, FsPermission permission, EnumSet<CreateFlag> flags, boolean parents)
      throws IOException {
    Modes modes = Modes.absolute(permission, umask());
    return streams.create(new Streams.Creation(absolute(path), modes, flags, parents, ""));
  }

  private static EnumSet<CreateFlag> creating(boolean overwrite) {
    return overwrite ? EnumSet.of(CreateFlag.CREATE, CreateFlag.OVERWRITE) : EnumSet.of(CreateFlag.CREATE);
  }

  @Override
  public EbbCreateBuilder createFile(Path path) {
    return new EbbCreateBuilder(this, path).create().overwrite(true);
  }

  @Override
  public EbbCreateBuilder appendFile(Path path) {
    return new EbbCreateBuilder(this, path).append();
  }

  @Override
  public FSDataOutputStream append(Path path, int bufferSize, Progressable progress) throws IOException {
    return streams.append(absolute(path), settings.syncsAtClose);
  }

  @Override
  public boolean truncate(Path path, long length) throws IOException {
    names.truncate(absolute(path), length);
    return true;
  }

  @Override
  public boolean recoverLease(Path file) throws IOException {
    return names.recoverLease(absolute(file));
  }

  @Override
  public boolean isFileClosed(Path file) throws IOException {
    return names.isClosed(absolute(file));
  }

  /** A cluster of Ebb has no such mode: what may be written is decided for each file. It is always left already. */
  @Override
  public boolean setSafeMode(SafeModeAction action, boolean isChecked) throws IOException {
    if (action == SafeModeAction.ENTER) {
      throw new EbbException(Failures.UNSUPPORTED, settings.uri + " has no safe mode that could be entered");
    }
    return false;
  }
}
