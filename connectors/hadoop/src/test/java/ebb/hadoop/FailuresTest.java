package ebb.hadoop;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InterruptedIOException;
import org.apache.hadoop.fs.ClusterStorageCapacityExceededException;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.PathIsNotEmptyDirectoryException;
import org.apache.hadoop.security.AccessControlException;
import org.junit.jupiter.api.Test;

class FailuresTest {
  private static void check(String kind, Class<? extends IOException> type) {
    IOException failure = Failures.of(kind, "what failed: /a/b");
    assertThat(failure).isInstanceOf(type);
    assertThat(failure.getMessage()).isEqualTo("what failed: /a/b");
  }

  @Test
  void kindsBecomeWhatHadoopsProgramsCatchAndKeepTheirSentence() {
    check("NotFound", FileNotFoundException.class);
    check("Exists", FileAlreadyExistsException.class);
    check("NotDirectory", ParentNotDirectoryException.class);
    check("NotEmpty", PathIsNotEmptyDirectoryException.class);
    check("AccessDenied", AccessControlException.class);
    check("NotPermitted", AccessControlException.class);
    check("QuotaExceeded", ClusterStorageCapacityExceededException.class);
    check("Interrupted", InterruptedIOException.class);
    check("CrossDevice", EbbException.class);
    check("SomeKindOfANewerLibrary", EbbException.class);
  }

  @Test
  void aKindWithoutAnExceptionOfItsOwnCanBeAskedFor() {
    IOException failure = Failures.of("NoSpace", "full");
    assertThat(Failures.isKind(failure, "NoSpace")).isTrue();
    assertThat(Failures.isKind(failure, "Invalid")).isFalse();
    assertThat(Failures.isKind(new IOException("full"), "NoSpace")).isFalse();
  }

  @Test
  void aNameBelowAFileIsNotFound() {
    IOException below = Failures.of("NotDirectory", "/a is a file");
    FileNotFoundException notFound = Failures.notFound(below);
    assertThat(notFound.getMessage()).isEqualTo("/a is a file");
    assertThat(notFound.getCause()).isSameAs(below);
    assertThat(Failures.notFound(notFound)).isSameAs(notFound);
  }
}
