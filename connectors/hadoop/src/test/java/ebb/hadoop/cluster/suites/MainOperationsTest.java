package ebb.hadoop.cluster.suites;

import ebb.hadoop.cluster.TestCluster;
import java.io.IOException;
import java.security.PrivilegedExceptionAction;
import org.apache.hadoop.fs.FSMainOperationsBaseTest;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.security.UserGroupInformation;

/** As a plain user, since the suite looks whether directories that may not be read are refused. */
public class MainOperationsTest extends FSMainOperationsBaseTest {
  private static final String USER = "daemon";

  public MainOperationsTest() {
    super(TestCluster.folder() + "/main-operations");
  }

  @Override
  protected FileSystem createFileSystem() throws IOException, InterruptedException {
    FileSystem root = TestCluster.fileSystem();
    root.mkdirs(new Path(testRootDir));
    root.setOwner(new Path(testRootDir), USER, USER);
    return UserGroupInformation.createRemoteUser(USER)
        .doAs((PrivilegedExceptionAction<FileSystem>) TestCluster::newFileSystem);
  }

  @Override
  protected Path getDefaultWorkingDirectory() {
    return fSys.getHomeDirectory();
  }
}
