package ebb.hadoop.cluster.suites;

import ebb.hadoop.cluster.TestCluster;
import java.io.IOException;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileContextPermissionBase;

public class FileContextPermissionTest extends FileContextPermissionBase {
  @Override
  protected FileContext getFileContext() throws IOException {
    return TestCluster.fileContext();
  }
}
