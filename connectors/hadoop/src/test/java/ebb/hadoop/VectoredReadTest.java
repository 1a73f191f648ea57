package ebb.hadoop;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.Test;

class VectoredReadTest {
  private static final int KIB = 1 << 10;
  private static final int MIB = 1 << 20;

  private final VectoredRead vectored =
      new VectoredRead(null, new Path("/a"), new ReadStatistics(() -> new FileSystem.Statistics("ebb")));

  private List<List<Long>> group(int... offsetsAndLengths) {
    List<VectoredRead.Part> parts = new ArrayList<>();
    for (int i = 0; i < offsetsAndLengths.length; i += 2) {
      FileRange range = FileRange.createFileRange(offsetsAndLengths[i], offsetsAndLengths[i + 1]);
      parts.add(vectored.new Part(range, ByteBuffer.allocate(0), buffer -> {}));
    }
    return VectoredRead.group(parts).stream()
        .map(group -> group.stream().map(VectoredRead.Part::start).collect(Collectors.toList()))
        .collect(Collectors.toList());
  }

  @Test
  void neighboursAreReadTogether() {
    assertThat(group(0, KIB, KIB, KIB, 129 * KIB + KIB, KIB)).containsExactly(Arrays.asList(0L, 1024L, 130L * KIB));
  }

  @Test
  void farOnesAreReadApart() {
    assertThat(group(0, KIB, KIB + VectoredRead.LARGEST_GAP + 1, KIB)).hasSize(2);
    assertThat(group(0, KIB, KIB + VectoredRead.LARGEST_GAP, KIB)).hasSize(1);
  }

  @Test
  void noReadGrowsTooLarge() {
    int[] ranges = new int[64 * 2];
    for (int i = 0; i < 64; i++) {
      ranges[2 * i] = i * 256 * KIB;
      ranges[2 * i + 1] = 256 * KIB;
    }
    assertThat(group(ranges)).hasSize(4).allSatisfy(group -> assertThat(group).hasSize(16));
  }

  @Test
  void aLargeRangeIsReadForItself() {
    assertThat(group(0, KIB, KIB, MIB, KIB + MIB, KIB)).hasSize(3);
  }

  @Test
  void overlappingRangesAreReadOnce() {
    assertThat(group(0, 100, 0, 100, 50, 100)).hasSize(1);
  }

  @Test
  void emptyRangesAreNotRead() {
    assertThat(group(5, 0)).isEmpty();
  }

  @Test
  void aRangeBehindTheEndIsRefusedBeforeAnythingIsAllocated() {
    List<FileRange> ranges = Arrays.asList(FileRange.createFileRange(0, 10), FileRange.createFileRange(95, 10));
    assertThatThrownBy(
            () ->
                vectored.read(
                    ranges,
                    needed -> 100,
                    length -> {
                      throw new AssertionError("allocated");
                    },
                    buffer -> {}))
        .isInstanceOf(EOFException.class)
        .hasMessageContaining("105");
  }

  @Test
  void buffersGoBackIfTheCallersAllocationFails() {
    List<ByteBuffer> released = new ArrayList<>();
    List<FileRange> ranges = Arrays.asList(FileRange.createFileRange(0, 10), FileRange.createFileRange(50, 20));
    assertThatThrownBy(
            () ->
                vectored.read(
                    ranges,
                    needed -> 100,
                    length -> {
                      if (length == 20) {
                        throw new IllegalStateException("no memory");
                      }
                      return ByteBuffer.allocate(length);
                    },
                    released::add))
        .isInstanceOf(IllegalStateException.class);
    assertThat(released).hasSize(1);
  }

  @Test
  void aPartTakesItsBytesOutOfALargerRead() {
    ByteBuffer read = ByteBuffer.wrap(new byte[] {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
    ByteBuffer target = ByteBuffer.allocate(6);
    target.position(1);
    VectoredRead.Part part = vectored.new Part(FileRange.createFileRange(103, 5), target, buffer -> {});
    part.copyFrom(read, 100, 6);
    part.copyFrom(ByteBuffer.wrap(new byte[] {66, 77, 88}), 106, 3);
    assertThat(target.array()).isEqualTo(new byte[] {0, 3, 4, 5, 66, 77});
    assertThat(target.position()).isEqualTo(1);
  }

  @Test
  void anEmptyRangeIsThereAtOnce() throws IOException {
    FileRange range = FileRange.createFileRange(5, 0);
    vectored.read(Arrays.asList(range), needed -> 100, ByteBuffer::allocate, buffer -> {});
    assertThat(range.getData().join().remaining()).isZero();
  }

  @Test
  void buffersAreKeptUpToALimit() {
    DirectBuffers buffers = new DirectBuffers(3 * 64 * KIB);
    ByteBuffer small = buffers.acquire(10);
    ByteBuffer large = buffers.acquire(65 * KIB);
    ByteBuffer larger = buffers.acquire(MIB);
    assertThat(small.isDirect()).isTrue();
    assertThat(large.capacity()).isEqualTo(128 * KIB);
    buffers.release(small);
    buffers.release(large);
    buffers.release(larger);
    assertThat(buffers.keptBytes()).isEqualTo(3 * 64 * KIB);
    assertThat(buffers.acquire(100 * KIB)).isSameAs(large);
    assertThat(buffers.acquire(100 * KIB)).isNotSameAs(large);
  }
}
