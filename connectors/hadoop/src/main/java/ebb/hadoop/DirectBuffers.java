package ebb.hadoop;

import java.nio.ByteBuffer;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.atomic.AtomicLong;

/** Direct buffers for reads whose caller has none. Some are kept, since making one costs as much as filling it. */
final class DirectBuffers {
  private static final int SMALLEST = 64 << 10;

  private final long mostBytes;
  private final AtomicLong keptBytes = new AtomicLong();
  private final ConcurrentLinkedDeque<ByteBuffer> kept = new ConcurrentLinkedDeque<>();

  DirectBuffers(long mostBytes) {
    this.mostBytes = mostBytes;
  }

  /** A buffer of at least this capacity. */
  ByteBuffer acquire(int length) {
    for (ByteBuffer buffer : kept) {
      if (buffer.capacity() >= length && kept.remove(buffer)) {
        keptBytes.addAndGet(-buffer.capacity());
        buffer.clear();
        return buffer;
      }
    }
    int capacity = SMALLEST;
    while (capacity < length) {
      capacity *= 2;
    }
    return ByteBuffer.allocateDirect(capacity);
  }

  /** Nobody may use the buffer any more, the library included. */
  void release(ByteBuffer buffer) {
    if (keptBytes.addAndGet(buffer.capacity()) > mostBytes) {
      keptBytes.addAndGet(-buffer.capacity());
    } else {
      kept.addFirst(buffer);
    }
  }

  long keptBytes() {
    return keptBytes.get();
  }
}
