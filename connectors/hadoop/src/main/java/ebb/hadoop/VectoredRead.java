package ebb.hadoop;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;
import java.util.function.IntFunction;
import org.apache.hadoop.fs.ClosedIOException;
import org.apache.hadoop.fs.FSExceptionMessages;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.VectoredReadUtils;

/**
 * Reads of many ranges at once.
 *
 * <p>Small ranges that are near each other are read together through a direct buffer of ours and copied from it. Larger
 * ones are read for themselves, and straight into the caller's buffer if that is direct. Each range's future completes
 * when its own bytes are there.
 */
final class VectoredRead {
  /** Ranges with no more than this between them are read together. */
  static final int LARGEST_GAP = 128 << 10;
  /** Of ranges that are read together, and of a part of one that is read through a buffer of ours. */
  static final int LARGEST_READ = 4 << 20;

  /** For a range of this size, a call of its own is cheaper than a copy. */
  private static final int LARGE_RANGE = 512 << 10;
  private static final long KEPT_BYTES = 16L << 20;
  private static final DirectBuffers BUFFERS = new DirectBuffers(KEPT_BYTES);

  /** Asks for the length of a file of which so many bytes are needed. */
  interface Length {
    long of(long needed) throws IOException;
  }

  private final OpenFile file;
  private final Path path;
  private final ReadStatistics counts;
  private final Set<Part> pending = ConcurrentHashMap.newKeySet();
  private volatile boolean isClosed;

  VectoredRead(OpenFile file, Path path, ReadStatistics counts) {
    this.file = file;
    this.path = path;
    this.counts = counts;
  }

  void read(
      List<? extends FileRange> ranges, Length length, IntFunction<ByteBuffer> allocate, Consumer<ByteBuffer> release)
      throws IOException {
    Objects.requireNonNull(allocate, "no function that allocates");
    Objects.requireNonNull(release, "no function that releases");
    List<Part> parts = partsOf(check(ranges, length), allocate, release);
    List<List<Part>> groups = group(parts);
    long discarded = 0;
    List<Reads.Read> reads = new ArrayList<>();
    for (List<Part> group : groups) {
      discarded += addReads(group, reads);
    }
    counts.addVectored(parts.size(), reads.size(), discarded);
    pending.addAll(parts);
    for (Part part : parts) {
      part.range.setData(part.future);
      part.endIfEmpty();
    }
    for (Reads.Read read : reads) {
      Reads.SHARED.submit(read);
    }
    // The order counts: either `close` sees the parts, or this sees that it was closed.
    if (isClosed) {
      close();
    }
  }

  /** Whoever waits is told now. Buffers are released when the library has let go of them. */
  void close() {
    isClosed = true;
    for (Part part : pending) {
      part.future.completeExceptionally(
          new ClosedIOException(path.toString(), FSExceptionMessages.STREAM_IS_CLOSED));
    }
  }

  private List<FileRange> check(List<? extends FileRange> ranges, Length length) throws IOException {
    List<FileRange> sorted = new ArrayList<>();
    long end = 0;
    for (FileRange range : Objects.requireNonNull(ranges, "no ranges")) {
      VectoredReadUtils.validateRangeRequest(range);
      sorted.add(range);
      end = Math.max(end, range.getOffset() + range.getLength());
    }
    if (!sorted.isEmpty()) {
      long known = length.of(end);
      if (end > known) {
        throw new EOFException("a range ends at " + end + ", and " + path + " has " + known + " bytes");
      }
    }
    sorted.sort(Comparator.comparingLong(FileRange::getOffset));
    return sorted;
  }

  private List<Part> partsOf(List<FileRange> ranges, IntFunction<ByteBuffer> allocate, Consumer<ByteBuffer> release) {
    List<Part> parts = new ArrayList<>(ranges.size());
    boolean isComplete = false;
    try {
      for (FileRange range : ranges) {
        parts.add(new Part(range, allocate.apply(range.getLength()), release));
      }
      isComplete = true;
    } finally {
      if (!isComplete) {
        parts.forEach(part -> release.accept(part.buffer));
      }
    }
    return parts;
  }

  /** Puts neighbours together. Parts are sorted by their offsets, and may overlap. */
  static List<List<Part>> group(List<Part> parts) {
    List<List<Part>> groups = new ArrayList<>();
    List<Part> group = null;
    long start = 0;
    long end = 0;
    for (Part part : parts) {
      if (part.length() == 0) {
        continue;
      }
      boolean isNear =
          group != null
              && part.start() <= end + LARGEST_GAP
              && Math.max(end, part.end()) - start <= LARGEST_READ
              && part.length() < LARGE_RANGE
              && group.get(0).length() < LARGE_RANGE;
      if (!isNear) {
        group = new ArrayList<>();
        groups.add(group);
        start = part.start();
        end = start;
      }
      group.add(part);
      end = Math.max(end, part.end());
    }
    return groups;
  }

  /** Adds the reads for a group, and answers how many of their bytes nobody wants. */
  private long addReads(List<Part> group, List<Reads.Read> reads) {
    if (group.size() == 1 && group.get(0).isDirect()) {
      reads.add(new StraightRead(group.get(0)));
      return 0;
    }
    long start = group.get(0).start();
    long end = start;
    long wanted = 0;
    for (Part part : group) {
      wanted += part.end() - Math.max(part.start(), Math.min(end, part.end()));
      end = Math.max(end, part.end());
    }
    for (long at = start; at < end; at += LARGEST_READ) {
      reads.add(new SharedRead(at, (int) Math.min(LARGEST_READ, end - at), group));
    }
    return end - start - wanted;
  }

  /** One range of the caller. */
  final class Part {
    final FileRange range;
    final ByteBuffer buffer;
    final CompletableFuture<ByteBuffer> future = new CompletableFuture<>();

    private final int base;
    private final Consumer<ByteBuffer> release;
    private final AtomicInteger readsLeft = new AtomicInteger();
    private final AtomicReference<IOException> failure = new AtomicReference<>();

    Part(FileRange range, ByteBuffer buffer, Consumer<ByteBuffer> release) {
      this.range = range;
      this.buffer = buffer;
      this.base = buffer.position();
      this.release = release;
    }

    long start() {
      return range.getOffset();
    }

    long end() {
      return range.getOffset() + range.getLength();
    }

    int length() {
      return range.getLength();
    }

    boolean isDirect() {
      return buffer.isDirect() && !buffer.isReadOnly();
    }

    /** Copies what a buffer with the file's bytes from an offset on has of this range. */
    void copyFrom(ByteBuffer bytes, long offset, int count) {
      long from = Math.max(start(), offset);
      long until = Math.min(end(), offset + count);
      ByteBuffer source = bytes.duplicate();
      source.limit((int) (until - offset)).position((int) (from - offset));
      ByteBuffer target = buffer.duplicate();
      target.position(base + (int) (from - start()));
      target.put(source);
    }

    boolean isIn(long offset, int count) {
      return start() < offset + count && end() > offset;
    }

    void endIfEmpty() {
      if (length() == 0) {
        finish();
      }
    }

    void onRead(IOException readFailure) {
      if (readFailure != null) {
        failure.compareAndSet(null, readFailure);
      }
      if (readsLeft.decrementAndGet() == 0) {
        finish();
      }
    }

    private void finish() {
      pending.remove(this);
      if (failure.get() != null) {
        release.accept(buffer);
        future.completeExceptionally(failure.get());
        return;
      }
      buffer.limit(base + length()).position(base);
      // Counted before anybody can see the bytes, who might compare.
      counts.addRead(length());
      if (!future.complete(buffer)) {
        release.accept(buffer);
      }
    }
  }

  /** A read straight into the caller's buffer. */
  private final class StraightRead extends Reads.Read {
    private final Part part;

    StraightRead(Part part) {
      super(VectoredRead.this.file, part.start(), part.length());
      this.part = part;
      part.readsLeft.incrementAndGet();
    }

    @Override
    ByteBuffer buffer() {
      return part.buffer;
    }

    @Override
    int at() {
      return part.base;
    }

    @Override
    boolean isWanted() {
      return !part.future.isDone();
    }

    @Override
    void onDone() {
      part.onRead(null);
    }

    @Override
    void onFailed(IOException failure) {
      part.onRead(failure);
    }

    @Override
    void onLost(IOException failure) {
      part.future.completeExceptionally(failure);
    }
  }

  /** A read through a buffer of ours, for one range or several. */
  private final class SharedRead extends Reads.Read {
    private final List<Part> parts = new ArrayList<>();
    private ByteBuffer bytes;

    SharedRead(long offset, int length, List<Part> group) {
      super(VectoredRead.this.file, offset, length);
      for (Part part : group) {
        if (part.isIn(offset, length)) {
          parts.add(part);
          part.readsLeft.incrementAndGet();
        }
      }
    }

    @Override
    ByteBuffer buffer() {
      bytes = BUFFERS.acquire(length);
      return bytes;
    }

    @Override
    int at() {
      return 0;
    }

    @Override
    boolean isWanted() {
      return parts.stream().anyMatch(part -> !part.future.isDone());
    }

    @Override
    void onDone() {
      for (Part part : parts) {
        part.copyFrom(bytes, offset, length);
      }
      BUFFERS.release(bytes);
      parts.forEach(part -> part.onRead(null));
    }

    @Override
    void onFailed(IOException failure) {
      if (bytes != null) {
        BUFFERS.release(bytes);
      }
      parts.forEach(part -> part.onRead(failure));
    }

    @Override
    void onLost(IOException failure) {
      parts.forEach(part -> part.future.completeExceptionally(failure));
    }
  }
}
