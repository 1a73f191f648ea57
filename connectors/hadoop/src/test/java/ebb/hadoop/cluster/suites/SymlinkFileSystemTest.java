package ebb.hadoop.cluster.suites;

import ebb.hadoop.cluster.TestCluster;
import java.io.IOException;
import org.apache.hadoop.fs.FileSystemTestWrapper;

public class SymlinkFileSystemTest extends SymlinkSuite {
  public SymlinkFileSystemTest() throws IOException {
    wrapper = new FileSystemTestWrapper(TestCluster.fileSystem());
  }
}
