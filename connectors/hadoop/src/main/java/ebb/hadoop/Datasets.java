package ebb.hadoop;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.hadoop.fs.ContentSummary;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FsServerDefaults;
import org.apache.hadoop.fs.FsStatus;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.QuotaUsage;
import org.apache.hadoop.fs.statistics.StoreStatisticNames;
import org.apache.hadoop.util.DataChecksum;

/** What holds for a whole dataset: sizes, copies, quotas, space, and the root that renames stay below. */
final class Datasets {
  /** Checksums are kept of so many bytes each. */
  static final int CHUNK_BYTES = 16 << 10;

  private static final long DEFAULT_METABLOCK_BYTES = 64L << 20;
  private static final long REMEMBERED_NS = 10_000_000_000L;
  private static final int REMEMBERED_DIRECTORIES = 200;
  private static final int PACKET_BYTES = 64 << 10;
  private static final int BUFFER_BYTES = 128 << 10;

  private final Context context;
  private final Map<Path, Remembered> remembered =
      Collections.synchronizedMap(
          new LinkedHashMap<Path, Remembered>() {
            private static final long serialVersionUID = 1;

            @Override
            protected boolean removeEldestEntry(Map.Entry<Path, Remembered> eldest) {
              return size() > REMEMBERED_DIRECTORIES;
            }
          });

  Datasets(Context context) {
    this.context = context;
  }

  /** The dataset of a path; of one that is not there yet, that of the directory in which it would be. */
  Answer.Dataset find(Path path) throws IOException {
    Path existing = path;
    while (true) {
      try {
        return Answer.dataset(Native.dataset(context.session.caller(), Texts.bytes(existing)));
      } catch (FileNotFoundException | ParentNotDirectoryException e) {
        existing = existing.getParent();
        if (existing == null) {
          throw e;
        }
      }
    }
  }

  /** Renames work between all paths below it. */
  Path enclosingRoot(Path path) throws IOException {
    return qualified(find(path).root);
  }

  /** A trash from which and into which a path can be renamed. A home directory may be in another dataset. */
  Path trashRoot(Path path, String user) throws IOException {
    return new Path(new Path(enclosingRoot(path), FileSystem.TRASH_PREFIX), new Path(null, null, user));
  }

  /**
   * The block size that files get by default. Hadoop asks for it with every file that is made, and does nothing with
   * it here; so it may be some seconds old.
   */
  long blockSize(Path path) {
    Answer.Dataset dataset = rememberedOrNull(path);
    return dataset == null ? DEFAULT_METABLOCK_BYTES : dataset.metablockSize;
  }

  /** The number of copies, as {@link #blockSize}. */
  short copies(Path path) {
    Answer.Dataset dataset = rememberedOrNull(path);
    return dataset == null ? 1 : (short) dataset.copies;
  }

  FsServerDefaults serverDefaults(Path path) throws IOException {
    Answer.Dataset dataset = find(path);
    return new FsServerDefaults(
        dataset.metablockSize,
        CHUNK_BYTES,
        PACKET_BYTES,
        (short) dataset.copies,
        BUFFER_BYTES,
        false,
        // Hadoop counts in minutes. Less than one is still a trash.
        dataset.trashSeconds == 0 ? 0 : Math.max(1, dataset.trashSeconds / 60),
        DataChecksum.Type.CRC32C);
  }

  FsStatus space(Path path) throws IOException {
    long[] space = Native.space(context.callerForRead(StoreStatisticNames.OP_GET_STATUS), Texts.bytes(path));
    return new FsStatus(space[0], space[1], space[2]);
  }

  ContentSummary summary(Path path) throws IOException {
    long caller = context.callerForRead(StoreStatisticNames.OP_GET_CONTENT_SUMMARY);
    long[] counts;
    try {
      counts = Native.summary(caller, Texts.bytes(path));
    } catch (ParentNotDirectoryException e) {
      throw Failures.notFound(e);
    }
    ContentSummary.Builder builder =
        new ContentSummary.Builder()
            .length(counts[0])
            .fileCount(counts[1])
            .directoryCount(counts[2])
            .spaceConsumed(counts[3]);
    Answer.Dataset dataset = find(path);
    if (isRootOf(dataset, path)) {
      builder.quota(orNone(dataset.quotaInodes)).spaceQuota(orNone(inAllCopies(dataset, dataset.quotaBytes)));
    }
    return builder.build();
  }

  /** A quota belongs to a dataset's root. The usage of another path is counted, and has none. */
  QuotaUsage quotaUsage(Path path) throws IOException {
    Answer.Dataset dataset = find(path);
    if (!isRootOf(dataset, path)) {
      ContentSummary summary = summary(path);
      return new QuotaUsage.Builder()
          .fileAndDirectoryCount(summary.getFileCount() + summary.getDirectoryCount())
          .spaceConsumed(summary.getSpaceConsumed())
          .quota(-1)
          .spaceQuota(-1)
          .build();
    }
    return new QuotaUsage.Builder()
        .fileAndDirectoryCount(dataset.usedInodes)
        .quota(orNone(dataset.quotaInodes))
        .spaceConsumed(inAllCopies(dataset, dataset.usedBytes))
        .spaceQuota(orNone(inAllCopies(dataset, dataset.quotaBytes)))
        .build();
  }

  private Path qualified(String root) {
    return new Path(context.settings.uri.getScheme(), context.settings.uri.getAuthority(), root);
  }

  private static boolean isRootOf(Answer.Dataset dataset, Path path) {
    return Path.getPathWithoutSchemeAndAuthority(path).equals(new Path(null, null, dataset.root));
  }

  /** Hadoop counts space in bytes of all copies. Ebb's quota is of one. */
  private static long inAllCopies(Answer.Dataset dataset, long bytes) {
    return bytes > Long.MAX_VALUE / Math.max(1, dataset.copies) ? Long.MAX_VALUE : bytes * dataset.copies;
  }

  /** Hadoop's number for "no quota" is -1. */
  private static long orNone(long quota) {
    return quota == 0 ? -1 : quota;
  }

  private Answer.Dataset rememberedOrNull(Path path) {
    Path directory = path.isRoot() ? path : path.getParent();
    Remembered known = remembered.get(directory);
    long now = System.nanoTime();
    if (known != null && now - known.atNs < REMEMBERED_NS) {
      return known.dataset;
    }
    try {
      Answer.Dataset dataset = find(directory);
      remembered.put(directory, new Remembered(dataset, now));
      return dataset;
    } catch (IOException e) {
      // The caller cannot be told. Whatever is wrong is said by the call that comes next.
      return null;
    }
  }

  private static final class Remembered {
    final Answer.Dataset dataset;
    final long atNs;

    Remembered(Answer.Dataset dataset, long atNs) {
      this.dataset = dataset;
      this.atNs = atNs;
    }
  }
}
