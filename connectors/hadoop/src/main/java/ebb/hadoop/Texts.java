package ebb.hadoop;

import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import org.apache.hadoop.fs.InvalidPathException;
import org.apache.hadoop.fs.Path;

/** Texts and paths as the library takes them: bytes of UTF-8. */
final class Texts {
  private Texts() {}

  static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  /** An absolute path's bytes. Half a character is refused: written as a question mark, it would be another file. */
  static byte[] bytes(Path path) {
    String text = path.toUri().getPath();
    try {
      ByteBuffer encoded = StandardCharsets.UTF_8.newEncoder().encode(CharBuffer.wrap(text));
      byte[] bytes = new byte[encoded.remaining()];
      encoded.get(bytes);
      return bytes;
    } catch (CharacterCodingException e) {
      throw new InvalidPathException(text, "it is not Unicode text");
    }
  }

  /** A name as text; null if it is none. A name is bytes in Ebb, as in POSIX, and a {@link Path} is text. */
  static String textOrNull(byte[] name) {
    try {
      return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(name)).toString();
    } catch (CharacterCodingException e) {
      return null;
    }
  }
}
