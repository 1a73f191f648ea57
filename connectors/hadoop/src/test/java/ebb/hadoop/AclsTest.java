package ebb.hadoop;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.hadoop.fs.permission.AclEntry;
import org.junit.jupiter.api.Test;

/** The examples are those of setfacl(1) and acl(5), with what these programs answer. */
class AclsTest {
  private static final List<AclEntry> MINIMAL = list("user::rwx", "group::r-x", "other::---");

  private static List<AclEntry> list(String... entries) {
    return Acls.parse(Arrays.asList(entries));
  }

  private static List<AclEntry> names(String... entries) {
    return Arrays.stream(entries).map(entry -> AclEntry.parseAclEntry(entry, false)).collect(Collectors.toList());
  }

  private static void check(List<AclEntry> list, String... entries) {
    assertThat(list.stream().map(AclEntry::toString)).containsExactly(entries);
  }

  @Test
  void anEntryWithANameBringsAMaskThatLetsItHaveAnEffect() throws EbbException {
    check(
        Acls.modified(MINIMAL, list("user:bob:rw-")),
        "user::rwx", "user:bob:rw-", "group::r-x", "mask::rwx", "other::---");
  }

  @Test
  void aMaskThatIsGivenStays() throws EbbException {
    check(
        Acls.modified(MINIMAL, list("user:bob:rwx", "mask::r--")),
        "user::rwx", "user:bob:rwx", "group::r-x", "mask::r--", "other::---");
    List<AclEntry> masked = list("user::rwx", "user:bob:rwx", "group::r-x", "mask::r--", "other::---");
    // A change of the default list is none of the access list.
    check(
        Acls.modified(masked, list("default:user:eve:r--")),
        "user::rwx", "user:bob:rwx", "group::r-x", "mask::r--", "other::---",
        "default:user::rwx", "default:user:eve:r--", "default:group::r-x", "default:mask::r-x", "default:other::---");
  }

  @Test
  void anEntryTakesThePlaceOfOneForTheSame() throws EbbException {
    List<AclEntry> before = Acls.modified(MINIMAL, list("user:bob:rw-"));
    check(
        Acls.modified(before, list("user:bob:---", "other::r--")),
        "user::rwx", "user:bob:---", "group::r-x", "mask::r-x", "other::r--");
  }

  @Test
  void theLastNameTakesTheMaskWithIt() throws EbbException {
    List<AclEntry> before = Acls.modified(MINIMAL, list("user:bob:rw-", "group:staff:r--"));
    check(
        Acls.removed(before, names("user:bob")),
        "user::rwx", "group::r-x", "group:staff:r--", "mask::r-x", "other::---");
    check(Acls.removed(before, names("user:bob", "group:staff")), "user::rwx", "group::r-x", "other::---");
  }

  @Test
  void aMaskThatIsRemovedIsMadeAgain() throws EbbException {
    List<AclEntry> masked = list("user::rwx", "user:bob:rw-", "group::r-x", "mask::---", "other::---");
    check(
        Acls.removed(masked, names("mask:")),
        "user::rwx", "user:bob:rw-", "group::r-x", "mask::rwx", "other::---");
  }

  @Test
  void whatEveryListHasCannotBeRemoved() {
    assertThatThrownBy(() -> Acls.removed(MINIMAL, names("user:"))).isInstanceOf(EbbException.class);
    assertThatThrownBy(() -> Acls.replaced(MINIMAL, list("user::rwx", "group::r-x")))
        .isInstanceOf(EbbException.class)
        .hasMessageContaining("OTHER");
  }

  @Test
  void aDefaultListGoesWithItsLastEntries() throws EbbException {
    List<AclEntry> before = Acls.modified(MINIMAL, list("default:user:eve:r--"));
    check(Acls.withoutDefault(before), "user::rwx", "group::r-x", "other::---");
    check(
        Acls.removed(before, names("default:user:eve", "default:user:", "default:group:", "default:other:")),
        "user::rwx", "group::r-x", "other::---");
    check(
        Acls.removed(before, names("default:user:eve")),
        "user::rwx", "group::r-x", "other::---", "default:user::rwx", "default:group::r-x", "default:other::---");
  }

  @Test
  void aWholeListReplacesOnlyItsOwnScope() throws EbbException {
    List<AclEntry> before = Acls.modified(MINIMAL, list("user:bob:rw-", "default:user:eve:r--"));
    check(
        Acls.replaced(before, list("user::r--", "group::---", "other::---")),
        "user::r--", "group::---", "other::---",
        "default:user::rwx", "default:user:eve:r--", "default:group::r-x", "default:mask::r-x", "default:other::---");
    check(
        Acls.replaced(before, list("default:user:dan:rwx")),
        "user::rwx", "user:bob:rw-", "group::r-x", "mask::rwx", "other::---",
        "default:user::rwx", "default:user:dan:rwx", "default:group::r-x", "default:mask::rwx", "default:other::---");
  }

  @Test
  void onlyTheBaseIsLeft() throws EbbException {
    check(
        Acls.onlyBase(Acls.modified(MINIMAL, list("user:bob:rw-", "default:user:eve:r--"))),
        "user::rwx", "group::r-x", "other::---");
  }

  @Test
  void anEntryIsGivenOnce() {
    assertThatThrownBy(() -> Acls.modified(MINIMAL, list("user:bob:rw-", "user:bob:r--")))
        .hasMessageContaining("user:bob");
  }

  @Test
  void hadoopShowsWhatPermissionBitsCannot() throws EbbException {
    check(Acls.beyondBits(MINIMAL));
    check(
        Acls.beyondBits(Acls.modified(MINIMAL, list("user:bob:rw-", "default:other::r--"))),
        "user:bob:rw-", "group::r-x", "default:user::rwx", "default:group::r-x", "default:other::r--");
  }

  @Test
  void aListIsWrittenAsItIsRead() {
    assertThat(Acls.format(list("other::r--", "default:mask::rwx", "user:bob:rw-")))
        .isEqualTo("user:bob:rw-\nother::r--\ndefault:mask::rwx\n");
  }
}
