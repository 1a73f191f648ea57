package ebb.hadoop.cluster;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.IOException;
import java.util.Arrays;
import java.util.stream.Collectors;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ContentSummary;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FsServerDefaults;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.QuotaUsage;
import org.apache.hadoop.fs.Trash;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

class DatasetsTest {
  private static FileSystem fs;
  private static Path dataset;
  private static Path folder;

  @BeforeAll
  static void makeDataset() throws IOException {
    fs = TestCluster.newFileSystem();
    dataset = fs.makeQualified(new Path("/dataset-" + System.nanoTime()));
    String path = dataset.toUri().getPath();
    TestCluster.ebb("dataset", "create", path, "--quota", "1GiB", "--inodes", "500", "--replicas", "2");
    TestCluster.ebb("dataset", "set", path, "--trash", "7d");
    folder = TestCluster.newFolder(fs, "datasets");
  }

  @AfterAll
  static void removeDataset() throws IOException {
    fs.delete(folder, true);
    fs.close();
    TestCluster.ebb("dataset", "rm", "-r", dataset.toUri().getPath());
  }

  @Test
  void aRenameToAnotherDatasetThrowsAndNamesBoth() throws IOException {
    Path source = new Path(folder, "source");
    Path target = new Path(dataset, "target");
    TestCluster.write(fs, source, new byte[3]);
    assertThatThrownBy(() -> fs.rename(source, target))
        .isInstanceOf(IOException.class)
        .hasMessageContaining(source + " (dataset /)")
        .hasMessageContaining(target + " (dataset " + dataset.toUri().getPath() + ")");
    assertThatThrownBy(() -> fs.rename(source, dataset)).isInstanceOf(IOException.class);
    FileContext context = FileContext.getFileContext(TestCluster.uri(), TestCluster.conf());
    assertThatThrownBy(() -> context.rename(source, target, Options.Rename.OVERWRITE))
        .isInstanceOf(IOException.class)
        .hasMessageContaining("dataset");
    assertThat(fs.exists(source)).isTrue();
    assertThat(fs.exists(target)).isFalse();
  }

  @Test
  void theEnclosingRootIsTheDataset() throws IOException {
    assertThat(fs.getEnclosingRoot(new Path(dataset, "not/there/yet"))).isEqualTo(dataset);
    assertThat(fs.getEnclosingRoot(dataset)).isEqualTo(dataset);
    assertThat(fs.getEnclosingRoot(folder)).isEqualTo(fs.makeQualified(new Path("/")));
  }

  @Test
  void trashStaysInTheDatasetAndCanBeMovedTo() throws IOException {
    Path root = fs.getTrashRoot(new Path(dataset, "file"));
    assertThat(root).isEqualTo(new Path(dataset, ".Trash/root"));
    Path file = new Path(dataset, "file");
    TestCluster.write(fs, file, "kept".getBytes());
    Configuration conf = TestCluster.conf();
    // Hadoop's client asks the cluster for the interval; its own is 0.
    assertThat(Trash.moveToAppropriateTrash(fs, file, conf)).isTrue();
    assertThat(fs.exists(file)).isFalse();
    Path kept = new Path(root, "Current" + file.toUri().getPath());
    assertThat(fs.getFileStatus(kept).getLen()).isEqualTo(4);
    fs.delete(new Path(dataset, ".Trash"), true);
    TestCluster.write(fs, new Path(fs.getTrashRoot(folder), "x"), new byte[1]);
    assertThat(fs.getTrashRoots(false).stream().map(status -> status.getPath()).collect(Collectors.toList()))
        .containsExactly(fs.getTrashRoot(folder));
    fs.delete(fs.getTrashRoot(folder), true);
    assertThat(fs.getTrashRoots(true)).isEmpty();
  }

  @Test
  void quotasAreThoseOfTheRoot() throws IOException {
    Path file = new Path(dataset, "counted");
    TestCluster.write(fs, file, new byte[10_000]);
    // What is used is known to the master a moment after the file was closed.
    QuotaUsage usage = fs.getQuotaUsage(dataset);
    long end = System.nanoTime() + 60_000_000_000L;
    while (usage.getSpaceConsumed() < 20_000 && System.nanoTime() < end) {
      usage = fs.getQuotaUsage(dataset);
    }
    // Hadoop counts the bytes of all copies.
    assertThat(usage.getSpaceQuota()).isEqualTo(2L << 30);
    assertThat(usage.getQuota()).isEqualTo(500);
    assertThat(usage.getSpaceConsumed()).isGreaterThanOrEqualTo(20_000);
    assertThat(usage.getFileAndDirectoryCount()).isGreaterThanOrEqualTo(1);
    ContentSummary summary = fs.getContentSummary(dataset);
    assertThat(summary.getLength()).isEqualTo(10_000);
    assertThat(summary.getSpaceConsumed()).isEqualTo(20_000);
    assertThat(summary.getSpaceQuota()).isEqualTo(2L << 30);
    assertThat(fs.getQuotaUsage(folder).getQuota()).isEqualTo(-1);
    assertThat(fs.getContentSummary(folder).getQuota()).isEqualTo(-1);
    fs.delete(file, false);
  }

  @Test
  void defaultsAreTheDatasets() throws IOException {
    FsServerDefaults defaults = fs.getServerDefaults(new Path(dataset, "new"));
    assertThat(defaults.getReplication()).isEqualTo((short) 2);
    assertThat(defaults.getBlockSize()).isEqualTo(fs.getDefaultBlockSize(dataset));
    assertThat(defaults.getTrashInterval()).isEqualTo(7 * 24 * 60);
    assertThat(fs.getDefaultReplication(new Path(dataset, "new"))).isEqualTo((short) 2);
    assertThat(fs.getServerDefaults(folder).getTrashInterval()).isZero();
  }

  @Test
  void spaceIsKnown() throws IOException {
    assertThat(fs.getStatus(folder).getCapacity()).isGreaterThan(0);
    assertThat(fs.getStatus(folder).getRemaining()).isBetween(1L, fs.getStatus(folder).getCapacity());
  }

  @Test
  void racksAreThoseOfTheCluster() {
    ebb.hadoop.EbbRackMapping mapping = new ebb.hadoop.EbbRackMapping();
    mapping.setConf(TestCluster.conf());
    assertThat(mapping.resolve(Arrays.asList("h1", "h2", "no-such-host.invalid")))
        .hasSize(3)
        .allMatch(rack -> rack.startsWith("/"))
        .endsWith("/default-rack");
    assertThat(mapping.getSwitchMap()).containsKeys("h1", "h2", "h3", "h4");
  }
}
