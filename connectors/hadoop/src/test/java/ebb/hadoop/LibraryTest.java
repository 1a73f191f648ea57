package ebb.hadoop;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.IOException;
import java.lang.reflect.Method;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class LibraryTest {
  @TempDir Path folder;

  private final List<String> linked = new ArrayList<>();

  private Set<Path> files(String... names) throws IOException {
    Set<Path> files = new LinkedHashSet<>();
    for (String name : names) {
      files.add(Files.write(folder.resolve(name), new byte[] {1, 2, 3}));
    }
    return files;
  }

  private Set<Path> copies(String... names) throws IOException {
    Set<Path> directories = new LinkedHashSet<>();
    for (String name : names) {
      directories.add(Files.createDirectories(folder.resolve(name)));
    }
    return directories;
  }

  @Test
  void theFirstFileThatLoadsIsTaken() throws IOException {
    Library.Attempt attempt = new Library.Attempt(linked::add, copies("tmp"));
    assertThat(attempt.loadAny(files("a.so", "b.so"), true)).isTrue();
    assertThat(linked).containsExactly(folder.resolve("a.so").toString());
  }

  @Test
  void theReasonOfEachPlaceIsTold() throws IOException {
    Library.Attempt attempt =
        new Library.Attempt(
            file -> {
              throw new UnsatisfiedLinkError(file + " wants GLIBC_2.99");
            },
            copies("tmp"));
    assertThat(attempt.loadAny(files("a.so", "b.so"), false)).isFalse();
    assertThat(attempt.explain())
        .contains("a.so wants GLIBC_2.99", "b.so wants GLIBC_2.99", "in the jar: is not there", Library.PROPERTY);
  }

  @Test
  void aLibraryOfAnotherVersionIsRefusedAndBothVersionsAreTold() {
    assertThat(Library.versionTrouble("1.2.0", () -> "1.2.0")).isEmpty();
    assertThat(Library.versionTrouble("1.2.0", () -> "1.1.9")).contains("1.2.0", "1.1.9", Library.PROPERTY);
    // As the JVM says it of a method that the library does not have.
    assertThat(
            Library.versionTrouble(
                "1.2.0",
                () -> {
                  throw new UnsatisfiedLinkError("'byte[] ebb.hadoop.Native.version()'");
                }))
        .contains("an older one");
  }

  @Test
  void aFileOfAnotherClassLoaderIsLoadedFromItsOwnCopyWhichIsDeleted() throws IOException {
    Library.Linker linker =
        file -> {
          linked.add(file);
          if (file.endsWith("a.so")) {
            throw new UnsatisfiedLinkError("Native Library " + file + " already loaded in another classloader");
          }
          assertThat(Path.of(file)).exists();
        };
    assertThat(new Library.Attempt(linker, copies("tmp")).loadAny(files("a.so"), false)).isTrue();
    assertThat(new Library.Attempt(linker, copies("tmp")).loadAny(files("a.so"), false)).isTrue();
    assertThat(linked).hasSize(4);
    assertThat(linked.get(1)).isNotEqualTo(linked.get(3));
    assertThat(Files.list(folder.resolve("tmp"))).isEmpty();
  }

  @Test
  void aDirectoryInWhichNothingCanBeExecutedIsPassedOver() throws IOException {
    Library.Linker linker =
        file -> {
          linked.add(file);
          if (!file.contains("good")) {
            throw new UnsatisfiedLinkError(
                file.endsWith("a.so") ? "already loaded in another classloader" : "failed to map segment");
          }
        };
    Library.Attempt attempt = new Library.Attempt(linker, copies("noexec", "good"));
    assertThat(attempt.loadAny(files("a.so"), false)).isTrue();
    assertThat(linked.get(2)).startsWith(folder.resolve("good").toString());
    assertThat(attempt.explain()).contains("noexec: java.lang.UnsatisfiedLinkError: failed to map segment");
  }

  @Test
  void aDirectoryThatIsNotThereIsAReasonToo() throws IOException {
    Library.Linker linker =
        file -> {
          throw new UnsatisfiedLinkError("already loaded in another classloader");
        };
    Library.Attempt attempt =
        new Library.Attempt(linker, Collections.singleton(folder.resolve("missing")));
    assertThat(attempt.loadAny(files("a.so"), false)).isFalse();
    assertThat(attempt.explain()).contains(folder.resolve("missing").toString(), "NoSuchFile");
  }

  @Test
  void aFailureIsAnIoExceptionWithTheRealReasonEachTime() throws Exception {
    String before = System.getProperty(Library.PROPERTY);
    System.setProperty(Library.PROPERTY, "/nonexistent/" + Library.FILE);
    // A class of its own, since the one of the other tests may have loaded the library.
    URL classes = Library.class.getProtectionDomain().getCodeSource().getLocation();
    try (URLClassLoader fresh = new URLClassLoader(new URL[] {classes}, null)) {
      Method load = fresh.loadClass(Library.class.getName()).getDeclaredMethod("loadOrExplain");
      load.setAccessible(true);
      for (int i = 0; i < 2; i++) {
        assertThatThrownBy(() -> load.invoke(null))
            .hasCauseInstanceOf(IOException.class)
            .hasStackTraceContaining("/nonexistent/" + Library.FILE);
      }
    } finally {
      if (before == null) {
        System.clearProperty(Library.PROPERTY);
      } else {
        System.setProperty(Library.PROPERTY, before);
      }
    }
  }
}
