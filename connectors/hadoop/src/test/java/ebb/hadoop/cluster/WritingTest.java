package ebb.hadoop.cluster;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.ClusterStorageCapacityExceededException;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.permission.FsPermission;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class WritingTest {
  private FileSystem fs;
  private Path folder;

  @BeforeEach
  void open() throws IOException {
    fs = TestCluster.newFileSystem();
    folder = TestCluster.newFolder(fs, "writing");
  }

  @AfterEach
  void close() throws IOException {
    fs.delete(folder, true);
    fs.close();
  }

  private static byte[] read(FileSystem fs, Path path) throws IOException {
    try (FSDataInputStream in = fs.open(path)) {
      return in.readAllBytes();
    }
  }

  /** Method: the other client is a process of its own, for one of this process would share what is cached. */
  @Test
  void whatWasFlushedIsSeenByAnotherProcess() throws IOException {
    Path file = new Path(folder, "log");
    byte[] data = TestCluster.bytes(300_000, 2);
    try (FSDataOutputStream out = fs.create(file)) {
      out.write(data, 0, 100_000);
      out.hflush();
      assertThat(TestCluster.ebb("fs", "cat", file.toUri().getPath())).isEqualTo(Arrays.copyOf(data, 100_000));
      out.write(data, 100_000, 200_000);
      out.hsync();
      assertThat(TestCluster.ebb("fs", "cat", file.toUri().getPath())).isEqualTo(data);
      try (FileSystem other = TestCluster.newFileSystem()) {
        assertThat(read(other, file)).isEqualTo(data);
        assertThat(other.getFileStatus(file).getLen()).isEqualTo(data.length);
      }
    }
  }

  @Test
  void aClosedFileIsCompleteForAnotherProcess() throws IOException {
    Path file = new Path(folder, "closed");
    byte[] data = TestCluster.bytes(3_000_000, 3);
    TestCluster.write(fs, file, data);
    FileStatus status = fs.getFileStatus(file);
    assertThat(status.getLen()).isEqualTo(data.length);
    assertThat(TestCluster.ebb("fs", "cat", file.toUri().getPath())).isEqualTo(data);
    assertThat(fs.getFileStatus(file).getModificationTime()).isEqualTo(status.getModificationTime());
  }

  @Test
  void threadsWriteToOneStreamAndNoByteIsLost() throws Exception {
    Path file = new Path(folder, "threads");
    ExecutorService threads = Executors.newFixedThreadPool(4);
    try (FSDataOutputStream out = fs.create(file)) {
      List<Future<?>> writers = new ArrayList<>();
      for (int thread = 0; thread < 4; thread++) {
        byte[] line = new byte[100];
        Arrays.fill(line, (byte) ('a' + thread));
        writers.add(
            threads.submit(
                () -> {
                  for (int i = 0; i < 5_000; i++) {
                    out.getWrappedStream().write(line);
                  }
                  return null;
                }));
      }
      for (Future<?> writer : writers) {
        writer.get();
      }
    } finally {
      threads.shutdownNow();
    }
    byte[] data = read(fs, file);
    int[] counts = new int[4];
    for (int i = 0; i < data.length; i += 100) {
      for (int j = 1; j < 100; j++) {
        assertThat(data[i + j]).isEqualTo(data[i]);
      }
      counts[data[i] - 'a']++;
    }
    assertThat(counts).containsOnly(5_000);
  }

  @Test
  void flagsSayWhatHappensToAFileThatExists() throws IOException {
    Path file = new Path(folder, "flags");
    FsPermission permission = FsPermission.getFileDefault();
    assertThatThrownBy(() -> fs.create(file, permission, EnumSet.of(CreateFlag.OVERWRITE), 0, (short) 1, 0, null))
        .isInstanceOf(FileNotFoundException.class);
    assertThatThrownBy(() -> fs.create(file, permission, EnumSet.of(CreateFlag.APPEND), 0, (short) 1, 0, null))
        .isInstanceOf(FileNotFoundException.class);
    EnumSet<CreateFlag> appending = EnumSet.of(CreateFlag.CREATE, CreateFlag.APPEND, CreateFlag.SYNC_BLOCK);
    for (int i = 1; i <= 3; i++) {
      try (FSDataOutputStream out = fs.create(file, permission, appending, 0, (short) 1, 0, null)) {
        assertThat(out.getPos()).isEqualTo(i - 1);
        out.write('0' + i);
      }
    }
    assertThat(read(fs, file)).isEqualTo("123".getBytes());
    assertThatThrownBy(() -> fs.create(file, false)).isInstanceOf(FileAlreadyExistsException.class);
    fs.create(file, permission, EnumSet.of(CreateFlag.OVERWRITE), 0, (short) 1, 0, null).close();
    assertThat(read(fs, file)).isEmpty();
  }

  @Test
  void appendingContinuesAndTruncatingCuts() throws IOException {
    Path file = new Path(folder, "log");
    TestCluster.write(fs, file, "abc".getBytes());
    try (FSDataOutputStream out = fs.append(file)) {
      assertThat(out.getPos()).isEqualTo(3);
      out.write("def".getBytes());
    }
    assertThat(read(fs, file)).isEqualTo("abcdef".getBytes());
    assertThat(fs.truncate(file, 2)).isTrue();
    assertThat(read(fs, file)).isEqualTo("ab".getBytes());
  }

  @Test
  void missingDirectoriesAreMadeOnlyIfTheyMay() throws IOException {
    Path file = new Path(folder, "x/y/file");
    assertThatThrownBy(() -> fs.createFile(file).build()).isInstanceOf(FileNotFoundException.class);
    fs.createFile(file).recursive().build().close();
    assertThat(fs.getFileStatus(file).getPermission().toShort()).isEqualTo((short) 0644);
    assertThat(fs.getFileStatus(file.getParent()).getPermission().toShort()).isEqualTo((short) 0755);
  }

  @Test
  void theFirstCopyIsWhereTheWriterWantsIt() throws IOException {
    for (String host : new String[] {"h2", "h4"}) {
      Path file = new Path(folder, "on-" + host);
      try (FSDataOutputStream out =
          (FSDataOutputStream) fs.createFile(file).must("fs.option.ebb.hosts", host).build()) {
        out.write(TestCluster.bytes(1000, 4));
      }
      BlockLocation[] blocks = fs.getFileBlockLocations(file, 0, 1000);
      assertThat(blocks).hasSize(1);
      assertThat(blocks[0].getHosts()).contains(host);
    }
    assertThatThrownBy(() -> fs.createFile(new Path(folder, "f")).must("fs.option.unknown", "x").build())
        .isInstanceOf(IllegalArgumentException.class);
  }

  /** Hosts of a file of eight metablocks in one copy, which a program on h2 makes. */
  private Set<String> hostsOf(FileSystem onHost, Path file, CreateFlag... wishes) throws IOException {
    EnumSet<CreateFlag> flags = EnumSet.of(CreateFlag.CREATE);
    flags.addAll(Arrays.asList(wishes));
    try (FSDataOutputStream out =
        onHost.create(file, FsPermission.getFileDefault(), flags, 4096, (short) 1, 1 << 20, null)) {
      out.write(TestCluster.bytes(8 << 20, 5));
    }
    Set<String> hosts = new HashSet<>();
    for (BlockLocation block : onHost.getFileBlockLocations(file, 0, 8 << 20)) {
      hosts.addAll(Arrays.asList(block.getHosts()));
    }
    return hosts;
  }

  @Test
  void theFirstCopyIsElsewhereIfTheWriterSaysSo() throws IOException {
    String dataset = folder.toUri().getPath() + "/one-copy";
    TestCluster.ebb("dataset", "create", dataset, "--layout", "random", "--replicas", "1", "--metablock", "1MiB");
    Configuration conf = TestCluster.conf();
    conf.set("fs.ebb.host", "h2");
    try (FileSystem onHost = FileSystem.newInstance(TestCluster.uri(), conf)) {
      assertThat(hostsOf(onHost, new Path(dataset, "here"))).containsExactly("h2");
      assertThat(hostsOf(onHost, new Path(dataset, "elsewhere"), CreateFlag.NO_LOCAL_WRITE))
          .hasSizeGreaterThan(1)
          .doesNotContain("h2");
      assertThat(hostsOf(onHost, new Path(dataset, "anywhere"), CreateFlag.IGNORE_CLIENT_LOCALITY))
          .hasSizeGreaterThan(2)
          .contains("h2");
    } finally {
      TestCluster.ebb("dataset", "rm", "-r", dataset);
    }
  }

  @Test
  void aClosedStreamTakesNothingAndMayBeClosedAgain() throws IOException {
    FSDataOutputStream out = fs.create(new Path(folder, "closed"));
    out.write(1);
    out.close();
    out.close();
    assertThatThrownBy(() -> out.write(2)).isInstanceOf(IOException.class);
    assertThatThrownBy(out::hflush).isInstanceOf(IOException.class);
    assertThat(read(fs, new Path(folder, "closed"))).isEqualTo(new byte[] {1});
    assertThat(out.hasCapability(StreamCapabilities.HSYNC)).isTrue();
  }

  @Test
  void aFullQuotaIsToldAsOneAndAgainByEachClose() throws IOException {
    String dataset = "/quota-" + System.nanoTime();
    TestCluster.ebb("dataset", "create", dataset, "--quota", "2MiB");
    Path file = new Path(dataset, "file");
    FSDataOutputStream out = fs.create(file);
    IOException failure = null;
    try {
      for (int i = 0; i < 64; i++) {
        out.write(TestCluster.bytes(1 << 20, i));
      }
      out.hsync();
    } catch (IOException e) {
      failure = e;
    }
    assertThat(failure).isInstanceOf(ClusterStorageCapacityExceededException.class);
    assertThatThrownBy(out.getWrappedStream()::close).isInstanceOf(IOException.class).hasRootCause(failure);
    assertThatThrownBy(out.getWrappedStream()::close).isInstanceOf(IOException.class).hasRootCause(failure);
    fs.delete(file, false);
  }
}
