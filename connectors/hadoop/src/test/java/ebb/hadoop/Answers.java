package ebb.hadoop;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;

/** Writes answers as the library does, for tests. */
final class Answers {
  private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
  private final DataOutputStream out = new DataOutputStream(bytes);

  Answers u8(int value) {
    return write(() -> out.writeByte(value));
  }

  Answers i32(int value) {
    return write(() -> out.writeInt(value));
  }

  Answers i64(long value) {
    return write(() -> out.writeLong(value));
  }

  Answers bytes(byte[] value) {
    return write(
        () -> {
          out.writeInt(value.length);
          out.write(value);
        });
  }

  Answers text(String value) {
    return bytes(value.getBytes(StandardCharsets.UTF_8));
  }

  /** A status with inode 7 and 3 copies, of ada and staff. */
  Answers status(int kind, long size, long modifiedNs, int mode, String target) {
    return u8(kind).i64(7).i64(size).i64(modifiedNs).i64(2_000_000).i32(mode)
        .text("ada").text("staff").i32(3).i64(64 << 20).u8(0).text(target);
  }

  Answers copy(String host, String rack, int state, long wakesInMs) {
    return text(host).text(rack).text("v-" + host).u8(state).i64(wakesInMs);
  }

  byte[] done() {
    return bytes.toByteArray();
  }

  private interface Part {
    void write() throws IOException;
  }

  private Answers write(Part part) {
    try {
      part.write();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return this;
  }
}
