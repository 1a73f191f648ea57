package ebb.hadoop;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.security.AccessControlException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The entries of a directory, or a file as its own only entry. Pages are fetched when they are needed.
 *
 * <p>A link to a file is listed as that file, under the link's name: programs that split work by a listing read its
 * data then. Links to directories and to nothing are listed as links, so that nobody walks in circles.
 *
 * @param <T> {@link EbbFileStatus} or {@link EbbLocatedFileStatus}
 */
final class Listing<T extends FileStatus> implements RemoteIterator<T> {
  private static final Logger LOG = LoggerFactory.getLogger(Listing.class);
  private static final int PAGE_ENTRIES = 1000;

  /** Makes the statuses of a listing. */
  interface Shape<T> {
    boolean isLocated();

    /** Of an entry; locations are null for what is not a file. */
    T make(Answer.Status status, Path path, List<Answer.Location> locations);
  }

  private final Context context;
  private final Path directory;
  private final Shape<T> shape;
  private Iterator<Answer.Entry> page;
  private long nextPage;
  private T next;
  private int leftOut;

  /** Fetches the first page, so that a directory that is not there is known at once. */
  Listing(Context context, Path directory, String operation, Shape<T> shape) throws IOException {
    this.context = context;
    this.directory = directory;
    this.shape = shape;
    fetch(context.callerForRead(operation), 0);
    advance();
  }

  @Override
  public boolean hasNext() {
    return next != null;
  }

  @Override
  public T next() throws IOException {
    if (next == null) {
      throw new NoSuchElementException(directory + " has no more entries");
    }
    T result = next;
    advance();
    return result;
  }

  private void advance() throws IOException {
    next = null;
    while (next == null) {
      if (page.hasNext()) {
        next = statusOrNull(page.next());
      } else if (nextPage != 0) {
        context.statistics().incrementLargeReadOps(1);
        fetch(context.session.caller(), nextPage);
      } else {
        sayWhatWasLeftOut();
        return;
      }
    }
  }

  private void fetch(long caller, long after) throws IOException {
    try {
      byte[] bytes = Native.list(caller, Texts.bytes(directory), after, PAGE_ENTRIES, shape.isLocated());
      Answer.Page answer = Answer.page(bytes);
      page = answer.entries.iterator();
      nextPage = answer.next;
    } catch (ParentNotDirectoryException e) {
      throw Failures.notFound(e);
    }
  }

  private T statusOrNull(Answer.Entry entry) throws IOException {
    Path path = directory;
    if (entry.name.length > 0) {
      String name = Texts.textOrNull(entry.name);
      if (name == null) {
        leftOut++;
        return null;
      }
      path = child(directory, name);
    }
    return entry.status.isLink() ? leadingTo(entry, path) : shape.make(entry.status, path, entry.locations);
  }

  /** In one step: `new Path(parent, name)` takes a name with a colon for a URI. */
  private static Path child(Path directory, String name) {
    String above = directory.toUri().getPath();
    String path = above.equals("/") ? above + name : above + "/" + name;
    return new Path(directory.toUri().getScheme(), directory.toUri().getAuthority(), path);
  }

  private T leadingTo(Answer.Entry link, Path path) throws IOException {
    try {
      byte[] bytes = Texts.bytes(path);
      long caller = context.session.caller();
      Answer.Status status = Answer.status(Native.status(caller, bytes, true));
      if (status.kind == Answer.Status.FILE) {
        boolean isLocated = shape.isLocated();
        return shape.make(
            status, path, isLocated ? Answer.locations(Native.locations(caller, bytes, 0, status.size)) : null);
      }
    } catch (FileNotFoundException | ParentNotDirectoryException | AccessControlException e) {
      // It leads to nothing that this user can see.
    } catch (EbbException e) {
      if (!Failures.isKind(e, "TooManyLinks")) {
        throw e;
      }
    }
    return shape.make(link.status, path, null);
  }

  private void sayWhatWasLeftOut() {
    if (leftOut > 0) {
      LOG.warn("left out {} entries of {}, whose names are not Unicode text; a mount shows them", leftOut, directory);
      leftOut = 0;
    }
  }
}
