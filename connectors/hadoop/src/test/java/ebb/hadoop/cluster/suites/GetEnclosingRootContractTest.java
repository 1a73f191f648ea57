package ebb.hadoop.cluster.suites;

import ebb.hadoop.cluster.TestCluster;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.contract.AbstractContractGetEnclosingRoot;
import org.apache.hadoop.fs.contract.AbstractFSContract;

public class GetEnclosingRootContractTest extends AbstractContractGetEnclosingRoot {
  @Override
  protected AbstractFSContract createContract(Configuration conf) {
    TestCluster.addUser("foo");
    return new EbbContract(conf);
  }
}
