package ebb.hadoop;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.apache.hadoop.fs.InvalidPathHandleException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathHandle;

/**
 * A path, and the file that was there.
 *
 * <p>A file that was renamed is not found by it, since files are opened by their paths.
 */
final class EbbPathHandle implements PathHandle {
  private static final long serialVersionUID = 1;
  private static final byte FORMAT = 1;

  private final Path path;
  private final String etag;
  private final boolean mayChange;

  /** @param mayChange whether the path may lead to a file of other contents by the time it is opened */
  EbbPathHandle(Path path, String etag, boolean mayChange) {
    this.path = path;
    this.etag = etag;
    this.mayChange = mayChange;
  }

  /** Reads the bytes of a handle of this class. */
  static EbbPathHandle of(PathHandle handle) throws IOException {
    if (handle instanceof EbbPathHandle) {
      return (EbbPathHandle) handle;
    }
    ByteBuffer in = handle.bytes();
    try {
      if (in.get() == FORMAT) {
        boolean mayChange = in.get() == 1;
        return new EbbPathHandle(new Path(readText(in)), readText(in), mayChange);
      }
    } catch (RuntimeException e) {
      throw new IOException("these bytes are not a handle of a file of Ebb", e);
    }
    throw new IOException("this is not a handle of a file of Ebb");
  }

  Path path() {
    return path;
  }

  /** Refuses a file that is not the one of the handle. */
  void check(Answer.Status status) throws InvalidPathHandleException {
    if (!mayChange && !etag.equals(Statuses.etag(status))) {
      throw new InvalidPathHandleException(path + " is not what it was when the handle was made");
    }
  }

  @Override
  public ByteBuffer bytes() {
    byte[] pathBytes = Texts.bytes(path.toString());
    byte[] etagBytes = Texts.bytes(etag);
    ByteBuffer out = ByteBuffer.allocate(10 + pathBytes.length + etagBytes.length);
    out.put(FORMAT).put((byte) (mayChange ? 1 : 0));
    out.putInt(pathBytes.length).put(pathBytes).putInt(etagBytes.length).put(etagBytes);
    out.flip();
    return out;
  }

  private static String readText(ByteBuffer in) {
    byte[] bytes = new byte[in.getInt()];
    in.get(bytes);
    return new String(bytes, StandardCharsets.UTF_8);
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof PathHandle && bytes().equals(((PathHandle) other).bytes());
  }

  @Override
  public int hashCode() {
    return bytes().hashCode();
  }

  @Override
  public String toString() {
    return "EbbPathHandle of " + path;
  }
}
