package ebb.hadoop;

import java.io.IOException;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.CompositeCrcFileChecksum;
import org.apache.hadoop.fs.FileChecksum;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.XAttrSetFlag;
import org.apache.hadoop.fs.permission.AclEntry;
import org.apache.hadoop.fs.permission.AclStatus;
import org.apache.hadoop.fs.permission.FsAction;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.fs.statistics.StoreStatisticNames;
import org.apache.hadoop.util.DataChecksum;

/** Attributes of files and directories: permissions, owners, times, ACLs, extended attributes, checksums. */
final class Attributes {
  private final Context context;
  private final Names names;

  Attributes(Context context, Names names) {
    this.context = context;
    this.names = names;
  }

  void setPermission(Path path, FsPermission permission) throws IOException {
    long caller = context.callerForWrite(StoreStatisticNames.OP_SET_PERMISSION);
    Native.setMode(caller, Texts.bytes(path), permission.toShort() & 01777);
  }

  /** Either may be null or empty: it stays. */
  void setOwner(Path path, String user, String group) throws IOException {
    if (isMissing(user) && isMissing(group)) {
      throw new EbbException(Failures.INVALID, "neither an owner nor a group is given for " + path);
    }
    long caller = context.callerForWrite(StoreStatisticNames.OP_SET_OWNER);
    Native.setOwner(caller, Texts.bytes(path), bytesOrNull(user), bytesOrNull(group));
  }

  void setTimes(Path path, long modifiedMs, long accessedMs) throws IOException {
    long caller = context.callerForWrite(StoreStatisticNames.OP_SET_TIMES);
    Native.setTimes(caller, Texts.bytes(path), modifiedMs, accessedMs);
  }

  void access(Path path, FsAction action) throws IOException {
    long caller = context.callerForRead(StoreStatisticNames.OP_ACCESS);
    // The order of Hadoop's constants is that of the bits.
    Native.access(caller, Texts.bytes(path), action.ordinal());
  }

  /** In the algorithm of HDFS's composite checksums, so that copies between the two can be compared. */
  FileChecksum checksum(Path path, long length) throws IOException {
    Answer.Status status = names.rawStatus(path, true);
    if (status.kind != Answer.Status.FILE) {
      throw Failures.notFile(path);
    }
    long caller = context.callerForRead(StoreStatisticNames.OP_GET_FILE_CHECKSUM);
    int crc = Native.checksum(caller, Texts.bytes(path), Math.min(length, status.size));
    return new CompositeCrcFileChecksum(crc, DataChecksum.Type.CRC32C, Datasets.CHUNK_BYTES);
  }

  AclStatus aclStatus(Path path) throws IOException {
    Answer.Status status = names.rawStatus(path, true);
    FsPermission permission = Statuses.permission(status);
    return new AclStatus.Builder()
        .owner(status.owner)
        .group(status.group)
        .stickyBit(permission.getStickyBit())
        .setPermission(permission)
        .addEntries(Acls.beyondBits(acl(path)))
        .build();
  }

  /** A rule that makes the new list of the old one. */
  interface AclRule {
    List<AclEntry> apply(List<AclEntry> list) throws IOException;
  }

  void changeAcl(Path path, AclRule rule) throws IOException {
    List<AclEntry> changed = rule.apply(acl(path));
    long caller = context.callerForWrite(StoreStatisticNames.OP_SET_ACL);
    Native.setAcl(caller, Texts.bytes(path), Texts.bytes(Acls.format(changed)));
  }

  private List<AclEntry> acl(Path path) throws IOException {
    long caller = context.callerForRead(StoreStatisticNames.OP_GET_FILE_STATUS);
    return Acls.parse(Answer.acl(Native.getAcl(caller, Texts.bytes(path))));
  }

  byte[] xattr(Path path, String name) throws IOException {
    long caller = context.callerForRead(StoreStatisticNames.OP_XATTR_GET_NAMED);
    return Native.getXattr(caller, Texts.bytes(path), Texts.bytes(name));
  }

  List<String> xattrNames(Path path) throws IOException {
    long caller = context.callerForRead(StoreStatisticNames.OP_XATTR_LIST);
    return Answer.names(Native.listXattrs(caller, Texts.bytes(path)));
  }

  /** All that this user may read. One that is removed meanwhile is left out. */
  Map<String, byte[]> xattrs(Path path) throws IOException {
    Map<String, byte[]> values = new HashMap<>();
    for (String name : xattrNames(path)) {
      try {
        values.put(name, xattr(path, name));
      } catch (EbbException e) {
        if (!Failures.isKind(e, Failures.NO_ATTRIBUTE)) {
          throw e;
        }
      }
    }
    return values;
  }

  /** All must be there. */
  Map<String, byte[]> xattrs(Path path, List<String> wanted) throws IOException {
    Map<String, byte[]> values = new HashMap<>();
    for (String name : wanted) {
      values.put(name, xattr(path, name));
    }
    return values;
  }

  void setXattr(Path path, String name, byte[] value, EnumSet<XAttrSetFlag> flags) throws IOException {
    if (flags.isEmpty()) {
      throw new EbbException(Failures.INVALID, "setting " + name + " must be allowed to create or to replace it");
    }
    long caller = context.callerForWrite(Counters.SET_XATTR);
    Native.setXattr(
        caller,
        Texts.bytes(path),
        Texts.bytes(name),
        value == null ? new byte[0] : value,
        flags.contains(XAttrSetFlag.CREATE),
        flags.contains(XAttrSetFlag.REPLACE));
  }

  void removeXattr(Path path, String name) throws IOException {
    long caller = context.callerForWrite(Counters.SET_XATTR);
    Native.removeXattr(caller, Texts.bytes(path), Texts.bytes(name));
  }

  private static boolean isMissing(String name) {
    return name == null || name.isEmpty();
  }

  private static byte[] bytesOrNull(String name) {
    return isMissing(name) ? null : Texts.bytes(name);
  }
}
