package ebb.hadoop;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.TreeMap;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.Test;

/** Hadoop's rules, on a tree that renames as POSIX does. */
class RenamesTest {
  private final Tree tree = new Tree();
  private final Renames renames = new Renames(tree);

  private static Path path(String path) {
    return new Path("ebb://test" + path);
  }

  private boolean rename(String source, String target) throws IOException {
    return renames.renameOrRefuse(path(source), path(target));
  }

  private void renameWithOptions(String source, String target, boolean replace) throws IOException {
    renames.renameWithOptions(path(source), path(target), replace);
  }

  @Test
  void aNameThatIsFreeIsTaken() throws IOException {
    tree.add("/a").add("/d/");
    assertThat(rename("/a", "/b")).isTrue();
    assertThat(rename("/b", "/d/b")).isTrue();
    assertThat(tree.names()).isEqualTo("/ /d/ /d/b");
  }

  @Test
  void aDirectoryThatExistsIsMovedInto() throws IOException {
    tree.add("/a/").add("/a/x").add("/d/").add("/link=/d");
    assertThat(rename("/a", "/d")).isTrue();
    assertThat(tree.names()).isEqualTo("/ /d/ /d/a/ /d/a/x /link=/d");
    tree.add("/b");
    assertThat(rename("/b", "/link")).isTrue();
    assertThat(tree.names()).contains("/link/b");
    tree.add("/c/").add("/c/e");
    assertThat(rename("/c/e", "/")).isTrue();
    assertThat(tree.names()).contains(" /e");
  }

  @Test
  void whatWouldOverwriteIsRefused() throws IOException {
    tree.add("/a").add("/b").add("/d/").add("/d/a");
    String before = tree.names();
    assertThat(rename("/a", "/b")).isFalse();
    assertThat(rename("/a", "/d")).isFalse();
    assertThat(tree.names()).isEqualTo(before);
  }

  @Test
  void whatIsMissingIsRefused() throws IOException {
    tree.add("/a").add("/d/");
    assertThat(rename("/missing", "/b")).isFalse();
    assertThat(rename("/missing", "/d")).isFalse();
    assertThat(rename("/missing", "/missing")).isFalse();
    assertThat(rename("/a", "/missing/b")).isFalse();
    assertThat(rename("/d", "/a/b")).isFalse();
  }

  @Test
  void aFileMayKeepItsNameAndADirectoryMayNot() throws IOException {
    tree.add("/d/").add("/d/a").add("/d/e/");
    assertThat(rename("/d/a", "/d/a")).isTrue();
    assertThat(rename("/d/a", "/d")).isTrue();
    assertThat(rename("/d/e", "/d/e")).isFalse();
    assertThat(rename("/d/e", "/d")).isFalse();
    assertThat(tree.names()).isEqualTo("/ /d/ /d/a /d/e/");
  }

  @Test
  void nothingGoesBelowItself() throws IOException {
    tree.add("/d/").add("/d/e/");
    assertThat(rename("/d", "/d/e")).isFalse();
    assertThat(rename("/d", "/d/new")).isFalse();
    assertThat(rename("/", "/d")).isFalse();
    assertThatThrownBy(() -> renameWithOptions("/d", "/d/new", true)).hasMessageContaining("below");
    assertThat(Renames.isBelow(path("/dd"), path("/d"))).isFalse();
  }

  @Test
  void withOptionsFailuresAreThrown() {
    tree.add("/a").add("/b").add("/d/").add("/e/").add("/full/").add("/full/x").add("/link=/b");
    assertThatThrownBy(() -> renameWithOptions("/missing", "/c", false)).isInstanceOf(FileNotFoundException.class);
    assertThatThrownBy(() -> renameWithOptions("/a", "/missing/c", false)).isInstanceOf(FileNotFoundException.class);
    assertThatThrownBy(() -> renameWithOptions("/a", "/b/c", false)).isInstanceOf(ParentNotDirectoryException.class);
    assertThatThrownBy(() -> renameWithOptions("/a", "/b", false)).isInstanceOf(FileAlreadyExistsException.class);
    assertThatThrownBy(() -> renameWithOptions("/a", "/a", true)).isInstanceOf(FileAlreadyExistsException.class);
    assertThatThrownBy(() -> renameWithOptions("/link", "/b", true)).isInstanceOf(FileAlreadyExistsException.class);
    assertThatThrownBy(() -> renameWithOptions("/a", "/d", false)).hasMessageContaining("both be directories");
    assertThatThrownBy(() -> renameWithOptions("/", "/d", true)).hasMessageContaining("root");
  }

  @Test
  void withOptionsAFileIsReplacedAndNothingIsMovedInto() throws IOException {
    tree.add("/a").add("/b").add("/d/").add("/e/");
    renameWithOptions("/a", "/b", true);
    renameWithOptions("/d", "/e", true);
    assertThat(tree.names()).isEqualTo("/ /b /e/");
  }

  @Test
  void anotherDatasetIsNamedAndNotTakenForAMissingFile() {
    tree.add("/a").add("/other/");
    assertThatThrownBy(() -> rename("/a", "/other/a"))
        .isInstanceOf(EbbException.class)
        .hasMessageContaining("ebb://test/a (dataset /)")
        .hasMessageContaining("ebb://test/other/a (dataset /other)");
    assertThatThrownBy(() -> rename("/a", "/other")).isInstanceOf(EbbException.class);
    assertThatThrownBy(() -> renameWithOptions("/a", "/other/a", true)).isInstanceOf(EbbException.class);
  }

  /** Names with a slash at the end are directories, and those with an equals sign links. /other is a dataset. */
  private static final class Tree implements Renames.Tree {
    private final TreeMap<String, String> entries = new TreeMap<>();

    Tree() {
      entries.put("/", "/");
    }

    Tree add(String name) {
      String path = name.contains("=") ? name.substring(0, name.indexOf('=')) : name.replaceAll("(.)/$", "$1");
      entries.put(path, name);
      return this;
    }

    String names() {
      return String.join(" ", entries.values());
    }

    private String find(Path path) throws IOException {
      String name = entries.get(path.toUri().getPath());
      if (name != null) {
        return name;
      }
      if (path.getParent() != null && kindOf(path.getParent()) == Renames.Kind.FILE) {
        throw new ParentNotDirectoryException(path.toString());
      }
      throw new FileNotFoundException(path.toString());
    }

    @Override
    public Renames.Kind kindOf(Path path) throws IOException {
      String name = find(path);
      if (name.contains("=")) {
        return Renames.Kind.LINK;
      }
      return name.endsWith("/") ? Renames.Kind.DIRECTORY : Renames.Kind.FILE;
    }

    @Override
    public boolean isDirectory(Path path) throws IOException {
      return kindOf(path) == Renames.Kind.LINK
          ? isDirectory(linkTarget(path))
          : kindOf(path) == Renames.Kind.DIRECTORY;
    }

    @Override
    public Path linkTarget(Path link) throws IOException {
      return new Path(find(link).substring(find(link).indexOf('=') + 1));
    }

    @Override
    public String datasetOf(Path path) {
      return path.toUri().getPath().startsWith("/other") ? "/other" : "/";
    }

    /** As renameat2(2) does with RENAME_NOREPLACE, or without a flag. */
    @Override
    public void rename(Path source, Path target, boolean replace) throws IOException {
      Renames.Kind kind = kindOf(source);
      if (kindOf(target.getParent()) == Renames.Kind.FILE) {
        throw new ParentNotDirectoryException(target.toString());
      }
      String old = entries.get(target.toUri().getPath());
      if (old != null && !replace) {
        throw new FileAlreadyExistsException(target.toString());
      }
      if (!datasetOf(source).equals(datasetOf(target))) {
        throw new EbbException(Failures.CROSS_DEVICE, "across datasets");
      }
      String from = source.toUri().getPath();
      String to = target.toUri().getPath();
      TreeMap<String, String> moved = new TreeMap<>();
      entries.entrySet().removeIf(
          entry -> {
            boolean isMoved = entry.getKey().equals(from) || entry.getKey().startsWith(from + "/");
            if (isMoved) {
              moved.put(to + entry.getKey().substring(from.length()), to + entry.getValue().substring(from.length()));
            }
            return isMoved;
          });
      entries.putAll(moved);
      assertThat(kind).isNotNull();
    }
  }
}
