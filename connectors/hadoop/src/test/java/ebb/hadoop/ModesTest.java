package ebb.hadoop;

import static org.assertj.core.api.Assertions.assertThat;

import org.apache.hadoop.fs.permission.FsCreateModes;
import org.apache.hadoop.fs.permission.FsPermission;
import org.junit.jupiter.api.Test;

class ModesTest {
  private static FsPermission bits(int mode) {
    return new FsPermission((short) mode);
  }

  private static void check(Modes modes, int mode, int umask) {
    assertThat(Integer.toOctalString(modes.mode)).isEqualTo(Integer.toOctalString(mode));
    assertThat(Integer.toOctalString(modes.umask)).isEqualTo(Integer.toOctalString(umask));
  }

  @Test
  void bitsAndUmaskGoSeparately() {
    check(Modes.of(bits(01777), 022), 01777, 022);
  }

  @Test
  void aUmaskThatWasAppliedIsFoundAgain() {
    FsPermission masked = FsCreateModes.applyUMask(bits(0666), bits(027));
    check(Modes.of(masked, 022), 0666, 026 | 022 & ~0666);
    check(Modes.absolute(masked, 022), 0666, 026);
  }

  @Test
  void anAbsolutePermissionStaysWhatItIs() {
    for (int mode = 0; mode <= 0777; mode++) {
      for (int umask : new int[] {0, 022, 077, 0777}) {
        Modes modes = Modes.absolute(bits(mode), umask);
        assertThat(modes.mode & ~modes.umask).isEqualTo(mode);
        FsPermission masked = FsCreateModes.applyUMask(bits(mode), bits(027));
        modes = Modes.absolute(masked, umask);
        assertThat(modes.mode & ~modes.umask).isEqualTo(mode & ~027);
      }
    }
  }

  @Test
  void directoriesAboveGetTheConfiguredUmask() {
    // A private directory must not leave those above it open to all.
    check(Modes.absolute(bits(0700), 022), 0700, 022);
  }
}
