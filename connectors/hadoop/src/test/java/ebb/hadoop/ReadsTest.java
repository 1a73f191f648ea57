package ebb.hadoop;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

class ReadsTest {
  private static final int MIB = 1 << 20;

  private final Library library = new Library();
  private final Reads reads = new Reads(library);

  @Test
  void eachReadEndsByItself() throws Exception {
    Read first = new Read(10);
    Read second = new Read(20);
    reads.submit(first);
    reads.submit(second);
    library.answer(library.begun.get(1), 20);
    assertThat(second.end.get(10, TimeUnit.SECONDS)).isEqualTo("done");
    assertThat(first.end).isNotDone();
    library.answer(library.begun.get(0), 10);
    assertThat(first.end.get(10, TimeUnit.SECONDS)).isEqualTo("done");
  }

  @Test
  void aFailureHasTheLibrarysReason() {
    Read read = new Read(10);
    reads.submit(read);
    library.answer(library.begun.get(0), -1);
    assertFails(read, IOException.class, "the disk is gone");
  }

  @Test
  void aShortReadIsTheEndOfTheFile() {
    Read read = new Read(10);
    reads.submit(read);
    library.answer(library.begun.get(0), 4);
    assertFails(read, EOFException.class, "6 bytes");
  }

  @Test
  void whatCannotBeginFailsAndTakesNoPlace() throws Exception {
    library.refusal = new IOException("this file is closed");
    for (int i = 0; i < 10; i++) {
      Read read = new Read(20 * MIB);
      reads.submit(read);
      assertFails(read, IOException.class, "this file is closed");
    }
    library.refusal = null;
    Read read = new Read(20 * MIB);
    reads.submit(read);
    library.answer(library.begun.get(0), 20 * MIB);
    assertThat(read.end.get(10, TimeUnit.SECONDS)).isEqualTo("done");
  }

  @Test
  void onlySoManyBytesAreOnTheirWay() throws Exception {
    List<Read> all = new ArrayList<>();
    for (int i = 0; i < 5; i++) {
      all.add(new Read(10 * MIB));
      reads.submit(all.get(i));
    }
    assertThat(library.begun).hasSize(3);
    library.answer(library.begun.get(0), 10 * MIB);
    all.get(0).end.get(10, TimeUnit.SECONDS);
    library.answer(library.waitForBegun(4), 10 * MIB);
    all.get(3).end.get(10, TimeUnit.SECONDS);
    library.answer(library.waitForBegun(5), 10 * MIB);
    all.get(4).end.get(10, TimeUnit.SECONDS);
  }

  @Test
  void aLargeReadGoesAlone() throws Exception {
    Read large = new Read(100 * MIB);
    reads.submit(large);
    reads.submit(new Read(1));
    assertThat(library.begun).hasSize(1);
    library.answer(library.begun.get(0), 100 * MIB);
    assertThat(large.end.get(10, TimeUnit.SECONDS)).isEqualTo("done");
    library.waitForBegun(2);
  }

  @Test
  void whatNobodyWantsIsNotBegun() {
    Read read = new Read(10);
    read.end.complete("cancelled");
    reads.submit(read);
    assertThat(library.begun).isEmpty();
    assertThat(read.failed).isTrue();
  }

  @Test
  void whoeverWaitsIsToldWhenTheLibraryBreaksAndTheNextTriesAgain() throws Exception {
    Read read = new Read(10);
    reads.submit(read);
    library.break_();
    assertThatThrownBy(() -> read.end.get(10, TimeUnit.SECONDS)).hasStackTraceContaining("broken");
    assertThat(read.failed).isFalse();
    Read next = new Read(10);
    reads.submit(next);
    library.answer(library.waitForBegun(2), 10);
    assertThat(next.end.get(10, TimeUnit.SECONDS)).isEqualTo("done");
  }

  private static void assertFails(Read read, Class<? extends Throwable> type, String message) {
    assertThatThrownBy(() -> read.end.get(10, TimeUnit.SECONDS))
        .isInstanceOf(ExecutionException.class)
        .hasCauseInstanceOf(type)
        .hasMessageContaining(message);
    assertThat(read.failed).isTrue();
  }

  private static final class Read extends Reads.Read {
    final CompletableFuture<String> end = new CompletableFuture<>();
    volatile boolean failed;

    Read(int length) {
      super(null, 0, length);
    }

    @Override
    ByteBuffer buffer() {
      return ByteBuffer.allocate(0);
    }

    @Override
    int at() {
      return 0;
    }

    @Override
    boolean isWanted() {
      return !end.isDone();
    }

    @Override
    void onDone() {
      end.complete("done");
    }

    @Override
    void onFailed(IOException failure) {
      failed = true;
      end.completeExceptionally(failure);
    }

    @Override
    void onLost(IOException failure) {
      end.completeExceptionally(failure);
    }
  }

  /** Answers when the test says so. */
  private static final class Library implements Reads.Source {
    final List<Long> begun = Collections.synchronizedList(new ArrayList<>());
    volatile IOException refusal;
    private final BlockingQueue<long[]> answers = new LinkedBlockingQueue<>();

    void answer(long ticket, long got) {
      answers.add(new long[] {ticket, got});
    }

    void break_() {
      answers.add(new long[0]);
    }

    /** The ticket of the read that is begun as the n-th. */
    long waitForBegun(int n) throws InterruptedException {
      synchronized (begun) {
        while (begun.size() < n) {
          begun.wait(10_000);
        }
      }
      return begun.get(n - 1);
    }

    @Override
    public void begin(Reads.Read read, ByteBuffer buffer, long ticket) throws IOException {
      if (refusal != null) {
        throw refusal;
      }
      synchronized (begun) {
        begun.add(ticket);
        begun.notifyAll();
      }
    }

    @Override
    public long[] next() {
      try {
        long[] answer = answers.take();
        if (answer.length == 0) {
          throw new IllegalStateException("broken");
        }
        return answer;
      } catch (InterruptedException e) {
        throw new IllegalStateException(e);
      }
    }

    @Override
    public void failure(long ticket) throws IOException {
      throw new IOException("the disk is gone");
    }
  }
}
