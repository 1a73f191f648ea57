package ebb.hadoop;

import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Permission bits of something new, before the umask and the umask itself.
 *
 * <p>They go separately, since a default ACL of the directory takes the umask's place (acl(5)).
 */
final class Modes {
  final int mode;
  final int umask;

  private Modes(int mode, int umask) {
    this.mode = mode;
    this.umask = umask;
  }

  /** Of a call whose permission is before the umask. */
  static Modes of(FsPermission permission, int umask) {
    return permission.getUnmasked() == null ? new Modes(bits(permission), umask) : absolute(permission, umask);
  }

  /**
   * Of a call whose permission is after the umask of its own: that is found again where it is known. Bits that were
   * not asked for come from the configured umask, for directories above that are made too.
   */
  static Modes absolute(FsPermission permission, int umask) {
    FsPermission unmasked = permission.getUnmasked();
    int asked = bits(unmasked == null ? permission : unmasked);
    return new Modes(asked, asked & ~bits(permission) & 0777 | umask & ~asked);
  }

  private static int bits(FsPermission permission) {
    return permission.toShort() & 01777;
  }
}
