package ebb.hadoop;

import static org.assertj.core.api.Assertions.assertThat;

import ebb.hadoop.cluster.TestCluster;
import java.io.IOException;
import java.util.EnumSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.Test;

/** Method: contexts, since Hadoop keeps all file systems that it made in a list until they are closed. */
class SessionOnClusterTest {
  private static final Path FILE = new Path(TestCluster.folder(), "dropped");

  private static FSDataInputStream openAndForgetTheRest() throws IOException {
    FileContext context = TestCluster.fileContext();
    EnumSet<CreateFlag> flags = EnumSet.of(CreateFlag.CREATE, CreateFlag.OVERWRITE);
    try (FSDataOutputStream out = context.create(FILE, flags, Options.CreateOpts.createParent())) {
      out.write(7);
    }
    return context.open(FILE);
  }

  private static void collectUntilOpen(int count) throws Exception {
    Runnable collect =
        () -> {
          while (Session.openCount() > count) {
            System.gc();
          }
        };
    CompletableFuture.runAsync(collect).get(60, TimeUnit.SECONDS);
  }

  @Test
  void whatWasDroppedIsGivenBack() throws Exception {
    int before = Session.openCount();
    for (int i = 0; i < 30; i++) {
      openAndForgetTheRest();
    }
    // The last one was made a moment ago, if not more.
    assertThat(Session.openCount()).isGreaterThan(before);
    collectUntilOpen(before);
  }

  @Test
  void aStreamKeepsWhatItNeeds() throws Exception {
    int before = Session.openCount();
    try (FSDataInputStream in = openAndForgetTheRest()) {
      collectUntilOpen(before + 1);
      System.gc();
      assertThat(in.read()).isEqualTo(7);
    }
  }
}
