package ebb.hadoop.cluster.suites;

import ebb.hadoop.cluster.TestCluster;
import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.contract.AbstractFSContract;

/** Binds Hadoop's contract tests to the cluster, with the expectations that are in the jar. */
public final class EbbContract extends AbstractFSContract {
  public EbbContract(Configuration conf) {
    super(TestCluster.configure(conf));
    addConfResource("contract/ebb.xml");
  }

  @Override
  public FileSystem getTestFileSystem() throws IOException {
    return FileSystem.get(TestCluster.uri(), getConf());
  }

  @Override
  public String getScheme() {
    return "ebb";
  }

  @Override
  public Path getTestPath() {
    return new Path(TestCluster.folder());
  }
}
