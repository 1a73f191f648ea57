package ebb.hadoop.cluster.suites;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.contract.AbstractContractPathHandleTest;
import org.apache.hadoop.fs.contract.AbstractFSContract;

public class PathHandleContractTest extends AbstractContractPathHandleTest {
  public PathHandleContractTest(String name, Options.HandleOpt[] options, boolean serialized) {
    super(name, options, serialized);
  }

  @Override
  protected AbstractFSContract createContract(Configuration conf) {
    return new EbbContract(conf);
  }
}
