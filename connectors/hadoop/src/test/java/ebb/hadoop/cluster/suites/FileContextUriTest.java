package ebb.hadoop.cluster.suites;

import ebb.hadoop.cluster.TestCluster;
import java.io.IOException;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileContextURIBase;

public class FileContextUriTest extends FileContextURIBase {
  public FileContextUriTest() throws IOException {
    // What the one makes must be what the other sees.
    fc1 = TestCluster.fileContext();
    fc2 = FileContext.getFileContext(TestCluster.uri(), TestCluster.conf());
  }
}
