package ebb.hadoop.cluster;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.IntFunction;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.impl.FileRangeImpl;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

class ReadingTest {
  private static final byte[] DATA = TestCluster.bytes(20 << 20, 1);

  private static FileSystem fs;
  private static Path file;

  @BeforeAll
  static void writeFile() throws IOException {
    fs = TestCluster.newFileSystem();
    file = new Path(TestCluster.newFolder(fs, "reading"), "file");
    TestCluster.write(fs, file, DATA);
  }

  @AfterAll
  static void removeFile() throws IOException {
    fs.delete(file.getParent(), true);
    fs.close();
  }

  private static byte[] expected(long offset, int length) {
    return Arrays.copyOfRange(DATA, (int) offset, (int) offset + length);
  }

  /** An assertion on arrays looks at each byte as an object, and there are millions here. */
  private static void check(byte[] bytes, long offset) {
    assertThat(Arrays.equals(bytes, expected(offset, bytes.length))).as("bytes from " + offset + " on").isTrue();
  }

  private static byte[] content(ByteBuffer buffer) {
    byte[] bytes = new byte[buffer.remaining()];
    buffer.duplicate().get(bytes);
    return bytes;
  }

  /** Goal: reads at positions neither wait for each other nor move the stream. Method: eight threads, one stream. */
  @Test
  void manyThreadsReadAtPositionsOfOneStream() throws Exception {
    ExecutorService threads = Executors.newFixedThreadPool(8);
    try (FSDataInputStream in = fs.open(file)) {
      in.seek(12345);
      List<Future<Void>> readers = new ArrayList<>();
      for (int thread = 0; thread < 8; thread++) {
        Random random = new Random(thread);
        Callable<Void> reader =
            () -> {
              for (int i = 0; i < 100; i++) {
                int length = 1 + random.nextInt(300_000);
                int offset = random.nextInt(DATA.length - length);
                readAt(in, offset, length, i % 3);
              }
              return null;
            };
        readers.add(threads.submit(reader));
      }
      for (Future<Void> reader : readers) {
        reader.get();
      }
      assertThat(in.getPos()).isEqualTo(12345);
      assertThat(in.read()).isEqualTo(DATA[12345] & 0xff);
    } finally {
      threads.shutdownNow();
    }
  }

  private static void readAt(FSDataInputStream in, int offset, int length, int how) throws IOException {
    if (how == 0) {
      byte[] out = new byte[length];
      in.readFully(offset, out);
      check(out, offset);
    } else {
      ByteBuffer out = how == 1 ? ByteBuffer.allocateDirect(length + 7) : ByteBuffer.allocate(length + 7);
      out.position(3).limit(3 + length);
      in.readFully(offset, out);
      assertThat(out.remaining()).isZero();
      out.position(3);
      check(content(out), offset);
    }
  }

  @Test
  void readsOfAllSizesFollowEachOther() throws IOException {
    try (FSDataInputStream in = fs.open(file)) {
      Random random = new Random(5);
      int position = 0;
      for (int i = 0; i < 3000; i++) {
        int length = 1 + random.nextInt(random.nextInt(20) == 0 ? 400_000 : 5_000);
        ByteBuffer out = random.nextBoolean() ? ByteBuffer.allocateDirect(length) : ByteBuffer.allocate(length);
        int got = random.nextInt(3) == 0 ? in.read(out) : readArray(in, out);
        assertThat(got).isGreaterThan(0).isLessThanOrEqualTo(length);
        out.flip();
        check(content(out), position);
        position += got;
        if (random.nextInt(100) == 0) {
          position = random.nextInt(DATA.length / 2);
          in.seek(position);
        }
        assertThat(in.getPos()).isEqualTo(position);
      }
    }
  }

  private static int readArray(FSDataInputStream in, ByteBuffer out) throws IOException {
    byte[] array = new byte[out.remaining()];
    int got = in.read(array, 0, array.length);
    if (got > 0) {
      out.put(array, 0, got);
    }
    return got;
  }

  @Test
  void theEndOfTheFileIsTheEndForEveryKindOfRead() throws IOException {
    try (FSDataInputStream in = fs.open(file)) {
      byte[] out = new byte[100];
      assertThat(in.read(DATA.length - 10, out, 0, 100)).isEqualTo(10);
      assertThat(in.read(DATA.length, out, 0, 100)).isEqualTo(-1);
      assertThat(in.read(DATA.length + 5L, ByteBuffer.allocateDirect(100))).isEqualTo(-1);
      assertThat(in.read(DATA.length - 10, ByteBuffer.allocateDirect(100))).isEqualTo(10);
      in.seek(DATA.length);
      assertThat(in.read()).isEqualTo(-1);
      assertThat(in.read(out)).isEqualTo(-1);
      assertThat(in.read(ByteBuffer.allocate(10))).isEqualTo(-1);
      assertThat(in.read(new byte[0])).isZero();
    }
  }

  @Test
  void rangesAreReadIntoDirectAndHeapBuffers() throws Exception {
    List<IntFunction<ByteBuffer>> allocators =
        Arrays.asList(ByteBuffer::allocateDirect, ByteBuffer::allocate, length -> offCentre(length));
    for (IntFunction<ByteBuffer> allocator : allocators) {
      Random random = new Random(9);
      List<FileRange> ranges = new ArrayList<>();
      for (int i = 0; i < 60; i++) {
        // Small ones near each other, large ones, overlapping ones, an empty one.
        int length = i == 30 ? 0 : random.nextInt(i % 10 == 0 ? 6 << 20 : 40_000);
        ranges.add(FileRange.createFileRange(random.nextInt(DATA.length - length), length));
      }
      Collections.shuffle(ranges, random);
      try (FSDataInputStream in = fs.open(file)) {
        in.readVectored(ranges, allocator);
        for (FileRange range : ranges) {
          ByteBuffer buffer = range.getData().get();
          assertThat(buffer.remaining()).isEqualTo(range.getLength());
          check(content(buffer), range.getOffset());
        }
      }
    }
  }

  private static ByteBuffer offCentre(int length) {
    ByteBuffer buffer = ByteBuffer.allocateDirect(length + 20);
    buffer.position(7).limit(7 + length);
    return buffer;
  }

  /** Method: the thread that hands out reads is held at the first one until the stream was closed. */
  @Test
  void whoeverWaitsForARangeIsToldThatTheStreamWasClosedAndBuffersGoBack() throws Exception {
    CountDownLatch isClosed = new CountDownLatch(1);
    List<ByteBuffer> allocated = Collections.synchronizedList(new ArrayList<>());
    List<ByteBuffer> released = Collections.synchronizedList(new ArrayList<>());
    List<FileRange> ranges = new ArrayList<>();
    for (int i = 0; i < 100; i++) {
      ranges.add(new HoldingRange(i * 100_000L, 600_000, isClosed));
    }
    FSDataInputStream in = fs.open(file);
    in.readVectored(
        ranges,
        length -> {
          boolean isDirect = allocated.size() % 2 == 0;
          ByteBuffer buffer = isDirect ? ByteBuffer.allocateDirect(length) : ByteBuffer.allocate(length);
          allocated.add(buffer);
          return buffer;
        },
        released::add);
    // One is on its way to its owner, and holds the thread.
    await(() -> ranges.stream().anyMatch(range -> range.getData().isDone()));
    in.close();
    int failed = 0;
    for (FileRange range : ranges) {
      try {
        check(content(range.getData().get()), range.getOffset());
      } catch (ExecutionException e) {
        assertThat(e.getCause()).isInstanceOf(IOException.class).hasMessageContaining("closed");
        failed++;
      }
    }
    assertThat(failed).isEqualTo(99);
    isClosed.countDown();
    await(() -> released.size() == 99);
    assertThat(allocated).hasSize(100);
  }

  private static final class HoldingRange extends FileRangeImpl {
    private final CountDownLatch until;

    HoldingRange(long offset, int length, CountDownLatch until) {
      super(offset, length, null);
      this.until = until;
    }

    @Override
    public void setData(CompletableFuture<ByteBuffer> data) {
      super.setData(data);
      data.thenRun(
          () -> {
            try {
              until.await();
            } catch (InterruptedException e) {
              throw new IllegalStateException(e);
            }
          });
    }
  }

  private static void await(Callable<Boolean> condition) throws Exception {
    CompletableFuture<Void> end = CompletableFuture.runAsync(
        () -> {
          try {
            while (!condition.call()) {
              Thread.onSpinWait();
            }
          } catch (Exception e) {
            throw new IllegalStateException(e);
          }
        });
    end.get(60, TimeUnit.SECONDS);
  }

  @Test
  void aClosedStreamRefusesEverything() throws IOException {
    FSDataInputStream in = fs.open(file);
    in.close();
    in.close();
    assertThatThrownBy(in::read).isInstanceOf(IOException.class);
    assertThatThrownBy(() -> in.read(0, new byte[1], 0, 1)).isInstanceOf(IOException.class);
    assertThatThrownBy(() -> in.seek(1)).isInstanceOf(IOException.class);
    assertThatThrownBy(() -> in.readVectored(Collections.emptyList(), ByteBuffer::allocate))
        .isInstanceOf(IOException.class);
  }

  @Test
  void policiesAndHintsReadTheSameBytes() throws Exception {
    for (String policy : Arrays.asList("sequential", "random", "whole-file", "vector", "adaptive")) {
      try (FSDataInputStream in =
          fs.openFile(file).must("fs.option.openfile.read.policy", policy).build().get()) {
        in.setReadahead(0L);
        in.setDropBehind(true);
        byte[] out = new byte[1 << 20];
        in.readFully(out);
        check(out, 0);
        in.setReadahead(null);
        in.unbuffer();
        in.readFully(5 << 20, out);
        check(out, 5 << 20);
      }
    }
  }
}
