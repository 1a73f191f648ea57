package ebb.hadoop.cluster;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.security.PrivilegedExceptionAction;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.List;
import java.util.stream.Collectors;
import java.util.zip.CRC32C;
import org.apache.hadoop.fs.FileChecksum;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.XAttrSetFlag;
import org.apache.hadoop.fs.permission.AclEntry;
import org.apache.hadoop.fs.permission.AclStatus;
import org.apache.hadoop.fs.permission.FsAction;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.security.AccessControlException;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.util.CrcUtil;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class AttributesTest {
  private FileSystem fs;
  private Path folder;
  private Path file;

  @BeforeEach
  void open() throws IOException {
    fs = TestCluster.newFileSystem();
    folder = TestCluster.newFolder(fs, "attributes");
    file = new Path(folder, "file");
    TestCluster.write(fs, file, "content".getBytes());
  }

  @AfterEach
  void close() throws IOException {
    fs.delete(folder, true);
    fs.close();
  }

  private static List<AclEntry> acl(String spec) {
    return AclEntry.parseAclSpec(spec, true);
  }

  private static List<String> shown(AclStatus status) {
    return status.getEntries().stream().map(AclEntry::toString).collect(Collectors.toList());
  }

  private static <T> T as(String user, PrivilegedExceptionAction<T> action) throws Exception {
    return UserGroupInformation.createRemoteUser(user).doAs(action);
  }

  @Test
  void ownersPermissionsAndTimesAreSet() throws IOException {
    fs.setOwner(file, "daemon", null);
    fs.setOwner(file, null, "games");
    fs.setPermission(file, new FsPermission((short) 0640));
    fs.setTimes(file, 1_234_567_890_123L, 1_111_111_111_111L);
    fs.setTimes(file, -1, -1);
    FileStatus status = fs.getFileStatus(file);
    assertThat(status.getOwner()).isEqualTo("daemon");
    assertThat(status.getGroup()).isEqualTo("games");
    assertThat(status.getPermission().toShort()).isEqualTo((short) 0640);
    assertThat(status.getModificationTime()).isEqualTo(1_234_567_890_123L);
    assertThat(status.getAccessTime()).isEqualTo(1_111_111_111_111L);
    fs.setPermission(folder, new FsPermission((short) 01777));
    assertThat(fs.getFileStatus(folder).getPermission().getStickyBit()).isTrue();
  }

  @Test
  void anAclOpensAFileToOneMoreUserAndIsShownAsHdfsDoes() throws Exception {
    fs.setPermission(file, new FsPermission((short) 0600));
    assertThatThrownBy(() -> accessAs("games")).isInstanceOf(AccessControlException.class);
    fs.modifyAclEntries(file, acl("user:games:r--"));
    accessAs("games");
    assertThatThrownBy(() -> accessAs("daemon")).isInstanceOf(AccessControlException.class);
    AclStatus status = fs.getAclStatus(file);
    assertThat(status.getOwner()).isEqualTo("root");
    assertThat(status.getPermission().toShort()).isEqualTo((short) 0640);
    assertThat(shown(status)).containsExactly("user:games:r--", "group::---");
    assertThat(fs.getFileStatus(file).hasAcl()).isTrue();
    fs.removeAclEntries(file, AclEntry.parseAclSpec("user:games", false));
    assertThat(shown(fs.getAclStatus(file))).isEmpty();
    assertThat(fs.getFileStatus(file).getPermission().toShort()).isEqualTo((short) 0600);
    assertThatThrownBy(() -> accessAs("games")).isInstanceOf(AccessControlException.class);
  }

  private void accessAs(String user) throws Exception {
    as(
        user,
        () -> {
          try (FileSystem theirs = TestCluster.newFileSystem()) {
            theirs.access(file, FsAction.READ);
            theirs.open(file).close();
          }
          return null;
        });
  }

  @Test
  void aDefaultAclGoesToWhatIsMadeBelow() throws IOException {
    fs.setAcl(folder, acl("user::rwx,group::r-x,other::---,default:user:games:rwx"));
    assertThat(shown(fs.getAclStatus(folder)))
        .containsExactly(
            "default:user::rwx", "default:user:games:rwx", "default:group::r-x", "default:mask::rwx",
            "default:other::---");
    Path below = new Path(folder, "below");
    fs.mkdirs(below);
    assertThat(shown(fs.getAclStatus(below))).contains("user:games:rwx", "default:user:games:rwx");
    // The umask would take the group's bits, were there no default list.
    assertThat(fs.getFileStatus(below).getPermission().toShort()).isEqualTo((short) 0770);
    fs.removeDefaultAcl(below);
    assertThat(shown(fs.getAclStatus(below))).containsExactly("user:games:rwx", "group::r-x");
    fs.removeAcl(below);
    assertThat(shown(fs.getAclStatus(below))).isEmpty();
    assertThatThrownBy(() -> fs.setAcl(file, acl("default:user:games:rwx"))).isInstanceOf(IOException.class);
  }

  @Test
  void extendedAttributesKeepTheirNames() throws IOException {
    byte[] value = {0, 1, (byte) 255};
    fs.setXAttr(file, "user.color", value);
    fs.setXAttr(file, "trusted.note", new byte[0]);
    assertThat(fs.getXAttr(file, "user.color")).isEqualTo(value);
    assertThat(fs.listXAttrs(file)).contains("user.color", "trusted.note");
    assertThat(fs.getXAttrs(file)).containsKeys("user.color", "trusted.note");
    assertThat(fs.getXAttrs(file, Arrays.asList("user.color")).get("user.color")).isEqualTo(value);
    assertThatThrownBy(() -> fs.getXAttrs(file, Arrays.asList("user.color", "user.none")))
        .isInstanceOf(IOException.class);
    assertThatThrownBy(() -> fs.setXAttr(file, "user.color", value, EnumSet.of(XAttrSetFlag.CREATE)))
        .isInstanceOf(IOException.class);
    assertThatThrownBy(() -> fs.setXAttr(file, "user.none", value, EnumSet.of(XAttrSetFlag.REPLACE)))
        .isInstanceOf(IOException.class);
    fs.setXAttr(file, "user.color", new byte[] {7}, EnumSet.of(XAttrSetFlag.REPLACE));
    assertThat(fs.getXAttr(file, "user.color")).isEqualTo(new byte[] {7});
    fs.removeXAttr(file, "user.color");
    assertThatThrownBy(() -> fs.getXAttr(file, "user.color")).isInstanceOf(IOException.class);
    assertThatThrownBy(() -> fs.removeXAttr(file, "user.color")).isInstanceOf(IOException.class);
  }

  @Test
  void aChecksumIsThatOfTheBytesWhateverTheirBlocks() throws IOException {
    for (int size : new int[] {0, 1, 16 << 10, 100_001, 5_000_000}) {
      byte[] data = TestCluster.bytes(size, size);
      TestCluster.write(fs, file, data);
      check(fs.getFileChecksum(file), data, size);
      check(fs.getFileChecksum(file, size / 2), data, size / 2);
      check(fs.getFileChecksum(file, size + 10L), data, size);
    }
    assertThatThrownBy(() -> fs.getFileChecksum(folder)).isInstanceOf(FileNotFoundException.class);
  }

  private static void check(FileChecksum checksum, byte[] data, int length) {
    CRC32C crc = new CRC32C();
    crc.update(data, 0, length);
    assertThat(checksum.getAlgorithmName()).isEqualTo("COMPOSITE-CRC32C");
    assertThat(checksum.getBytes()).isEqualTo(CrcUtil.intToBytes((int) crc.getValue()));
  }

  @Test
  void theNumberOfCopiesIsTheDatasets() throws IOException {
    short copies = fs.getFileStatus(file).getReplication();
    assertThat(fs.getDefaultReplication(file)).isEqualTo(copies);
    assertThat(fs.setReplication(file, copies)).isTrue();
    assertThat(fs.setReplication(file, (short) (copies + 1))).isFalse();
    assertThat(fs.getFileStatus(file).getReplication()).isEqualTo(copies);
    assertThat(fs.getFileStatus(file).getBlockSize()).isEqualTo(fs.getDefaultBlockSize(file));
  }
}
