package ebb.hadoop.cluster.suites;

import ebb.hadoop.cluster.TestCluster;
import java.io.IOException;
import org.apache.hadoop.fs.FileSystemContractBaseTest;

public class FileSystemContractTest extends FileSystemContractBaseTest {
  /** Not in {@code setUp}: an annotation on it would be that of one version of JUnit. */
  public FileSystemContractTest() throws IOException {
    fs = TestCluster.fileSystem();
  }
}
