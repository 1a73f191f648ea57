package ebb.hadoop.cluster.suites;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.contract.AbstractContractSafeModeTest;
import org.apache.hadoop.fs.contract.AbstractFSContract;
import org.junit.AssumptionViolatedException;

/**
 * The test enters a safe mode, and Ebb has none: a mode that is entered and keeps nobody from writing would be a trap.
 * {@code FilesTest} has what there is.
 */
public class SafeModeContractTest extends AbstractContractSafeModeTest {
  @Override
  protected AbstractFSContract createContract(Configuration conf) {
    return new EbbContract(conf);
  }

  @Override
  public void testSafeMode() {
    throw new AssumptionViolatedException("there is no safe mode to enter");
  }
}
