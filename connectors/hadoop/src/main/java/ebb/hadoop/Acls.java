package ebb.hadoop;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Objects;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import org.apache.hadoop.fs.permission.AclEntry;
import org.apache.hadoop.fs.permission.AclEntryScope;
import org.apache.hadoop.fs.permission.AclEntryType;
import org.apache.hadoop.fs.permission.FsAction;

/**
 * Changes of an access control list, as {@code setfacl(1)} and HDFS make them. Pure: a list goes in, a list comes out.
 *
 * <p>A list has two scopes, and each is complete by itself: entries of the owner, the group and the others, and a mask
 * if there are entries with names. The mask bounds what all but the owner and the others get; unless it is given, it
 * is made the union of what it bounds, so that a change of an entry has an effect.
 */
final class Acls {
  private static final Comparator<AclEntry> ORDER =
      Comparator.comparing(AclEntry::getScope)
          .thenComparing(AclEntry::getType)
          .thenComparing(AclEntry::getName, Comparator.nullsFirst(Comparator.naturalOrder()));

  private Acls() {}

  static List<AclEntry> parse(List<String> lines) {
    return sorted(lines.stream().map(line -> AclEntry.parseAclEntry(line, true)).collect(Collectors.toList()));
  }

  static String format(List<AclEntry> entries) {
    return entries.stream().map(AclEntry::toString).collect(Collectors.joining("\n", "", "\n"));
  }

  /** Entries take the place of those for the same, or are added. */
  static List<AclEntry> modified(List<AclEntry> list, List<AclEntry> changes) throws EbbException {
    checkEachOnce(changes);
    List<AclEntry> result = without(list, entry -> find(changes, entry) != null);
    result.addAll(changes);
    return completed(result, changes, list);
  }

  /** Entries for the same are removed, whatever their permissions. What must be there cannot be removed. */
  static List<AclEntry> removed(List<AclEntry> list, List<AclEntry> changes) throws EbbException {
    List<AclEntry> result = without(list, entry -> find(changes, entry) != null);
    for (AclEntry change : changes) {
      if (change.getScope() == AclEntryScope.ACCESS && isBase(change)) {
        throw new EbbException(
            Failures.INVALID, "the entry " + change + " cannot be removed: every access list has it");
      }
    }
    for (AclEntryScope scope : AclEntryScope.values()) {
      if (!hasNamed(result, scope)) {
        result.removeIf(entry -> entry.getScope() == scope && entry.getType() == AclEntryType.MASK);
      }
    }
    // The last entries that a default list would be completed by go with the rest.
    if (result.stream().noneMatch(entry -> isDefault(entry) && isBase(entry))) {
      result.removeIf(entry -> isDefault(entry) && entry.getType() == AclEntryType.MASK);
    }
    return completed(result, changes, list);
  }

  static List<AclEntry> withoutDefault(List<AclEntry> list) {
    return sorted(without(list, Acls::isDefault));
  }

  /** What permission bits can say, of the owner, the group and the others. */
  static List<AclEntry> onlyBase(List<AclEntry> list) {
    return sorted(without(list, entry -> isDefault(entry) || !isBase(entry)));
  }

  /** The whole list of each scope that is given. The other scope stays. */
  static List<AclEntry> replaced(List<AclEntry> list, List<AclEntry> replacement) throws EbbException {
    checkEachOnce(replacement);
    List<AclEntry> result = without(list, entry -> hasScope(replacement, entry.getScope()));
    result.addAll(replacement);
    return completed(result, replacement, list);
  }

  /** What Hadoop shows beside the permission bits: those hold the owner, the mask or the group, and the others. */
  static List<AclEntry> beyondBits(List<AclEntry> list) {
    boolean hasMask = find(list, entry(AclEntryScope.ACCESS, AclEntryType.MASK, null)) != null;
    return without(
        list,
        entry ->
            !isDefault(entry)
                && entry.getName() == null
                && (entry.getType() != AclEntryType.GROUP || !hasMask));
  }

  /** Whether an entry is one that each list has. */
  private static boolean isBase(AclEntry entry) {
    return entry.getName() == null && entry.getType() != AclEntryType.MASK;
  }

  private static boolean isDefault(AclEntry entry) {
    return entry.getScope() == AclEntryScope.DEFAULT;
  }

  private static List<AclEntry> completed(List<AclEntry> list, List<AclEntry> changes, List<AclEntry> before)
      throws EbbException {
    List<AclEntry> result = new ArrayList<>(list);
    if (hasScope(result, AclEntryScope.DEFAULT)) {
      addMissingDefaults(result);
    }
    for (AclEntryScope scope : AclEntryScope.values()) {
      AclEntry mask = entry(scope, AclEntryType.MASK, null);
      boolean isGiven = find(changes, mask) != null && find(result, mask) != null;
      boolean isTouched = hasScope(changes, scope) || !scopeOf(result, scope).equals(scopeOf(before, scope));
      if (hasNamed(result, scope) && !isGiven && (isTouched || find(result, mask) == null)) {
        result.removeIf(entry -> entry.equals(find(result, mask)));
        result.add(entry(scope, AclEntryType.MASK, unionOfBounded(result, scope)));
      }
    }
    checkComplete(result);
    return sorted(result);
  }

  /** A default list that says nothing of the owner, the group or the others says of them what the access list does. */
  private static void addMissingDefaults(List<AclEntry> list) {
    for (AclEntryType type : new AclEntryType[] {AclEntryType.USER, AclEntryType.GROUP, AclEntryType.OTHER}) {
      if (find(list, entry(AclEntryScope.DEFAULT, type, null)) == null) {
        AclEntry access = find(list, entry(AclEntryScope.ACCESS, type, null));
        if (access != null) {
          list.add(entry(AclEntryScope.DEFAULT, type, access.getPermission()));
        }
      }
    }
  }

  private static FsAction unionOfBounded(List<AclEntry> list, AclEntryScope scope) {
    FsAction union = FsAction.NONE;
    for (AclEntry entry : list) {
      boolean isBounded = entry.getName() != null || entry.getType() == AclEntryType.GROUP;
      if (entry.getScope() == scope && isBounded) {
        union = union.or(entry.getPermission());
      }
    }
    return union;
  }

  private static boolean hasNamed(List<AclEntry> list, AclEntryScope scope) {
    return list.stream().anyMatch(entry -> entry.getScope() == scope && entry.getName() != null);
  }

  private static boolean hasScope(List<AclEntry> list, AclEntryScope scope) {
    return list.stream().anyMatch(entry -> entry.getScope() == scope);
  }

  private static List<AclEntry> scopeOf(List<AclEntry> list, AclEntryScope scope) {
    return sorted(without(list, entry -> entry.getScope() != scope));
  }

  private static void checkComplete(List<AclEntry> list) throws EbbException {
    for (AclEntryType type : new AclEntryType[] {AclEntryType.USER, AclEntryType.GROUP, AclEntryType.OTHER}) {
      if (find(list, entry(AclEntryScope.ACCESS, type, null)) == null) {
        throw new EbbException(
            Failures.INVALID, "an access list needs an entry of the kind " + type + " without a name");
      }
    }
  }

  private static void checkEachOnce(List<AclEntry> entries) throws EbbException {
    for (int i = 0; i < entries.size(); i++) {
      if (find(entries.subList(i + 1, entries.size()), entries.get(i)) != null) {
        throw new EbbException(Failures.INVALID, "there are two entries for the same: " + entries.get(i));
      }
    }
  }

  private static List<AclEntry> without(List<AclEntry> list, Predicate<AclEntry> unwanted) {
    return list.stream().filter(unwanted.negate()).collect(Collectors.toCollection(ArrayList::new));
  }

  /** The entry for the same as another; permissions do not count. Null if there is none. */
  private static AclEntry find(List<AclEntry> list, AclEntry like) {
    for (AclEntry entry : list) {
      if (entry.getScope() == like.getScope()
          && entry.getType() == like.getType()
          && Objects.equals(entry.getName(), like.getName())) {
        return entry;
      }
    }
    return null;
  }

  private static AclEntry entry(AclEntryScope scope, AclEntryType type, FsAction permission) {
    return new AclEntry.Builder().setScope(scope).setType(type).setPermission(permission).build();
  }

  private static List<AclEntry> sorted(List<AclEntry> list) {
    return list.stream().sorted(ORDER).collect(Collectors.toList());
  }
}
