package ebb.hadoop.cluster;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class ListingTest {
  private FileSystem fs;
  private Path folder;

  @BeforeEach
  void open() throws IOException {
    fs = TestCluster.newFileSystem();
    folder = TestCluster.newFolder(fs, "listing");
  }

  @AfterEach
  void close() throws IOException {
    fs.delete(folder, true);
    fs.close();
  }

  private static Set<String> names(RemoteIterator<? extends FileStatus> listing) throws IOException {
    Set<String> names = new HashSet<>();
    while (listing.hasNext()) {
      assertThat(names.add(listing.next().getPath().getName())).isTrue();
    }
    return names;
  }

  @Test
  void aTreeIsListedWithAllItsLocations() throws IOException {
    byte[] data = TestCluster.bytes(3000, 1);
    for (int i = 0; i < 60; i++) {
      // Deep and wide, with directories beside files.
      Path directory = new Path(folder, "a" + i % 3 + "/b" + i % 4 + "/c" + i % 5);
      TestCluster.write(fs, new Path(directory, "file" + i), data);
      TestCluster.write(fs, new Path(directory.getParent(), "other" + i), new byte[0]);
    }
    RemoteIterator<LocatedFileStatus> files = fs.listFiles(folder, true);
    int full = 0;
    int empty = 0;
    while (files.hasNext()) {
      LocatedFileStatus file = files.next();
      assertThat(file.isFile()).isTrue();
      if (file.getLen() == 0) {
        empty++;
        assertThat(file.getBlockLocations()).isEmpty();
        continue;
      }
      full++;
      BlockLocation[] blocks = file.getBlockLocations();
      assertThat(blocks).hasSize(1);
      assertThat(blocks[0].getLength()).isEqualTo(3000);
      assertThat(blocks[0].getHosts()).isNotEmpty();
      assertThat(blocks[0].getTopologyPaths()[0]).startsWith("/").endsWith("/" + blocks[0].getNames()[0]);
      BlockLocation[] asked = fs.getFileBlockLocations(file, 0, file.getLen());
      assertThat(new HashSet<>(Arrays.asList(asked[0].getHosts())))
          .isEqualTo(new HashSet<>(Arrays.asList(blocks[0].getHosts())));
    }
    assertThat(full).isEqualTo(60);
    assertThat(empty).isEqualTo(60);
    assertThat(names(fs.listFiles(folder, false))).isEmpty();
    assertThat(fs.getContentSummary(folder).getFileCount()).isEqualTo(120);
    assertThat(fs.getContentSummary(folder).getLength()).isEqualTo(60 * 3000);
  }

  @Test
  void aDirectoryOfManyPagesIsListedOnce() throws IOException {
    int count = 2500;
    for (int i = 0; i < count; i++) {
      fs.mkdirs(new Path(folder, "d" + i));
    }
    assertThat(names(fs.listStatusIterator(folder))).hasSize(count);
    assertThat(names(fs.listLocatedStatus(folder))).hasSize(count).contains("d0", "d2499");
    assertThat(fs.listStatus(folder)).hasSize(count);
    assertThat(names(FileContext.getFileContext(TestCluster.uri(), TestCluster.conf()).listStatus(folder)))
        .hasSize(count);
  }

  @Test
  void aFileIsItsOwnOnlyEntry() throws IOException {
    Path file = new Path(folder, "file");
    TestCluster.write(fs, file, new byte[5]);
    assertThat(fs.listStatus(file)).hasSize(1);
    assertThat(fs.listStatus(file)[0].getPath()).isEqualTo(file);
    assertThat(fs.listFiles(file, true).next().getPath()).isEqualTo(file);
  }

  @Test
  void strangeNamesAreKept() throws IOException {
    String[] names = {"a:b", "a b", "\u00e9\u6f22", "100%", "a#b?c", "~", "{x}", "a\\b", "\ud83d\ude00"};
    for (String name : names) {
      Path file = new Path(folder, new Path(null, null, name));
      TestCluster.write(fs, file, name.getBytes());
      FileStatus[] entries = fs.listStatus(folder);
      assertThat(entries).hasSize(1);
      assertThat(entries[0].getPath()).isEqualTo(fs.makeQualified(file));
      assertThat(entries[0].getPath().getName()).isEqualTo(name);
      assertThat(fs.getFileStatus(entries[0].getPath()).getLen()).isEqualTo(name.getBytes().length);
      fs.delete(file, false);
    }
  }

  /** Names are bytes, and a path of Hadoop cannot have all of them. */
  @Test
  void aNameThatIsNoTextIsLeftOutOfAListing() throws IOException {
    TestCluster.write(fs, new Path(folder, "good"), new byte[1]);
    TestCluster.shell("\"$EBB\" fs touch \"$(printf '" + folder.toUri().getPath() + "/bad\\377')\"");
    assertThat(names(fs.listStatusIterator(folder))).containsExactly("good");
    assertThat(names(fs.listFiles(folder, true))).containsExactly("good");
    assertThat(fs.getContentSummary(folder).getFileCount()).isEqualTo(2);
  }

  @Test
  void aDirectoryThatIsNotThereIsKnownAtOnce() {
    Path missing = new Path(folder, "missing");
    assertThatThrownBy(() -> fs.listStatusIterator(missing)).isInstanceOf(FileNotFoundException.class);
    assertThatThrownBy(() -> fs.listFiles(missing, true)).isInstanceOf(FileNotFoundException.class);
  }

  @Test
  void locationsAreThoseOfTheRangeThatIsAskedFor() throws IOException {
    Path file = new Path(folder, "file");
    TestCluster.write(fs, file, TestCluster.bytes(100_000, 3));
    FileStatus status = fs.getFileStatus(file);
    assertThat(fs.getFileBlockLocations(status, 0, 1)).hasSize(1);
    assertThat(fs.getFileBlockLocations(status, 100_000, 1)).isEmpty();
    assertThat(fs.getFileBlockLocations(status, 0, 0)).isEmpty();
    assertThatThrownBy(() -> fs.getFileBlockLocations(status, -1, 1)).isInstanceOf(IllegalArgumentException.class);
  }
}
