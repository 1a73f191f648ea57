package ebb.hadoop;

import java.io.IOException;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/**
 * Reads the answers of {@link Native}: numbers are big-endian, and texts have their length before them.
 *
 * <p>An answer that ends early or has bytes left comes from a library of another version than this jar.
 */
final class Answer {
  private final ByteBuffer in;

  private Answer(byte[] bytes) {
    in = ByteBuffer.wrap(bytes);
  }

  static Status status(byte[] bytes) throws IOException {
    return readWhole(bytes, Answer::readStatus);
  }

  static Opened opened(byte[] bytes) throws IOException {
    return readWhole(bytes, in -> new Opened(in.in.getLong(), in.readStatus()));
  }

  static Page page(byte[] bytes) throws IOException {
    return readWhole(bytes, Answer::readPage);
  }

  static List<Location> locations(byte[] bytes) throws IOException {
    return readWhole(bytes, in -> in.readList(in.in.getInt(), Answer::readLocation));
  }

  static List<Host> hosts(byte[] bytes) throws IOException {
    return readWhole(bytes, in -> in.readList(in.in.getInt(), each -> new Host(each.readText(), each.readText())));
  }

  static Dataset dataset(byte[] bytes) throws IOException {
    return readWhole(bytes, Dataset::new);
  }

  /** An access control list, one entry a line. It is the whole answer. */
  static List<String> acl(byte[] bytes) {
    List<String> lines = new ArrayList<>();
    for (String line : new String(bytes, StandardCharsets.UTF_8).split("\n")) {
      if (!line.trim().isEmpty()) {
        lines.add(line.trim());
      }
    }
    return lines;
  }

  /** Names that end with a zero byte. They are the whole answer. */
  static List<String> names(byte[] bytes) {
    List<String> names = new ArrayList<>();
    for (String name : new String(bytes, StandardCharsets.UTF_8).split("\0")) {
      if (!name.isEmpty()) {
        names.add(name);
      }
    }
    return names;
  }

  private interface Part<T> {
    T read(Answer in);
  }

  private static <T> T readWhole(byte[] bytes, Part<T> part) throws IOException {
    Answer answer = new Answer(bytes);
    try {
      T value = part.read(answer);
      if (!answer.in.hasRemaining()) {
        return value;
      }
    } catch (BufferUnderflowException | IllegalArgumentException e) {
      throw new IOException(otherVersion(bytes), e);
    }
    throw new IOException(otherVersion(bytes));
  }

  private static String otherVersion(byte[] bytes) {
    return "an answer of " + bytes.length + " bytes does not fit: is " + Library.FILE
        + " of another version than the jar?";
  }

  private byte[] readBytes() {
    int length = in.getInt();
    if (length < 0 || length > in.remaining()) {
      throw new BufferUnderflowException();
    }
    byte[] bytes = new byte[length];
    in.get(bytes);
    return bytes;
  }

  private String readText() {
    return new String(readBytes(), StandardCharsets.UTF_8);
  }

  private <T> List<T> readList(int count, Part<T> part) {
    // Each element has at least one byte, so that a wrong count cannot take more memory than the answer has.
    if (count < 0 || count > in.remaining()) {
      throw new BufferUnderflowException();
    }
    List<T> list = new ArrayList<>(count);
    for (int i = 0; i < count; i++) {
      list.add(part.read(this));
    }
    return list;
  }

  private Status readStatus() {
    return new Status(this);
  }

  private Page readPage() {
    long next = in.getLong();
    return new Page(next, readList(in.getInt(), Answer::readEntry));
  }

  private Entry readEntry() {
    byte[] name = readBytes();
    Status status = readStatus();
    int count = in.getInt();
    return new Entry(name, status, count == -1 ? null : readList(count, Answer::readLocation));
  }

  private Location readLocation() {
    long offset = in.getLong();
    long length = in.getLong();
    return new Location(offset, length, readList(in.getInt(), Copy::new));
  }

  /** Attributes of a file, directory or link. */
  static final class Status {
    static final int FILE = 0;
    static final int DIRECTORY = 1;
    static final int LINK = 2;

    final int kind;
    final long inode;
    final long size;
    final long modifiedNs;
    final long accessedNs;
    final int mode;
    final String owner;
    final String group;
    final int copies;
    final long metablockSize;
    final boolean hasAcl;
    /** Empty unless it is a link. */
    final byte[] target;

    private Status(Answer from) {
      kind = from.in.get();
      inode = from.in.getLong();
      size = from.in.getLong();
      modifiedNs = from.in.getLong();
      accessedNs = from.in.getLong();
      mode = from.in.getInt();
      owner = from.readText();
      group = from.readText();
      copies = from.in.getInt();
      metablockSize = from.in.getLong();
      hasAcl = (from.in.get() & 1) != 0;
      target = from.readBytes();
    }

    boolean isDirectory() {
      return kind == DIRECTORY;
    }

    boolean isLink() {
      return kind == LINK;
    }
  }

  /** A file that was opened: its number and how it was then. */
  static final class Opened {
    final long file;
    final Status status;

    private Opened(long file, Status status) {
      this.file = file;
      this.status = status;
    }
  }

  /** A part of a listing. */
  static final class Page {
    /** What the next page is asked for with; 0: there is none. */
    final long next;
    final List<Entry> entries;

    private Page(long next, List<Entry> entries) {
      this.next = next;
      this.entries = entries;
    }
  }

  /** One name of a listing. */
  static final class Entry {
    /** As the file system has it: bytes, which need not be text. Empty for the listing of a file. */
    final byte[] name;
    final Status status;
    /** Null: not asked for, or not a file. */
    final List<Location> locations;

    private Entry(byte[] name, Status status, List<Location> locations) {
      this.name = name;
      this.status = status;
      this.locations = locations;
    }
  }

  /** A part of a file with its copies. */
  static final class Location {
    final long offset;
    final long length;
    final List<Copy> copies;

    Location(long offset, long length, List<Copy> copies) {
      this.offset = offset;
      this.length = length;
      this.copies = copies;
    }
  }

  /** One copy of a part of a file. */
  static final class Copy {
    /** Serves now. */
    static final int SERVES = 0;
    /** Sleeps, and the power plan wakes it. */
    static final int SLEEPS = 1;
    /** The power plan keeps it off. */
    static final int OFF = 2;

    final String host;
    final String rack;
    final String storage;
    final int state;
    /** -1: not known. */
    final long wakesInMs;

    private Copy(Answer from) {
      this(from.readText(), from.readText(), from.readText(), from.in.get(), from.in.getLong());
    }

    Copy(String host, String rack, String storage, int state, long wakesInMs) {
      this.host = host;
      this.rack = rack;
      this.storage = storage;
      this.state = state;
      this.wakesInMs = wakesInMs;
    }
  }

  /** A host of the cluster. */
  static final class Host {
    final String name;
    final String rack;

    Host(String name, String rack) {
      this.name = name;
      this.rack = rack;
    }
  }

  /** A dataset: quotas are 0 if there are none; used bytes are those of one copy. */
  static final class Dataset {
    final String root;
    final long quotaBytes;
    final long quotaInodes;
    final long usedBytes;
    final long usedInodes;
    final int trashSeconds;
    final int copies;
    final long metablockSize;
    final long blockSize;

    private Dataset(Answer from) {
      root = from.readText();
      quotaBytes = from.in.getLong();
      quotaInodes = from.in.getLong();
      usedBytes = from.in.getLong();
      usedInodes = from.in.getLong();
      trashSeconds = from.in.getInt();
      copies = from.in.getInt();
      metablockSize = from.in.getLong();
      blockSize = from.in.getLong();
    }
  }
}
