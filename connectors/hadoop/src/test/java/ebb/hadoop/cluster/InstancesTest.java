package ebb.hadoop.cluster;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.nio.ByteBuffer;
import java.security.PrivilegedExceptionAction;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsAction;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.security.AccessControlException;
import org.apache.hadoop.security.UserGroupInformation;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class InstancesTest {
  private FileSystem fs;
  private Path folder;

  @BeforeEach
  void open() throws IOException {
    fs = TestCluster.newFileSystem();
    folder = TestCluster.newFolder(fs, "instances");
  }

  @AfterEach
  void close() throws IOException {
    fs.delete(folder, true);
    fs.close();
  }

  private static FileSystem as(String user, Configuration conf) throws IOException, InterruptedException {
    return UserGroupInformation.createRemoteUser(user)
        .doAs((PrivilegedExceptionAction<FileSystem>) () -> FileSystem.newInstance(TestCluster.uri(), conf));
  }

  /** Of the process, and not of Java alone: the library's threads are not Java's. */
  private static int threads() {
    return new File("/proc/self/task").list().length;
  }

  @Test
  void twoHundredMoreFileSystemsNeedNoMoreThreads() throws IOException {
    List<FileSystem> all = new ArrayList<>();
    fs.getFileStatus(folder);
    int before = threads();
    try {
      for (int i = 0; i < 200; i++) {
        all.add(TestCluster.newFileSystem());
        all.get(i).getFileStatus(folder);
      }
      // The JVM starts some of its own now and then.
      assertThat(threads()).isLessThan(before + 20);
    } finally {
      for (FileSystem each : all) {
        each.close();
      }
    }
    // The session goes on for those that are left.
    fs.getFileStatus(folder);
  }

  @Test
  void usersOfOneProcessDoNotSeeEachOthersPrivateFiles() throws Exception {
    fs.setPermission(folder, new FsPermission((short) 0777));
    Path file = new Path(folder, "of-daemon/secret");
    try (FileSystem daemon = as("daemon", TestCluster.conf());
        FileSystem games = as("games", TestCluster.conf())) {
      daemon.mkdirs(file.getParent(), new FsPermission((short) 0700));
      TestCluster.write(daemon, file, "secret".getBytes());
      assertThat(daemon.getFileStatus(file).getOwner()).isEqualTo("daemon");
      // The owner has looked it up just now: what the process remembers is no permission for others.
      assertThatThrownBy(() -> games.getFileStatus(file)).isInstanceOf(AccessControlException.class);
      assertThatThrownBy(() -> games.open(file)).isInstanceOf(AccessControlException.class);
      assertThatThrownBy(() -> games.listStatus(file.getParent())).isInstanceOf(AccessControlException.class);
      assertThatThrownBy(() -> games.delete(file, false)).isInstanceOf(AccessControlException.class);
      assertThatThrownBy(() -> games.access(file.getParent(), FsAction.READ))
          .isInstanceOf(AccessControlException.class);
      assertThatThrownBy(() -> games.setPermission(file.getParent(), new FsPermission((short) 0777)))
          .isInstanceOf(AccessControlException.class);
      assertThat(daemon.listStatus(file.getParent())).hasSize(1);
      daemon.access(file.getParent(), FsAction.ALL);
    }
  }

  @Test
  void aConfiguredUserMayDoEverything() throws Exception {
    Path secret = new Path(folder, "of-root");
    fs.mkdirs(secret, new FsPermission((short) 0700));
    Configuration conf = TestCluster.conf();
    try (FileSystem plain = as("games", conf)) {
      assertThatThrownBy(() -> plain.listStatus(secret)).isInstanceOf(AccessControlException.class);
    }
    conf.set("fs.ebb.superuser", "games");
    try (FileSystem superuser = as("games", conf)) {
      assertThat(superuser.listStatus(secret)).isEmpty();
    }
  }

  @Test
  void aUserWhomNobodyKnowsIsRefusedByName() {
    assertThatThrownBy(() -> as("no-such-user-here", TestCluster.conf()))
        .isInstanceOf(IOException.class)
        .isNotInstanceOf(FileNotFoundException.class)
        .hasMessageContaining("no-such-user-here");
  }

  @Test
  void aClosedFileSystemRefusesEverythingAndClosesItsStreams() throws IOException {
    Path file = new Path(folder, "file");
    TestCluster.write(fs, file, new byte[10]);
    FileSystem closed = TestCluster.newFileSystem();
    FSDataInputStream in = closed.open(file);
    FSDataOutputStream out = closed.create(new Path(folder, "written"));
    out.write("pushed".getBytes());
    closed.close();
    closed.close();
    assertThatThrownBy(() -> closed.getFileStatus(file)).hasMessageContaining("Filesystem closed");
    assertThatThrownBy(() -> closed.open(file)).isInstanceOf(IOException.class);
    assertThatThrownBy(() -> in.read()).isInstanceOf(IOException.class);
    assertThatThrownBy(() -> in.read(0, new byte[5], 0, 5)).isInstanceOf(IOException.class);
    assertThatThrownBy(() -> out.write(1)).isInstanceOf(IOException.class);
    in.close();
    out.close();
    // What was written before is there, as HDFS does it too.
    assertThat(fs.getFileStatus(new Path(folder, "written")).getLen()).isEqualTo(6);
  }

  /** Goal: whatever the moment, a read sees bytes or an exception, and the process lives. */
  @Test
  void aFileSystemMayBeClosedUnderItsReaders() throws Exception {
    Path file = new Path(folder, "file");
    byte[] data = TestCluster.bytes(2_000_000, 6);
    TestCluster.write(fs, file, data);
    ExecutorService threads = Executors.newFixedThreadPool(8);
    try {
      for (int round = 0; round < 10; round++) {
        FileSystem closed = TestCluster.newFileSystem();
        FSDataInputStream in = closed.open(file);
        CountDownLatch reading = new CountDownLatch(8);
        List<Future<Integer>> readers = new ArrayList<>();
        for (int thread = 0; thread < 8; thread++) {
          int seed = thread;
          readers.add(threads.submit(() -> readUntilClosed(in, data, new Random(seed), reading)));
        }
        reading.await();
        closed.close();
        for (Future<Integer> reader : readers) {
          assertThat(reader.get()).isGreaterThan(0);
        }
      }
    } finally {
      threads.shutdownNow();
    }
  }

  private static int readUntilClosed(FSDataInputStream in, byte[] data, Random random, CountDownLatch reading) {
    byte[] out = new byte[100_000];
    ByteBuffer direct = ByteBuffer.allocateDirect(out.length);
    for (int reads = 0; ; reads++) {
      int offset = random.nextInt(data.length - out.length);
      try {
        in.readFully(offset, out);
        direct.clear();
        in.readFully(offset, direct);
      } catch (IOException e) {
        return reads;
      }
      assertThat(Arrays.equals(out, Arrays.copyOfRange(data, offset, offset + out.length))).isTrue();
      assertThat(direct.flip()).isEqualTo(ByteBuffer.wrap(out));
      if (reads == 0) {
        reading.countDown();
      }
    }
  }

  @Test
  void aStreamThatWasDroppedGivesItsFileBack() throws Exception {
    Path file = new Path(folder, "file");
    TestCluster.write(fs, file, new byte[10]);
    for (int i = 0; i < 2000; i++) {
      fs.open(file);
    }
    System.gc();
    try (FSDataInputStream in = fs.open(file)) {
      assertThat(in.read()).isZero();
    }
  }

  @Test
  void aClusterThatIsNotThereIsNamed() {
    Configuration conf = new Configuration();
    assertThatThrownBy(() -> FileSystem.newInstance(URI.create("ebb://nowhere/"), conf))
        .isInstanceOf(IOException.class)
        .hasMessageContaining("/etc/ebb/nowhere.toml");
    conf.set("fs.ebb.cluster.nowhere", folder.toUri().getPath() + "/missing");
    assertThatThrownBy(() -> FileSystem.newInstance(URI.create("ebb://nowhere/"), conf))
        .isInstanceOf(IOException.class);
  }

  @Test
  void whatIsMissingIsMissingForAll() {
    Path missing = new Path(folder, "missing");
    assertThatThrownBy(() -> fs.getFileStatus(missing)).isInstanceOf(FileNotFoundException.class);
    assertThatThrownBy(() -> fs.getContentSummary(missing)).isInstanceOf(FileNotFoundException.class);
    assertThatThrownBy(() -> fs.listLocatedStatus(missing)).isInstanceOf(FileNotFoundException.class);
    assertThatThrownBy(() -> fs.getFileChecksum(missing)).isInstanceOf(FileNotFoundException.class);
    assertThatThrownBy(() -> fs.getAclStatus(missing)).isInstanceOf(FileNotFoundException.class);
    assertThatThrownBy(() -> fs.listXAttrs(missing)).isInstanceOf(FileNotFoundException.class);
    assertThatThrownBy(() -> fs.setTimes(missing, 1, 1)).isInstanceOf(FileNotFoundException.class);
  }
}
