package ebb.hadoop.cluster.suites;

import ebb.hadoop.cluster.TestCluster;
import java.io.IOException;
import org.apache.hadoop.fs.FileContextMainOperationsBaseTest;
import org.apache.hadoop.fs.Path;

public class FileContextMainOperationsTest extends FileContextMainOperationsBaseTest {
  public FileContextMainOperationsTest() throws IOException {
    fc = TestCluster.fileContext();
  }

  @Override
  protected Path getDefaultWorkingDirectory() {
    return fc.getHomeDirectory();
  }

  @Override
  protected boolean listCorruptedBlocksSupported() {
    return false;
  }
}
