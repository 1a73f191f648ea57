package ebb.hadoop.cluster.suites;

import ebb.hadoop.cluster.TestCluster;
import java.io.IOException;
import org.apache.hadoop.fs.FileContextCreateMkdirBaseTest;

public class FileContextCreateMkdirTest extends FileContextCreateMkdirBaseTest {
  public FileContextCreateMkdirTest() throws IOException {
    fc = TestCluster.fileContext();
  }
}
