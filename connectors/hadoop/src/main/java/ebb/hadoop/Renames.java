package ebb.hadoop;

import java.io.FileNotFoundException;
import java.io.IOException;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.Path;

/**
 * Hadoop's two renames on top of the one of POSIX.
 *
 * <p>The old one moves into a directory that exists, and says false where POSIX has an error. The one with options
 * replaces if it is told to, and throws. Neither looks first and renames then, except into a directory: the library
 * refuses an existing target in the same step.
 */
final class Renames {
  /** The tree of names that renames work on. Paths are absolute. */
  interface Tree {
    /** Whether a path is a directory, or a link that leads to one. */
    boolean isDirectory(Path path) throws IOException;

    /** What a path is itself, even if that is a link. */
    Kind kindOf(Path path) throws IOException;

    /** Where a link leads, as it was given. */
    Path linkTarget(Path link) throws IOException;

    void rename(Path source, Path target, boolean replace) throws IOException;

    String datasetOf(Path path) throws IOException;
  }

  enum Kind {
    FILE,
    DIRECTORY,
    LINK
  }

  private final Tree tree;

  Renames(Tree tree) {
    this.tree = tree;
  }

  /** {@code rename(source, target)}: false if nothing was renamed for a reason that Hadoop's programs expect. */
  boolean renameOrRefuse(Path source, Path target) throws IOException {
    if (source.isRoot()) {
      return false;
    }
    if (source.equals(target)) {
      // What is a file may be renamed to itself, as on HDFS; a directory would go below itself.
      return isFile(source);
    }
    if (isBelow(target, source)) {
      return false;
    }
    try {
      if (target.isRoot()) {
        return renameInto(source, target);
      }
      rename(source, target, false);
      return true;
    } catch (FileAlreadyExistsException e) {
      return isDirectoryOrNothing(target) && renameInto(source, target);
    } catch (FileNotFoundException | ParentNotDirectoryException e) {
      return false;
    }
  }

  /** {@code rename(source, target, options)}: throws if it was not renamed. */
  void rename(Path source, Path target, boolean replace) throws IOException {
    try {
      tree.rename(source, target, replace);
    } catch (EbbException e) {
      if (Failures.isKind(e, Failures.CROSS_DEVICE)) {
        throw acrossDatasets(source, target, e);
      }
      throw e;
    }
  }

  /** As {@link #rename}, with the cases that Hadoop wants told apart. */
  void renameWithOptions(Path source, Path target, boolean replace) throws IOException {
    if (source.isRoot() || target.isRoot()) {
      throw new IOException("the root cannot be renamed: " + source + " to " + target);
    }
    Kind kind = tree.kindOf(source);
    if (source.equals(target)) {
      throw new FileAlreadyExistsException(source + " has that name already");
    }
    if (kind == Kind.LINK && isLinkTo(source, target)) {
      throw new FileAlreadyExistsException(source + " is a link to " + target + ", and would be lost with it");
    }
    if (isBelow(target, source)) {
      throw new IOException(source + " cannot be renamed to " + target + ", which is below it");
    }
    try {
      rename(source, target, replace);
    } catch (FileAlreadyExistsException e) {
      // That a directory does not replace a file is an error of its own, even if nothing may be replaced.
      if ((tree.kindOf(target) == Kind.DIRECTORY) != (kind == Kind.DIRECTORY)) {
        throw new IOException(source + " and " + target + " must both be directories, or neither", e);
      }
      throw e;
    }
  }

  private boolean renameInto(Path source, Path directory) throws IOException {
    Path target = new Path(directory, new Path(null, null, source.getName()));
    if (source.equals(target)) {
      return isFile(source);
    }
    try {
      rename(source, target, false);
      return true;
    } catch (FileAlreadyExistsException e) {
      return false;
    } catch (EbbException e) {
      // A link led below the source, which is seen only now.
      if (Failures.isKind(e, Failures.INVALID)) {
        return false;
      }
      throw e;
    }
  }

  private boolean isFile(Path path) throws IOException {
    try {
      return tree.kindOf(path) != Kind.DIRECTORY;
    } catch (FileNotFoundException | ParentNotDirectoryException e) {
      return false;
    }
  }

  private boolean isDirectoryOrNothing(Path path) throws IOException {
    try {
      return tree.isDirectory(path);
    } catch (FileNotFoundException | ParentNotDirectoryException e) {
      return false;
    }
  }

  private boolean isLinkTo(Path link, Path target) throws IOException {
    Path leadsTo = tree.linkTarget(link);
    Path absolute = leadsTo.isAbsolute() ? leadsTo : new Path(link.getParent(), leadsTo);
    return Path.getPathWithoutSchemeAndAuthority(absolute).equals(Path.getPathWithoutSchemeAndAuthority(target));
  }

  /** Programs that move through a staging directory must hear of this, and not take it for "nothing to rename". */
  private IOException acrossDatasets(Path source, Path target, IOException cause) {
    return new EbbException(
        Failures.CROSS_DEVICE,
        source + " (dataset " + dataset(source) + ") cannot be renamed to " + target + " (dataset " + dataset(target)
            + "): a rename stays within one dataset. Copy it, or stage it below the enclosing root of the target",
        cause);
  }

  private String dataset(Path path) {
    try {
      return tree.datasetOf(path);
    } catch (IOException e) {
      return "not known: " + e.getMessage();
    }
  }

  static boolean isBelow(Path path, Path top) {
    for (Path above = path.getParent(); above != null; above = above.getParent()) {
      if (above.equals(top)) {
        return true;
      }
    }
    return false;
  }
}
