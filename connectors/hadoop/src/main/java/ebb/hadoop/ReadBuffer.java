package ebb.hadoop;

import java.io.IOException;
import java.nio.ByteBuffer;

/**
 * Bytes of a file around a stream's position.
 *
 * <p>Each refill that goes on where the last one ended doubles it. One anywhere else begins small again, since a reader
 * that jumps throws most of it away.
 */
final class ReadBuffer {
  static final int LARGEST = 128 << 10;
  static final int SMALLEST = 16 << 10;

  private byte[] bytes = {};
  private long start;
  private int count;
  private int nextSize = SMALLEST;

  boolean isEmptyAt(long position) {
    return position < start || position >= start + count;
  }

  /** Reads from this position on. False: the file ends there. */
  boolean fill(long file, long position) throws IOException {
    nextSize = position == start + count ? Math.min(LARGEST, nextSize * 2) : SMALLEST;
    if (bytes.length < nextSize) {
      bytes = new byte[nextSize];
    }
    // What a failed read leaves in the array must not be taken for the file's bytes.
    start = position;
    count = 0;
    int got = Native.read(file, position, bytes, 0, nextSize);
    count = Math.max(0, got);
    return got > 0;
  }

  int byteAt(long position) {
    return bytes[(int) (position - start)] & 0xff;
  }

  int copy(long position, byte[] out, int at, int most) {
    int from = (int) (position - start);
    int copied = Math.min(most, count - from);
    System.arraycopy(bytes, from, out, at, copied);
    return copied;
  }

  int copy(long position, ByteBuffer out) {
    int from = (int) (position - start);
    int copied = Math.min(out.remaining(), count - from);
    out.put(bytes, from, copied);
    return copied;
  }

  void drop() {
    bytes = new byte[0];
    start = 0;
    count = 0;
    nextSize = SMALLEST;
  }
}
