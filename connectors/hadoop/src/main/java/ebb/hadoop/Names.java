package ebb.hadoop;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.Objects;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.FSLinkResolver;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.statistics.StoreStatisticNames;

/** Calls on the tree of names. Paths are qualified. */
final class Names implements Renames.Tree {
  private final Context context;

  Names(Context context) {
    this.context = context;
  }

  EbbFileStatus status(Path path) throws IOException {
    return Statuses.of(rawStatus(path, true), path);
  }

  /** The status of a link itself, with a qualified target. */
  EbbFileStatus linkStatus(Path path) throws IOException {
    EbbFileStatus status = Statuses.of(rawStatus(path, false), path);
    if (status.isSymlink()) {
      status.setSymlink(FSLinkResolver.qualifySymlinkTarget(context.settings.uri, path, status.getSymlink()));
    }
    return status;
  }

  Answer.Status rawStatus(Path path, boolean follow) throws IOException {
    long caller = context.callerForRead(StoreStatisticNames.OP_GET_FILE_STATUS);
    try {
      return Answer.status(Native.status(caller, Texts.bytes(path), follow));
    } catch (ParentNotDirectoryException e) {
      throw Failures.notFound(e);
    }
  }

  BlockLocation[] locations(Path path, long offset, long length) throws IOException {
    long caller = context.callerForRead(StoreStatisticNames.OP_GET_FILE_STATUS);
    return Blocks.of(Answer.locations(Native.locations(caller, Texts.bytes(path), offset, length)));
  }

  /** A directory that is there is left as it is. */
  void makeDirectory(Path path, Modes modes, boolean parents) throws IOException {
    long caller = context.callerForWrite(StoreStatisticNames.OP_MKDIRS);
    boolean isNew;
    try {
      isNew = Native.makeDirectory(caller, Texts.bytes(path), modes.mode, modes.umask, parents);
    } catch (ParentNotDirectoryException e) {
      throw isThere(path) ? Failures.exists(e.getMessage(), e) : e;
    }
    if (!isNew && !isDirectory(path)) {
      throw new FileAlreadyExistsException(path + " exists, and is not a directory");
    }
  }

  private boolean isThere(Path path) throws IOException {
    try {
      rawStatus(path, false);
      return true;
    } catch (FileNotFoundException e) {
      return false;
    }
  }

  boolean remove(Path path, boolean recursive) throws IOException {
    long caller = context.callerForWrite(StoreStatisticNames.OP_DELETE);
    try {
      return Native.remove(caller, Texts.bytes(path), recursive);
    } catch (FileNotFoundException | ParentNotDirectoryException e) {
      return false;
    }
  }


  void truncate(Path path, long length) throws IOException {
    long caller = context.callerForWrite(StoreStatisticNames.OP_TRUNCATE);
    Native.truncate(caller, Texts.bytes(path), length);
  }

  boolean recoverLease(Path path) throws IOException {
    checkLeasable(path);
    return Native.recoverLease(context.session.caller(), Texts.bytes(path));
  }

  boolean isClosed(Path path) throws IOException {
    checkLeasable(path);
    return Native.isClosed(context.session.caller(), Texts.bytes(path));
  }

  /** Programs look for the words that HDFS has for these two failures. */
  private void checkLeasable(Path path) throws IOException {
    Answer.Status status;
    try {
      status = rawStatus(path, true);
    } catch (FileNotFoundException e) {
      throw (FileNotFoundException) new FileNotFoundException("File does not exist: " + path).initCause(e);
    }
    if (status.kind != Answer.Status.FILE) {
      throw new FileNotFoundException("Path is not a file: " + path);
    }
  }

  /** Links lead to paths of this file system alone: mounts follow them too, and know no URIs. */
  void createLink(Path target, Path link, boolean parents) throws IOException {
    if (target.toUri().getScheme() != null || target.toUri().getAuthority() != null) {
      boolean isOurs = Settings.SCHEME.equals(target.toUri().getScheme())
          && Objects.equals(target.toUri().getAuthority(), context.settings.uri.getAuthority());
      if (!isOurs) {
        throw new EbbException(
            Failures.UNSUPPORTED, "a link cannot lead to " + target + ", which is not in " + context.settings.uri);
      }
    }
    if (target.toUri().getPath().isEmpty()) {
      throw new EbbException(Failures.INVALID, "a link needs a target, and \"" + target + "\" is none");
    }
    long caller = context.callerForWrite(StoreStatisticNames.OP_CREATE);
    Native.link(caller, Texts.bytes(target), Texts.bytes(link), parents);
  }

  /** As it was given, and so perhaps relative to the link. */
  @Override
  public Path linkTarget(Path link) throws IOException {
    Answer.Status status = rawStatus(link, false);
    if (!status.isLink()) {
      // The words are those of Hadoop's own file systems.
      throw new IOException("Path " + link + " is not a symbolic link");
    }
    return Statuses.target(status);
  }

  @Override
  public boolean isDirectory(Path path) throws IOException {
    return rawStatus(path, true).isDirectory();
  }

  @Override
  public Renames.Kind kindOf(Path path) throws IOException {
    Answer.Status status = rawStatus(path, false);
    if (status.isLink()) {
      return Renames.Kind.LINK;
    }
    return status.isDirectory() ? Renames.Kind.DIRECTORY : Renames.Kind.FILE;
  }

  @Override
  public void rename(Path source, Path target, boolean replace) throws IOException {
    long caller = context.callerForWrite(StoreStatisticNames.OP_RENAME);
    Native.rename(caller, Texts.bytes(source), Texts.bytes(target), replace);
  }

  @Override
  public String datasetOf(Path path) throws IOException {
    return new Datasets(context).find(path).root;
  }
}
