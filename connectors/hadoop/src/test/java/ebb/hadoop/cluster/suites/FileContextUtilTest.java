package ebb.hadoop.cluster.suites;

import ebb.hadoop.cluster.TestCluster;
import java.io.IOException;
import org.apache.hadoop.fs.FileContextUtilBase;

public class FileContextUtilTest extends FileContextUtilBase {
  public FileContextUtilTest() throws IOException {
    fc = TestCluster.fileContext();
  }
}
