import java.io.BufferedReader;
import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;

/**
 * How fast a Hadoop file system is for one program. A line for each figure: name, value, unit, and the processor seconds
 * that the whole machine spent, servers included.
 *
 * <p>Usage: FileSystemBench URI MIB FILES
 */
public final class FileSystemBench {
  private static final int MIB = 1 << 20;
  private static final int THREADS = 8;
  private static final int READ = 64 << 10;
  private static final int READS = 4000;
  /** Clock ticks of /proc/stat in a second. */
  private static final double TICKS = 100;

  private final FileSystem fs;
  private final Path folder;
  private final byte[] block = new byte[MIB];

  private FileSystemBench(FileSystem fs, Path folder) {
    this.fs = fs;
    this.folder = folder;
    new Random(7).nextBytes(block);
  }

  public static void main(String[] args) throws Exception {
    Configuration conf = new Configuration();
    // Without Hadoop's own checksum files, which a mount does not need.
    conf.set("fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem");
    Path folder = new Path(args[0]);
    FileSystem fs = FileSystem.newInstance(new URI(args[0]), conf);
    FileSystemBench bench = new FileSystemBench(fs, folder);
    fs.delete(folder, true);
    fs.mkdirs(folder);
    bench.bytes(Integer.parseInt(args[1]));
    bench.listing(Integer.parseInt(args[2]));
    fs.delete(folder, true);
    fs.close();
  }

  private void bytes(int mib) throws Exception {
    Path file = new Path(folder, "file");
    Span write = new Span();
    try (FSDataOutputStream out = fs.create(file, true)) {
      for (int i = 0; i < mib; i++) {
        out.write(block);
      }
      out.hsync();
    }
    write.report("write", mib, "MiB/s");
    Span read = new Span();
    byte[] array = new byte[MIB];
    try (FSDataInputStream in = fs.open(file)) {
      for (int i = 0; i < mib; i++) {
        in.readFully(array);
      }
    }
    read.report("read", mib, "MiB/s");
    check(java.util.Arrays.equals(array, block), "the last block is another one");
    positional("pread-1", file, mib, 1);
    positional("pread-8", file, mib, THREADS);
  }

  /** Reads at random places of one stream. */
  private void positional(String name, Path file, int mib, int threads) throws Exception {
    ExecutorService pool = Executors.newFixedThreadPool(threads);
    try (FSDataInputStream in = fs.open(file)) {
      Span span = new Span();
      List<Future<?>> running = new ArrayList<>();
      for (int t = 0; t < threads; t++) {
        Random random = new Random(t);
        running.add(pool.submit(() -> {
          byte[] out = new byte[READ];
          for (int i = 0; i < READS / threads; i++) {
            in.readFully((long) random.nextInt(mib * (MIB / READ)) * READ, out, 0, READ);
          }
          return null;
        }));
      }
      for (Future<?> one : running) {
        one.get();
      }
      span.report(name, READS, "reads/s");
    } finally {
      pool.shutdown();
    }
  }

  private void listing(int files) throws Exception {
    Path directory = new Path(folder, "many");
    fs.mkdirs(directory);
    ExecutorService pool = Executors.newFixedThreadPool(THREADS);
    List<Future<?>> running = new ArrayList<>();
    for (int t = 0; t < THREADS; t++) {
      int first = t;
      running.add(pool.submit(() -> {
        for (int i = first; i < files; i += THREADS) {
          try (FSDataOutputStream out = fs.create(new Path(directory, "f" + i), true)) {
            out.write(block, 0, 100);
          }
        }
        return null;
      }));
    }
    Span create = new Span();
    for (Future<?> one : running) {
      one.get();
    }
    pool.shutdown();
    create.report("create", files, "files/s");
    Span listed = new Span();
    int located = 0;
    RemoteIterator<LocatedFileStatus> statuses = fs.listLocatedStatus(directory);
    while (statuses.hasNext()) {
      located += statuses.next().getBlockLocations().length > 0 ? 1 : 0;
    }
    check(located == files, located + " of " + files + " files have locations");
    listed.report("list-located", files, "files/s");
    Span asked = new Span();
    for (FileStatus status : fs.listStatus(directory)) {
      check(fs.getFileBlockLocations(status, 0, status.getLen()).length > 0, "a file has no location");
    }
    asked.report("ask-each", files, "files/s");
  }

  private static void check(boolean holds, String complaint) throws IOException {
    if (!holds) {
      throw new IOException(complaint);
    }
  }

  /** Time, and processor time of the machine. */
  private static final class Span {
    private final long begin = System.nanoTime();
    private final double cpu = cpu();

    private static double cpu() {
      try (BufferedReader in = Files.newBufferedReader(Paths.get("/proc/stat"))) {
        String[] fields = in.readLine().trim().split("\\s+");
        // user, nice, system, irq, softirq; not idle and not waiting
        double ticks = 0;
        for (int field : new int[] {1, 2, 3, 6, 7}) {
          ticks += Double.parseDouble(fields[field]);
        }
        return ticks / TICKS;
      } catch (IOException e) {
        throw new java.io.UncheckedIOException(e);
      }
    }

    void report(String name, double count, String unit) {
      double seconds = (System.nanoTime() - begin) / 1e9;
      System.out.printf("%s %.1f %s %.2f%n", name, count / seconds, unit, cpu() - cpu);
    }
  }
}
