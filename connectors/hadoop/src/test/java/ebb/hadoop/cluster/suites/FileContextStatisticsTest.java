package ebb.hadoop.cluster.suites;

import static org.assertj.core.api.Assertions.assertThat;

import ebb.hadoop.cluster.TestCluster;
import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.fs.FCStatisticsBaseTest;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileSystem;

public class FileContextStatisticsTest extends FCStatisticsBaseTest {
  public FileContextStatisticsTest() throws IOException {
    fc = TestCluster.fileContext();
    // Other suites of this process read through the same counters.
    FileContext.clearStatistics();
  }

  @Override
  protected void verifyReadBytes(FileSystem.Statistics statistics) {
    assertThat(statistics.getBytesRead()).isEqualTo(2 * blockSize);
  }

  @Override
  protected void verifyWrittenBytes(FileSystem.Statistics statistics) {
    assertThat(statistics.getBytesWritten()).isEqualTo(blockSize);
  }

  @Override
  protected URI getFsUri() {
    return TestCluster.uri();
  }
}
