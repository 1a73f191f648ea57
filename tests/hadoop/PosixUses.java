import java.io.IOException;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.util.Random;
import java.util.function.LongSupplier;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;

/**
 * What a program does with a large file beside reading it whole, on HDFS by Hadoop's interface and on a mount by
 * POSIX's. The file has records of 100 bytes. Prints the seconds of the part.
 *
 * <p>Usage: PosixUses make|update|append|random|hot URI|PATH MIB COUNT
 */
public final class PosixUses {
  private static final int RECORD = 100;
  private static final int PIECE = 1 << 20;
  private static final int READ = 4096;
  private static final int COPIES = 2;
  /** The reads of "hot" stay within so many pieces of so many bytes, all over the file. */
  private static final int HOT_PIECES = 256;
  private static final int HOT_PIECE = 64 << 10;

  private final long records;
  private final int count;
  private final Random random = new Random(11);

  private PosixUses(int mib, int count) {
    this.records = (long) mib * (1 << 20) / RECORD;
    this.count = count;
  }

  public static void main(String[] args) throws Exception {
    PosixUses uses = new PosixUses(Integer.parseInt(args[2]), Integer.parseInt(args[3]));
    boolean posix = !args[1].contains("://");
    Work work = posix ? uses.new Mount(args[1]) : uses.new Hdfs(args[1]);
    long begin = System.nanoTime();
    switch (args[0]) {
      case "make":
        work.make();
        break;
      case "update":
        work.update();
        break;
      case "append":
        work.append();
        break;
      case "random":
        work.read(uses::anywhere);
        break;
      case "hot":
        work.read(uses::hot);
        break;
      default:
        throw new IllegalArgumentException("no part " + args[0]);
    }
    System.out.printf("seconds %.3f%n", (System.nanoTime() - begin) / 1e9);
    if (args[0].equals("update")) {
      work.check();
    }
  }

  /** The same places for both. */
  private long[] places(long bytes, int unit) {
    return random.longs(count, 0, bytes / unit).map(place -> place * unit).sorted().toArray();
  }

  private long anywhere() {
    return random.nextInt((int) (records * RECORD / READ)) * (long) READ;
  }

  private long hot() {
    long distance = records * RECORD / HOT_PIECES / READ * READ;
    return random.nextInt(HOT_PIECES) * distance + random.nextInt(HOT_PIECE / READ) * (long) READ;
  }

  private static byte[] record(long at) {
    byte[] record = new byte[RECORD];
    ByteBuffer.wrap(record).putLong(0, ~at);
    return record;
  }

  private interface Work {
    void make() throws IOException;

    void update() throws IOException;

    void append() throws IOException;

    void read(LongSupplier place) throws IOException;

    void check() throws IOException;
  }

  /** HDFS changes no byte that is written: who wants to writes the file anew. */
  private final class Hdfs implements Work {
    private final FileSystem fs;
    private final Path file;

    Hdfs(String uri) throws Exception {
      Configuration conf = new Configuration();
      conf.setInt("dfs.replication", COPIES);
      fs = FileSystem.get(new URI(uri), conf);
      file = new Path(uri);
    }

    @Override
    public void make() throws IOException {
      byte[] piece = new byte[PIECE];
      try (FSDataOutputStream out = fs.create(file, true)) {
        for (long left = records * RECORD; left > 0; left -= piece.length) {
          random.nextBytes(piece);
          out.write(piece, 0, (int) Math.min(left, piece.length));
        }
        out.hsync();
      }
    }

    @Override
    public void update() throws IOException {
      long[] places = places(records * RECORD, RECORD);
      Path anew = file.suffix(".new");
      byte[] buffer = new byte[RECORD * 10_000];
      try (FSDataInputStream in = fs.open(file);
          FSDataOutputStream out = fs.create(anew, true)) {
        int next = 0;
        for (long at = 0; at < records * RECORD; at += buffer.length) {
          int len = (int) Math.min(buffer.length, records * RECORD - at);
          in.readFully(at, buffer, 0, len);
          for (; next < places.length && places[next] < at + len; next++) {
            System.arraycopy(record(places[next]), 0, buffer, (int) (places[next] - at), RECORD);
          }
          out.write(buffer, 0, len);
        }
        out.hsync();
      }
      // Atomic, as a mount's rename is.
      org.apache.hadoop.fs.FileContext.getFileContext(file.toUri(), fs.getConf())
          .rename(anew, file, Options.Rename.OVERWRITE);
    }

    @Override
    public void append() throws IOException {
      try (FSDataOutputStream out = fs.append(file)) {
        for (int i = 0; i < count; i++) {
          out.write(record(i));
          out.hsync();
        }
      }
    }

    @Override
    public void read(LongSupplier place) throws IOException {
      byte[] buffer = new byte[READ];
      try (FSDataInputStream in = fs.open(file)) {
        for (int i = 0; i < count; i++) {
          in.readFully(place.getAsLong(), buffer);
        }
      }
    }

    @Override
    public void check() throws IOException {
      random.setSeed(11);
      byte[] found = new byte[RECORD];
      try (FSDataInputStream in = fs.open(file)) {
        for (long place : places(records * RECORD, RECORD)) {
          in.readFully(place, found);
          expect(place, found);
        }
      }
    }
  }

  private final class Mount implements Work {
    private final java.nio.file.Path file;

    Mount(String path) {
      file = Paths.get(path);
    }

    @Override
    public void make() throws IOException {
      byte[] piece = new byte[PIECE];
      try (FileChannel out = FileChannel.open(file, StandardOpenOption.CREATE, StandardOpenOption.WRITE)) {
        for (long left = records * RECORD; left > 0; left -= piece.length) {
          random.nextBytes(piece);
          write(out, ByteBuffer.wrap(piece, 0, (int) Math.min(left, piece.length)));
        }
        out.force(true);
      }
    }

    @Override
    public void update() throws IOException {
      try (FileChannel out = FileChannel.open(file, StandardOpenOption.WRITE)) {
        for (long place : places(records * RECORD, RECORD)) {
          out.position(place);
          write(out, ByteBuffer.wrap(record(place)));
        }
        out.force(true);
      }
    }

    @Override
    public void append() throws IOException {
      try (FileChannel out = FileChannel.open(file, StandardOpenOption.APPEND)) {
        for (int i = 0; i < count; i++) {
          write(out, ByteBuffer.wrap(record(i)));
          out.force(true);
        }
      }
    }

    @Override
    public void read(LongSupplier place) throws IOException {
      ByteBuffer buffer = ByteBuffer.allocateDirect(READ);
      try (FileChannel in = FileChannel.open(file, StandardOpenOption.READ)) {
        for (int i = 0; i < count; i++) {
          buffer.clear();
          if (in.read(buffer, place.getAsLong()) != READ) {
            throw new IOException("a short read within the file");
          }
        }
      }
    }

    @Override
    public void check() throws IOException {
      random.setSeed(11);
      ByteBuffer found = ByteBuffer.allocate(RECORD);
      try (FileChannel in = FileChannel.open(file, StandardOpenOption.READ)) {
        for (long place : places(records * RECORD, RECORD)) {
          found.clear();
          in.read(found, place);
          expect(place, found.array());
        }
      }
    }

    private void write(FileChannel out, ByteBuffer bytes) throws IOException {
      while (bytes.hasRemaining()) {
        out.write(bytes);
      }
    }
  }

  private static void expect(long place, byte[] found) throws IOException {
    if (!java.util.Arrays.equals(found, record(place))) {
      throw new IOException("the record at " + place + " was not changed");
    }
  }
}
