package ebb.hadoop.cluster;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/** The cluster that the tests run against. Its directory and a URI on it are properties of the build. */
public final class TestCluster {
  private TestCluster() {}

  /** Without a path: {@code ebb://NAME}. */
  public static URI uri() {
    URI whole = URI.create(property("ebb.test.uri"));
    return URI.create(whole.getScheme() + "://" + whole.getAuthority());
  }

  /** The folder below which suites work, such as {@code /test}. */
  public static String folder() {
    String path = URI.create(property("ebb.test.uri")).getPath();
    return path.length() <= 1 ? "/test" : path.replaceAll("/+$", "");
  }

  /** Adds what a program's {@code core-site.xml} would have. */
  public static Configuration configure(Configuration conf) {
    conf.set("fs.defaultFS", uri().toString());
    conf.set("fs.ebb.cluster." + uri().getAuthority(), property("ebb.test.cluster"));
    conf.set("fs.AbstractFileSystem.ebb.impl", "ebb.hadoop.EbbFs");
    return conf;
  }

  public static Configuration conf() {
    return configure(new Configuration());
  }

  public static FileSystem fileSystem() throws IOException {
    return FileSystem.get(uri(), conf());
  }

  /** One of its own, which the caller closes. */
  public static FileSystem newFileSystem() throws IOException {
    return FileSystem.newInstance(uri(), conf());
  }

  public static FileContext fileContext() throws IOException {
    return FileContext.getFileContext(uri(), conf());
  }

  /** A new empty folder for a test. */
  public static Path newFolder(FileSystem fs, String name) throws IOException {
    Path folder = fs.makeQualified(new Path(folder(), name));
    fs.delete(folder, true);
    fs.mkdirs(folder);
    return folder;
  }

  public static void write(FileSystem fs, Path path, byte[] data) throws IOException {
    try (FSDataOutputStream out = fs.create(path, true)) {
      out.write(data);
    }
  }

  /** Bytes that do not repeat. */
  public static byte[] bytes(int count, long seed) {
    byte[] bytes = new byte[count];
    new Random(seed).nextBytes(bytes);
    return bytes;
  }

  /** What {@code ebb} prints, run as a process of its own: another client of the cluster. Fails if it does. */
  public static byte[] ebb(String... arguments) throws IOException {
    List<String> command = new ArrayList<>();
    command.add(property("ebb.test.program"));
    command.addAll(Arrays.asList(arguments));
    return run(new ProcessBuilder(command));
  }

  /** Makes a user known to the cluster that this machine need not know. */
  public static void addUser(String name) {
    try {
      ebb("user", "add", "--force", name + "=54321");
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Runs {@code sh}, for names that are no text. {@code $EBB} is the program. */
  public static byte[] shell(String script) throws IOException {
    ProcessBuilder builder = new ProcessBuilder("sh", "-c", script);
    builder.environment().put("EBB", property("ebb.test.program"));
    return run(builder);
  }

  private static byte[] run(ProcessBuilder builder) throws IOException {
    builder.environment().put("EBB_DIR", property("ebb.test.cluster"));
    Process process = builder.redirectError(ProcessBuilder.Redirect.INHERIT).start();
    process.getOutputStream().close();
    byte[] printed = process.getInputStream().readAllBytes();
    try {
      if (process.waitFor() != 0) {
        throw new IOException(builder.command() + " ended with " + process.exitValue());
      }
    } catch (InterruptedException e) {
      throw new IOException(e);
    }
    return printed;
  }

  private static String property(String name) {
    String value = System.getProperty(name, "");
    if (value.isEmpty()) {
      throw new IllegalStateException("set " + name + ": README.md shows how these tests are run");
    }
    return value;
  }
}
