package ebb.hadoop.cluster;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import ebb.hadoop.EbbFileSystem;
import java.io.InputStream;
import java.lang.reflect.Method;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class LoadingTest {
  private static final String RESOURCE = "native/linux-x86_64/libebb_java.so";

  @TempDir Path folder;

  /** Method: the class of the connector from two more loaders, with one file named for both, as in two web programs. */
  @Test
  void severalClassLoadersOfOneProcessHaveTheLibrary() throws Exception {
    URL inJar = EbbFileSystem.class.getClassLoader().getResource(RESOURCE);
    assumeTrue(inJar != null, "this build has no library in it");
    Path file = folder.resolve("libebb_java.so");
    try (InputStream in = inJar.openStream()) {
      Files.copy(in, file);
    }
    Path copies = Files.createDirectory(folder.resolve("copies"));
    System.setProperty("ebb.library", file.toString());
    System.setProperty("ebb.library.tmp", copies.toString());
    try {
      load();
      load();
    } finally {
      System.clearProperty("ebb.library");
      System.clearProperty("ebb.library.tmp");
    }
    // A copy is gone as soon as it is loaded.
    assertThat(copies.toFile().list()).isEmpty();
  }

  private static void load() throws Exception {
    URL classes = EbbFileSystem.class.getProtectionDomain().getCodeSource().getLocation();
    // Not closed: a library stays bound to its loader until that is collected.
    URLClassLoader loader = new URLClassLoader(new URL[] {classes}, null);
    Method load = loader.loadClass("ebb.hadoop.Library").getDeclaredMethod("loadOrExplain");
    load.setAccessible(true);
    load.invoke(null);
  }
}
