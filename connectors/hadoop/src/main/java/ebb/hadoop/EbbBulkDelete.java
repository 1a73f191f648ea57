package ebb.hadoop;

import java.io.IOException;
import java.util.AbstractMap;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.BulkDelete;
import org.apache.hadoop.fs.BulkDeleteUtils;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.statistics.IOStatistics;
import org.apache.hadoop.fs.statistics.StoreStatisticNames;

/** Removes many files below a path. One that is not there counts as removed. */
final class EbbBulkDelete implements BulkDelete {
  private static final int PAGE_PATHS = 1000;

  private final Context context;
  private final Names names;
  private final Path base;

  EbbBulkDelete(Context context, Names names, Path base) {
    this.context = context;
    this.names = names;
    this.base = base;
  }

  @Override
  public int pageSize() {
    return PAGE_PATHS;
  }

  @Override
  public Path basePath() {
    return base;
  }

  @Override
  public List<Map.Entry<Path, String>> bulkDelete(Collection<Path> paths) throws IOException {
    BulkDeleteUtils.validateBulkDeletePaths(paths, PAGE_PATHS, base);
    context.counters.add(StoreStatisticNames.OP_BULK_DELETE);
    List<Map.Entry<Path, String>> failures = new ArrayList<>();
    List<Path> inOrder = new ArrayList<>(paths);
    // A directory goes after what is in it, so that it may be among the paths.
    inOrder.sort(Comparator.comparingInt(Path::depth).reversed());
    for (Path path : inOrder) {
      try {
        names.remove(path, false);
      } catch (IOException e) {
        failures.add(new AbstractMap.SimpleImmutableEntry<>(path, e.toString()));
      }
    }
    return failures;
  }

  @Override
  public IOStatistics getIOStatistics() {
    return context.counters.statistics();
  }

  @Override
  public void close() {}
}
