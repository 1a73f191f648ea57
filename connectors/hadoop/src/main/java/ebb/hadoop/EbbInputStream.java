package ebb.hadoop;

import java.io.EOFException;
import java.io.IOException;
import java.lang.ref.Cleaner;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Objects;
import java.util.function.Consumer;
import java.util.function.IntFunction;
import java.util.function.Supplier;
import org.apache.hadoop.fs.ByteBufferPositionedReadable;
import org.apache.hadoop.fs.ByteBufferReadable;
import org.apache.hadoop.fs.CanSetDropBehind;
import org.apache.hadoop.fs.CanSetReadahead;
import org.apache.hadoop.fs.CanUnbuffer;
import org.apache.hadoop.fs.ClosedIOException;
import org.apache.hadoop.fs.FSExceptionMessages;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.statistics.IOStatistics;
import org.apache.hadoop.fs.statistics.IOStatisticsSource;
import org.apache.hadoop.util.StringUtils;

/**
 * Reads a file.
 *
 * <p>Reads at a position take no lock and move nothing: any number of threads may make them at once. The others move
 * the position and take turns. Small ones are served from a buffer, since each call of the library has a price.
 */
final class EbbInputStream extends FSInputStream
    implements ByteBufferReadable,
        ByteBufferPositionedReadable,
        CanUnbuffer,
        CanSetReadahead,
        CanSetDropBehind,
        StreamCapabilities,
        IOStatisticsSource {
  private final OpenFile file;
  private final Cleaner.Cleanable cleanable;
  private final Path path;
  private final ReadStatistics counts;
  private final VectoredRead vectored;
  /** As far as is known: another writer may have added to it. */
  private volatile long length;
  private volatile boolean isClosed;

  // Guarded by this.
  private long position;
  private final ReadBuffer buffer = new ReadBuffer();

  EbbInputStream(
      OpenFile file, Path path, Answer.Status status, Supplier<FileSystem.Statistics> fileSystemStatistics) {
    this.file = file;
    this.path = path;
    this.length = status.size;
    this.counts = new ReadStatistics(fileSystemStatistics);
    this.vectored = new VectoredRead(file, path, counts);
    this.cleanable = Dropped.watch(this, file);
  }

  // --- At the position ----------------------------------------------------------------------------------------------

  @Override
  public synchronized int read() throws IOException {
    checkOpen();
    if (buffer.isEmptyAt(position) && !buffer.fill(file.number(), position)) {
      return -1;
    }
    int value = buffer.byteAt(position++);
    counts.addRead(1);
    return value;
  }

  @Override
  public synchronized int read(byte[] out, int at, int count) throws IOException {
    checkOpen();
    Objects.checkFromIndexSize(at, count, out.length);
    if (count == 0) {
      return 0;
    }
    int got;
    if (buffer.isEmptyAt(position) && count >= ReadBuffer.LARGEST) {
      got = Native.read(file.number(), position, out, at, count);
    } else if (buffer.isEmptyAt(position) && !buffer.fill(file.number(), position)) {
      got = -1;
    } else {
      got = buffer.copy(position, out, at, count);
    }
    return moved(got);
  }

  @Override
  public synchronized int read(ByteBuffer out) throws IOException {
    checkOpen();
    if (!out.hasRemaining()) {
      return 0;
    }
    int got;
    if (buffer.isEmptyAt(position) && out.remaining() >= ReadBuffer.SMALLEST) {
      got = readInto(position, out);
    } else if (buffer.isEmptyAt(position) && !buffer.fill(file.number(), position)) {
      got = -1;
    } else {
      got = buffer.copy(position, out);
    }
    return moved(got);
  }

  private int moved(int got) {
    if (got > 0) {
      position += got;
      counts.addRead(got);
    }
    return got;
  }

  @Override
  public synchronized void seek(long target) throws IOException {
    checkOpen();
    if (target < 0) {
      throw new EOFException(FSExceptionMessages.NEGATIVE_SEEK + ": " + target + " in " + path);
    }
    if (target > knownLength(target)) {
      throw new EOFException(
          FSExceptionMessages.CANNOT_SEEK_PAST_EOF + ": " + target + " of " + length + " in " + path);
    }
    if (target != position) {
      counts.addSeek(target - position);
      position = target;
    }
  }

  @Override
  public synchronized long getPos() {
    return position;
  }

  @Override
  public boolean seekToNewSource(long target) throws IOException {
    // Which copy is read is the library's choice; it takes another one by itself when one fails.
    checkOpen();
    return false;
  }

  @Override
  public synchronized long skip(long count) throws IOException {
    checkOpen();
    if (count <= 0) {
      return 0;
    }
    long target = Math.min(position + count, knownLength(position + count));
    long skipped = Math.max(0, target - position);
    position += skipped;
    return skipped;
  }

  @Override
  public synchronized int available() throws IOException {
    checkOpen();
    return (int) Math.min(Integer.MAX_VALUE, Math.max(0, length - position));
  }

  // --- At any position ----------------------------------------------------------------------------------------------

  @Override
  public int read(long from, byte[] out, int at, int count) throws IOException {
    checkOpen();
    validatePositionedReadArgs(from, out, at, count);
    Objects.checkFromIndexSize(at, count, out.length);
    if (count == 0) {
      return 0;
    }
    return counts.counted(Native.read(file.number(), from, out, at, count));
  }

  @Override
  public int read(long from, ByteBuffer out) throws IOException {
    checkOpen();
    if (from < 0) {
      throw new EOFException("position is negative: " + from + " in " + path);
    }
    if (!out.hasRemaining()) {
      return 0;
    }
    return counts.counted(readInto(from, out));
  }

  @Override
  public void readFully(long from, ByteBuffer out) throws IOException {
    long at = from;
    while (out.hasRemaining()) {
      int got = read(at, out);
      if (got < 0) {
        throw new EOFException(FSExceptionMessages.EOF_IN_READ_FULLY + " " + path + " at " + at);
      }
      at += got;
    }
  }

  /** Reads as much as fits, and moves the buffer's position behind it. */
  private int readInto(long from, ByteBuffer out) throws IOException {
    int at = out.position();
    int count = out.remaining();
    int got;
    if (out.isDirect() && !out.isReadOnly()) {
      got = Native.readDirect(file.number(), from, out, at, count);
    } else {
      got = Native.read(file.number(), from, out.array(), out.arrayOffset() + at, count);
    }
    if (got > 0) {
      out.position(at + got);
    }
    return got;
  }

  @Override
  public void readVectored(List<? extends FileRange> ranges, IntFunction<ByteBuffer> allocate) throws IOException {
    readVectored(ranges, allocate, buffer -> {});
  }

  @Override
  public void readVectored(
      List<? extends FileRange> ranges, IntFunction<ByteBuffer> allocate, Consumer<ByteBuffer> release)
      throws IOException {
    checkOpen();
    vectored.read(ranges, this::knownLength, allocate, release);
  }

  @Override
  public int minSeekForVectorReads() {
    return VectoredRead.LARGEST_GAP;
  }

  @Override
  public int maxReadSizeForVectorReads() {
    return VectoredRead.LARGEST_READ;
  }

  // --- The stream itself --------------------------------------------------------------------------------------------

  /** The file's length, asked for again if it is less than what the caller needs. */
  private long knownLength(long needed) throws IOException {
    if (needed > length) {
      length = Native.length(file.number());
    }
    return length;
  }

  private void checkOpen() throws IOException {
    if (isClosed) {
      throw new ClosedIOException(path.toString(), FSExceptionMessages.STREAM_IS_CLOSED);
    }
  }

  @Override
  public void unbuffer() {
    synchronized (this) {
      buffer.drop();
    }
    counts.addUnbuffered();
  }

  /** 0 turns reading ahead off, null leaves it to how the file is read. */
  @Override
  public void setReadahead(Long bytes) throws IOException {
    checkOpen();
    int advice = Native.ADVICE_NORMAL;
    if (bytes != null) {
      advice = bytes == 0 ? Native.ADVICE_RANDOM : Native.ADVICE_SEQUENTIAL;
    }
    Native.advise(file.number(), advice);
  }

  /** A hint about caches of the host. Ebb's own cache keeps what was read once for a short time anyway. */
  @Override
  public void setDropBehind(Boolean isDropped) throws IOException {
    checkOpen();
  }

  @Override
  public boolean hasCapability(String capability) {
    switch (StringUtils.toLowerCase(capability)) {
      case StreamCapabilities.READBYTEBUFFER:
      case StreamCapabilities.PREADBYTEBUFFER:
      case StreamCapabilities.UNBUFFER:
      case StreamCapabilities.READAHEAD:
      case StreamCapabilities.DROPBEHIND:
      case StreamCapabilities.VECTOREDIO:
      case StreamCapabilities.IOSTATISTICS:
      case StreamCapabilities.IOSTATISTICS_CONTEXT:
        return true;
      default:
        return false;
    }
  }

  @Override
  public IOStatistics getIOStatistics() {
    return counts.statistics();
  }

  @Override
  public void close() throws IOException {
    synchronized (this) {
      if (isClosed) {
        return;
      }
      isClosed = true;
      buffer.drop();
    }
    vectored.close();
    counts.publish();
    file.close();
    cleanable.clean();
  }

  @Override
  public String toString() {
    return "EbbInputStream of " + path;
  }
}
