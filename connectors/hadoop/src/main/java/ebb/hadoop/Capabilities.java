package ebb.hadoop;

import static org.apache.hadoop.fs.impl.PathCapabilitiesSupport.validatePathCapabilityArgs;

import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.Set;
import org.apache.hadoop.fs.CommonPathCapabilities;
import org.apache.hadoop.fs.Path;

/** What programs may expect of each path. Not among it: concat, storage policies, multipart uploads. */
final class Capabilities {
  private static final Set<String> ALL =
      Collections.unmodifiableSet(
          new HashSet<>(
              Arrays.asList(
                  CommonPathCapabilities.FS_ACLS,
                  CommonPathCapabilities.FS_APPEND,
                  CommonPathCapabilities.FS_CHECKSUMS,
                  CommonPathCapabilities.FS_PATHHANDLES,
                  CommonPathCapabilities.FS_PERMISSIONS,
                  CommonPathCapabilities.FS_SNAPSHOTS,
                  CommonPathCapabilities.FS_SYMLINKS,
                  CommonPathCapabilities.FS_TRUNCATE,
                  CommonPathCapabilities.FS_XATTRS,
                  CommonPathCapabilities.ETAGS_AVAILABLE,
                  CommonPathCapabilities.ETAGS_PRESERVED_IN_RENAME,
                  CommonPathCapabilities.LEASE_RECOVERABLE,
                  CommonPathCapabilities.BULK_DELETE)));

  private Capabilities() {}

  static boolean has(Path path, String capability) {
    return ALL.contains(validatePathCapabilityArgs(path, capability));
  }
}
