package ebb.hadoop;

import java.io.IOException;

/**
 * A failure that Hadoop has no exception of its own for.
 *
 * <p>Its kind says what a program can do about it, and is a name of {@code docs/errors.md}. Its message is for people.
 */
public class EbbException extends IOException {
  private static final long serialVersionUID = 1;

  private final String kind;

  EbbException(String kind, String message) {
    super(message);
    this.kind = kind;
  }

  EbbException(String kind, String message, Throwable cause) {
    super(message, cause);
    this.kind = kind;
  }

  /** Name of the kind, such as {@code CrossDevice} or {@code NoSpace}. */
  public String getKind() {
    return kind;
  }
}
