package ebb.hadoop.cluster;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** What Ebb does with symbolic links in its own way. */
class LinksTest {
  private FileSystem fs;
  private Path folder;

  @BeforeEach
  void open() throws IOException {
    fs = TestCluster.newFileSystem();
    folder = TestCluster.newFolder(fs, "links");
    TestCluster.write(fs, new Path(folder, "file"), "content".getBytes());
    fs.mkdirs(new Path(folder, "directory"));
  }

  @AfterEach
  void close() throws IOException {
    fs.delete(folder, true);
    fs.close();
  }

  private Path link(String target, String name) throws IOException {
    Path link = new Path(folder, name);
    fs.createSymlink(new Path(target), link, false);
    return link;
  }

  @Test
  void theClusterFollowsALinkAndItsStatusHasTheLinksPath() throws IOException {
    Path link = link("file", "link");
    try (FSDataInputStream in = fs.open(link)) {
      assertThat(in.readAllBytes()).isEqualTo("content".getBytes());
    }
    FileStatus status = fs.getFileStatus(link);
    assertThat(status.isFile()).isTrue();
    assertThat(status.getLen()).isEqualTo(7);
    assertThat(status.getPath()).isEqualTo(link);
    FileStatus itself = fs.getFileLinkStatus(link);
    assertThat(itself.isSymlink()).isTrue();
    assertThat(itself.getSymlink()).isEqualTo(new Path(folder, "file"));
    assertThat(fs.getLinkTarget(link)).isEqualTo(new Path("file"));
  }

  @Test
  void aUriOfThisFileSystemIsKeptAsItsPath() throws IOException {
    Path link = link(new Path(folder, "file").toString(), "link");
    assertThat(fs.getLinkTarget(link)).isEqualTo(new Path(new Path(folder, "file").toUri().getPath()));
    assertThat(fs.getFileStatus(link).getLen()).isEqualTo(7);
  }

  @Test
  void aUriOfAnotherFileSystemIsRefused() {
    for (String target : new String[] {"hdfs://host/a", "ebb://elsewhere/a", "file:/a", "//authority/a"}) {
      assertThatThrownBy(() -> link(target, "link")).isInstanceOf(IOException.class).hasMessageContaining(target);
    }
    assertThatThrownBy(() -> fs.getFileLinkStatus(new Path(folder, "link"))).isInstanceOf(FileNotFoundException.class);
  }

  @Test
  void aCircleIsAnError() throws IOException {
    Path circle = link("circle", "circle");
    assertThatThrownBy(() -> fs.open(circle)).isInstanceOf(IOException.class).hasMessageContaining("link");
    assertThat(fs.getFileLinkStatus(circle).isSymlink()).isTrue();
  }

  @Test
  void onlyALinkHasATarget() {
    assertThatThrownBy(() -> fs.getLinkTarget(new Path(folder, "file")))
        .isInstanceOf(IOException.class)
        .hasMessageContaining("is not a symbolic link");
  }

  @Test
  void aListingHasFilesBehindLinksAndLeavesOtherLinksAlone() throws IOException {
    link("file", "to-file");
    link("directory", "to-directory");
    link("nothing", "to-nothing");
    link("circle", "circle");
    link("../links", "directory/up");
    Map<String, FileStatus> entries = new HashMap<>();
    for (FileStatus entry : fs.listStatus(folder)) {
      entries.put(entry.getPath().getName(), entry);
    }
    assertThat(entries).hasSize(6);
    assertThat(entries.get("to-file").isFile()).isTrue();
    assertThat(entries.get("to-file").getLen()).isEqualTo(7);
    for (String other : new String[] {"to-directory", "to-nothing", "circle"}) {
      assertThat(entries.get(other).isSymlink()).isTrue();
    }
    Map<String, LocatedFileStatus> files = new HashMap<>();
    RemoteIterator<LocatedFileStatus> walk = fs.listFiles(folder, true);
    while (walk.hasNext()) {
      LocatedFileStatus file = walk.next();
      files.put(file.getPath().getName(), file);
    }
    assertThat(files.keySet()).containsExactlyInAnyOrder("file", "to-file");
    assertThat(files.get("to-file").getBlockLocations()).hasSize(1);
  }

  @Test
  void removingALinkLeavesWhatItLeadsTo() throws IOException {
    Path link = link("directory", "link");
    TestCluster.write(fs, new Path(link, "inside"), new byte[1]);
    assertThat(fs.delete(link, true)).isTrue();
    assertThat(fs.exists(new Path(folder, "directory/inside"))).isTrue();
  }
}
