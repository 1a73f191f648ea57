package ebb.hadoop.cluster;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.FileNotFoundException;
import java.io.IOException;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LeaseRecoverable;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathIsNotEmptyDirectoryException;
import org.apache.hadoop.fs.SafeMode;
import org.apache.hadoop.fs.SafeModeAction;
import org.apache.hadoop.fs.StorageStatistics;
import org.apache.hadoop.fs.statistics.IOStatistics;
import org.apache.hadoop.fs.statistics.IOStatisticsSource;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class FilesTest {
  private FileSystem fs;
  private Path folder;

  @BeforeEach
  void open() throws IOException {
    fs = TestCluster.newFileSystem();
    folder = TestCluster.newFolder(fs, "files");
  }

  @AfterEach
  void close() throws IOException {
    fs.delete(folder, true);
    fs.close();
  }

  @Test
  void directoriesAreMadeOnceAndNotInPlaceOfFiles() throws IOException {
    Path file = new Path(folder, "file");
    TestCluster.write(fs, file, new byte[1]);
    assertThat(fs.mkdirs(new Path(folder, "a/b/c"))).isTrue();
    assertThat(fs.mkdirs(new Path(folder, "a/b/c"))).isTrue();
    assertThatThrownBy(() -> fs.mkdirs(file)).isInstanceOf(FileAlreadyExistsException.class);
    assertThatThrownBy(() -> fs.mkdirs(new Path(file, "below"))).isInstanceOf(ParentNotDirectoryException.class);
    assertThatThrownBy(() -> fs.create(new Path(file, "below"))).isInstanceOf(ParentNotDirectoryException.class);
    assertThatThrownBy(() -> fs.create(folder)).isInstanceOf(FileAlreadyExistsException.class);
  }

  @Test
  void aTreeIsRemovedOnlyAsOne() throws IOException {
    TestCluster.write(fs, new Path(folder, "a/b/file"), new byte[1]);
    assertThatThrownBy(() -> fs.delete(new Path(folder, "a"), false))
        .isInstanceOf(PathIsNotEmptyDirectoryException.class);
    assertThat(fs.delete(new Path(folder, "a"), true)).isTrue();
    assertThat(fs.delete(new Path(folder, "a"), true)).isFalse();
    assertThatThrownBy(() -> fs.delete(new Path("/"), false)).isInstanceOf(PathIsNotEmptyDirectoryException.class);
    assertThat(fs.delete(new Path("/"), true)).isFalse();
    assertThat(fs.exists(folder)).isTrue();
  }

  @Test
  void thereIsNoSafeModeToEnter() throws IOException {
    SafeMode modes = (SafeMode) fs;
    assertThat(modes.setSafeMode(SafeModeAction.GET)).isFalse();
    assertThat(modes.setSafeMode(SafeModeAction.LEAVE)).isFalse();
    assertThat(modes.setSafeMode(SafeModeAction.FORCE_EXIT)).isFalse();
    assertThatThrownBy(() -> modes.setSafeMode(SafeModeAction.ENTER)).isInstanceOf(IOException.class);
  }

  @Test
  void aLeaseIsTakenFromAWriterThatIsGone() throws Exception {
    Path file = new Path(folder, "file");
    LeaseRecoverable leases = (LeaseRecoverable) fs;
    FSDataOutputStream out = fs.create(file);
    out.write(new byte[10]);
    out.hsync();
    out.close();
    assertThat(leases.isFileClosed(file)).isTrue();
    assertThat(leases.recoverLease(file)).isTrue();
  }

  @Test
  void aWriterWhoseLeaseWasTakenWritesNoMore() throws Exception {
    Path file = new Path(folder, "log");
    FSDataOutputStream old = fs.create(file);
    old.write(new byte[10]);
    old.hsync();
    assertThat(((LeaseRecoverable) fs).recoverLease(file)).isTrue();
    assertThatThrownBy(
            () -> {
              old.write(new byte[5]);
              old.hsync();
            })
        .isInstanceOf(IOException.class)
        .hasMessageContaining("taken over")
        .hasMessageContaining("log");
    assertThatThrownBy(old::close).isInstanceOf(IOException.class);
    try (FSDataOutputStream next = fs.append(file)) {
      next.write(new byte[7]);
    }
    assertThat(fs.getFileStatus(file).getLen()).isEqualTo(17);
  }

  @Test
  void aLeaseIsTakenOnlyWithPermissionToWrite() throws Exception {
    assertThatThrownBy(() -> ((LeaseRecoverable) fs).recoverLease(new Path(folder, "none")))
        .isInstanceOf(FileNotFoundException.class);
    assertThatThrownBy(() -> ((LeaseRecoverable) fs).recoverLease(folder)).isInstanceOf(IOException.class);
  }

  @Test
  void callsAndTrafficAreCounted() throws IOException {
    IOStatistics statistics = ((IOStatisticsSource) fs).getIOStatistics();
    long made = statistics.counters().get("op_mkdirs");
    long sent = statistics.counters().get("ebb_network_bytes_sent");
    fs.mkdirs(new Path(folder, "counted"));
    TestCluster.write(fs, new Path(folder, "file"), TestCluster.bytes(100_000, 1));
    assertThat(statistics.counters().get("op_mkdirs")).isEqualTo(made + 1);
    assertThat(statistics.counters().get("ebb_network_bytes_sent")).isGreaterThanOrEqualTo(sent + 100_000);
    StorageStatistics shown = fs.getStorageStatistics();
    assertThat(shown.getLong("op_mkdirs")).isEqualTo(made + 1);
    assertThat(shown.getScheme()).isEqualTo("ebb");
  }

  @Test
  void snapshotsOfADatasetAreTakenRenamedReadAndDeleted() throws IOException {
    Path root = fs.getEnclosingRoot(folder);
    Path file = new Path(folder, "kept");
    byte[] before = TestCluster.bytes(50_000, 3);
    TestCluster.write(fs, file, before);
    Path taken = fs.createSnapshot(root, "kept-" + folder.getName());
    Path again = fs.createSnapshot(root);
    fs.delete(file, false);
    fs.renameSnapshot(root, taken.getName(), "other-" + folder.getName());
    Path other = new Path(taken.getParent(), "other-" + folder.getName());
    assertThat(taken.getParent()).isEqualTo(new Path(root, ".snapshot"));
    String below = root.toUri().relativize(file.toUri()).getPath();
    for (Path snapshot : new Path[] {other, again}) {
      Path old = new Path(snapshot, below);
      try (FSDataInputStream in = fs.open(old)) {
        assertThat(in.readAllBytes()).isEqualTo(before);
      }
      assertThatThrownBy(() -> fs.delete(old, false)).isInstanceOf(IOException.class);
      fs.deleteSnapshot(root, snapshot.getName());
      assertThat(fs.exists(old)).isFalse();
    }
    assertThatThrownBy(() -> fs.deleteSnapshot(root, "none")).isInstanceOf(FileNotFoundException.class);
    assertThatThrownBy(() -> fs.createSnapshot(folder, "x")).isInstanceOf(IOException.class);
  }

  @Test
  void capabilitiesAreDeclared() throws IOException {
    assertThat(fs.hasPathCapability(folder, "fs.capability.paths.acls")).isTrue();
    assertThat(fs.hasPathCapability(folder, "fs.capability.etags.preserved.in.rename")).isTrue();
    assertThat(fs.hasPathCapability(folder, "fs.capability.paths.concat")).isFalse();
    assertThat(fs.hasPathCapability(folder, "fs.capability.paths.snapshots")).isTrue();
    assertThat(fs.getCanonicalServiceName()).isNull();
    assertThat(fs.getDelegationToken("yarn")).isNull();
    assertThatThrownBy(() -> fs.concat(folder, new Path[] {folder})).isInstanceOf(UnsupportedOperationException.class);
  }
}
