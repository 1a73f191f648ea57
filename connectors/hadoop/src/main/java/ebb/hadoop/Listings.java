package ebb.hadoop;

import java.io.IOException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Deque;
import java.util.List;
import java.util.NoSuchElementException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.statistics.StoreStatisticNames;

/** Listings of a file system. Those with locations ask once for a page, and not once for a file. */
final class Listings {
  private static final Listing.Shape<FileStatus> PLAIN =
      new Listing.Shape<FileStatus>() {
        @Override
        public boolean isLocated() {
          return false;
        }

        @Override
        public FileStatus make(Answer.Status status, Path path, List<Answer.Location> locations) {
          return Statuses.of(status, path);
        }
      };

  private static final Listing.Shape<LocatedFileStatus> LOCATED =
      new Listing.Shape<LocatedFileStatus>() {
        @Override
        public boolean isLocated() {
          return true;
        }

        @Override
        public LocatedFileStatus make(Answer.Status status, Path path, List<Answer.Location> locations) {
          List<Answer.Location> known = locations == null ? Collections.emptyList() : locations;
          return new EbbLocatedFileStatus(status, path, Statuses.target(status), Blocks.of(known));
        }
      };

  private final Context context;

  Listings(Context context) {
    this.context = context;
  }

  FileStatus[] all(Path directory) throws IOException {
    List<FileStatus> entries = new ArrayList<>();
    RemoteIterator<FileStatus> listing = plain(directory);
    while (listing.hasNext()) {
      entries.add(listing.next());
    }
    return entries.toArray(new FileStatus[0]);
  }

  RemoteIterator<FileStatus> plain(Path directory) throws IOException {
    return new Listing<>(context, directory, StoreStatisticNames.OP_LIST_STATUS, PLAIN);
  }

  RemoteIterator<LocatedFileStatus> located(Path directory) throws IOException {
    return new Listing<>(context, directory, StoreStatisticNames.OP_LIST_LOCATED_STATUS, LOCATED);
  }

  RemoteIterator<LocatedFileStatus> located(Path directory, PathFilter filter) throws IOException {
    RemoteIterator<LocatedFileStatus> all = located(directory);
    return new Filtered(() -> all.hasNext() ? all.next() : null, filter);
  }

  /** The files of a directory; with those of all directories below it, if it is recursive. Links are not followed. */
  RemoteIterator<LocatedFileStatus> files(Path top, boolean recursive) throws IOException {
    return new Filtered(new Walk(top, recursive), path -> true);
  }

  private interface Source {
    /** Null: there are no more. */
    LocatedFileStatus nextOrNull() throws IOException;
  }

  /** Keeps one listing open for each level that it is below the top. */
  private final class Walk implements Source {
    private final boolean recursive;
    private final Deque<RemoteIterator<LocatedFileStatus>> levels = new ArrayDeque<>();

    Walk(Path top, boolean recursive) throws IOException {
      this.recursive = recursive;
      levels.push(new Listing<>(context, top, StoreStatisticNames.OP_LIST_FILES, LOCATED));
    }

    @Override
    public LocatedFileStatus nextOrNull() throws IOException {
      while (!levels.isEmpty()) {
        RemoteIterator<LocatedFileStatus> level = levels.peek();
        if (!level.hasNext()) {
          levels.pop();
          continue;
        }
        LocatedFileStatus status = level.next();
        if (status.isFile()) {
          return status;
        }
        if (status.isDirectory() && recursive) {
          levels.push(located(status.getPath()));
        }
      }
      return null;
    }
  }

  private static final class Filtered implements RemoteIterator<LocatedFileStatus> {
    private final Source source;
    private final PathFilter filter;
    private LocatedFileStatus next;

    Filtered(Source source, PathFilter filter) throws IOException {
      this.source = source;
      this.filter = filter;
      advance();
    }

    @Override
    public boolean hasNext() {
      return next != null;
    }

    @Override
    public LocatedFileStatus next() throws IOException {
      if (next == null) {
        throw new NoSuchElementException("there are no more files");
      }
      LocatedFileStatus result = next;
      advance();
      return result;
    }

    private void advance() throws IOException {
      do {
        next = source.nextOrNull();
      } while (next != null && !filter.accept(next.getPath()));
    }
  }
}
