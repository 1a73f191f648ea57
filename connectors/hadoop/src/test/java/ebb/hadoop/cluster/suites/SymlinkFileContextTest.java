package ebb.hadoop.cluster.suites;

import ebb.hadoop.cluster.TestCluster;
import java.io.IOException;
import org.apache.hadoop.fs.FileContextTestWrapper;

public class SymlinkFileContextTest extends SymlinkSuite {
  public SymlinkFileContextTest() throws IOException {
    wrapper = new FileContextTestWrapper(TestCluster.fileContext());
  }
}
