package ebb.hadoop;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.function.Supplier;

/**
 * Loads {@code libebb_java.so}: from the property {@code ebb.library}, from {@code java.library.path}, from where a
 * Debian package puts it, and last from the jar.
 *
 * <p>A JVM binds a library's file to one class loader, and a container of Tomcat or Spark may have several. A file that
 * is bound already is loaded from a copy of its own. Copies have unique names, since JVMs that share one overwrite the
 * code of each other; they are deleted once they are loaded, which the running process does not notice.
 */
final class Library {
  static final String FILE = "libebb_java.so";
  /** A file. If it is named, no other place is tried: another version would be a surprise. */
  static final String PROPERTY = "ebb.library";
  /** A directory for copies, tried before the usual ones. It must allow programs to be executed. */
  static final String COPIES = "ebb.library.tmp";

  private static boolean loaded;

  private Library() {}

  /** Loads the library, or says of each place why it did not come from there. */
  static synchronized void loadOrExplain() throws IOException {
    try {
      load();
    } catch (UnsatisfiedLinkError e) {
      throw new IOException(e.getMessage(), e);
    }
  }

  /** Loads the library once for this class loader. A failed attempt is repeated by the next call. */
  static synchronized void load() {
    if (loaded) {
      return;
    }
    // The library may look for classes while it is loaded, and so come back to here through `Native`.
    loaded = true;
    Attempt attempt = new Attempt(System::load, copyDirectories());
    String named = System.getProperty(PROPERTY, "");
    loaded = named.isEmpty()
        ? attempt.loadAny(candidates(), isInJar())
        : attempt.loadFile(Paths.get(named).toAbsolutePath());
    if (!loaded) {
      throw new UnsatisfiedLinkError(attempt.explain());
    }
    String trouble = versionTrouble(ownVersion(), Library::libraryVersion);
    if (!trouble.isEmpty()) {
      loaded = false;
      throw new UnsatisfiedLinkError(trouble);
    }
  }

  /** Why a library of this version is not used: its methods may take other arguments. Empty: it is used. */
  static String versionTrouble(String jar, Supplier<String> library) {
    String found;
    try {
      found = library.get();
    } catch (UnsatisfiedLinkError e) {
      found = "unknown, an older one";
    }
    return found.equals(jar)
        ? ""
        : "the jar has version " + jar + ", and the " + FILE + " that was found has version " + found + ": set the property "
            + PROPERTY + " to the file of the jar's version";
  }

  private static String libraryVersion() {
    return new String(Native.version(), StandardCharsets.UTF_8);
  }

  private static String ownVersion() {
    try (InputStream in = Library.class.getResourceAsStream("version")) {
      return new String(in.readAllBytes(), StandardCharsets.UTF_8).trim();
    } catch (IOException e) {
      throw new UncheckedIOException("the jar does not tell its version", e);
    }
  }

  /** Of the machine, as the folders in the jar are named. */
  static String platform() {
    String machine = System.getProperty("os.arch", "");
    return "linux-" + (machine.equals("amd64") ? "x86_64" : machine);
  }

  private static boolean isInJar() {
    return Library.class.getResource("/native/" + platform() + "/" + FILE) != null;
  }

  private static Set<Path> candidates() {
    Set<Path> files = new LinkedHashSet<>();
    for (String directory : System.getProperty("java.library.path", "").split(File.pathSeparator)) {
      if (!directory.isEmpty()) {
        addIfThere(files, Paths.get(directory).toAbsolutePath().resolve(FILE));
      }
    }
    try (DirectoryStream<Path> directories = Files.newDirectoryStream(Paths.get("/usr/lib"), Files::isDirectory)) {
      directories.forEach(directory -> addIfThere(files, directory.resolve(FILE)));
    } catch (IOException e) {
      // A machine without /usr/lib has no package of ours either.
    }
    return files;
  }

  private static void addIfThere(Set<Path> files, Path file) {
    if (Files.exists(file)) {
      files.add(file);
    }
  }

  private static Set<Path> copyDirectories() {
    Set<Path> directories = new LinkedHashSet<>();
    for (String property : new String[] {COPIES, "java.io.tmpdir", "user.dir"}) {
      String directory = System.getProperty(property);
      if (directory != null && !directory.isEmpty()) {
        directories.add(Paths.get(directory).toAbsolutePath());
      }
    }
    return directories;
  }

  /** How a file becomes a part of this process. */
  interface Linker {
    void link(String file);
  }

  private interface Source {
    void copyTo(Path copy) throws IOException;
  }

  /** One attempt at all places, which remembers what was wrong with each. */
  static final class Attempt {
    private final Linker linker;
    private final Set<Path> directories;
    private final List<String> reasons = new ArrayList<>();

    Attempt(Linker linker, Set<Path> directories) {
      this.linker = linker;
      this.directories = directories;
    }

    boolean loadAny(Set<Path> files, boolean isInJar) {
      for (Path file : files) {
        if (loadFile(file)) {
          return true;
        }
      }
      String inJar = "native/" + platform() + "/" + FILE + " in the jar";
      if (!isInJar) {
        reasons.add(inJar + ": is not there");
        return false;
      }
      return loadCopy(inJar, Library::copyFromJar);
    }

    String explain() {
      // In one line: Hadoop's shell shows no other.
      return "cannot load Ebb's library; set the property " + PROPERTY + " to the file " + FILE
          + " of this version. Tried: " + String.join("; ", reasons);
    }

    boolean loadFile(Path file) {
      try {
        linker.link(file.toString());
        return true;
      } catch (UnsatisfiedLinkError e) {
        reasons.add(file + ": " + e.getMessage());
        boolean isBound = String.valueOf(e.getMessage()).contains("another classloader");
        return isBound
            && loadCopy(file.toString(), copy -> Files.copy(file, copy, StandardCopyOption.REPLACE_EXISTING));
      }
    }

    /** Directories are tried in turn: the first may be mounted such that nothing in it can be executed. */
    private boolean loadCopy(String name, Source source) {
      for (Path directory : directories) {
        Path copy = null;
        try {
          copy = Files.createTempFile(directory, "libebb_java-", ".so");
          source.copyTo(copy);
          linker.link(copy.toString());
          return true;
        } catch (UnsatisfiedLinkError | IOException e) {
          reasons.add(name + ", copied to " + directory + ": " + e);
        } finally {
          deleteQuietly(copy);
        }
      }
      return false;
    }
  }

  private static void copyFromJar(Path copy) throws IOException {
    try (InputStream in = Library.class.getResourceAsStream("/native/" + platform() + "/" + FILE)) {
      Files.copy(in, copy, StandardCopyOption.REPLACE_EXISTING);
    }
  }

  private static void deleteQuietly(Path copy) {
    if (copy != null) {
      // A copy that stays costs some megabytes and no more.
      copy.toFile().delete();
    }
  }
}
