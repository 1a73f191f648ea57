package ebb.hadoop;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.BulkDelete;
import org.apache.hadoop.fs.ContentSummary;
import org.apache.hadoop.fs.FileChecksum;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FsServerDefaults;
import org.apache.hadoop.fs.FsStatus;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.hadoop.fs.QuotaUsage;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.XAttrSetFlag;
import org.apache.hadoop.fs.permission.AclEntry;
import org.apache.hadoop.fs.permission.AclStatus;
import org.apache.hadoop.fs.permission.FsAction;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.security.AccessControlException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The calls on names, on attributes and on datasets. */
abstract class TreeFileSystem extends SessionFileSystem {
  private static final Logger LOG = LoggerFactory.getLogger(TreeFileSystem.class);
  /** Whether somebody has asked for another number of copies: who does asks for each of its files. */
  private static final AtomicBoolean COPIES_ASKED_FOR = new AtomicBoolean();

  private Listings listings;
  private Renames renames;
  private Attributes attributes;
  private Snapshots snapshots;

  @Override
  public void initialize(URI name, Configuration conf) throws IOException {
    super.initialize(name, conf);
    listings = new Listings(context);
    renames = new Renames(names);
    attributes = new Attributes(context, names);
    snapshots = new Snapshots(context);
  }

  // --- Names --------------------------------------------------------------------------------------------------------

  @Override
  public FileStatus getFileStatus(Path path) throws IOException {
    return names.status(absolute(path));
  }

  @Override
  public FileStatus getFileLinkStatus(Path path) throws IOException {
    return names.linkStatus(absolute(path));
  }

  @Override
  public FileStatus[] listStatus(Path path) throws IOException {
    return listings.all(absolute(path));
  }

  @Override
  public RemoteIterator<FileStatus> listStatusIterator(Path path) throws IOException {
    return listings.plain(absolute(path));
  }

  @Override
  public RemoteIterator<LocatedFileStatus> listLocatedStatus(Path path) throws IOException {
    return listings.located(absolute(path));
  }

  @Override
  protected RemoteIterator<LocatedFileStatus> listLocatedStatus(Path path, PathFilter filter) throws IOException {
    return listings.located(absolute(path), filter);
  }

  @Override
  public RemoteIterator<LocatedFileStatus> listFiles(Path path, boolean recursive) throws IOException {
    return listings.files(absolute(path), recursive);
  }

  @Override
  public BlockLocation[] getFileBlockLocations(FileStatus status, long offset, long length) throws IOException {
    if (status == null) {
      return null;
    }
    if (status.isDirectory()) {
      throw Failures.notFile(status.getPath());
    }
    return getFileBlockLocations(status.getPath(), offset, length);
  }

  @Override
  public BlockLocation[] getFileBlockLocations(Path path, long offset, long length) throws IOException {
    if (offset < 0 || length < 0) {
      throw new IllegalArgumentException("offset " + offset + " and length " + length + " must not be negative");
    }
    return names.locations(absolute(path), offset, length);
  }

  @Override
  public boolean mkdirs(Path path, FsPermission permission) throws IOException {
    FsPermission asked = permission == null ? FsPermission.getDirDefault() : permission;
    names.makeDirectory(absolute(path), Modes.of(asked, umask()), true);
    return true;
  }

  @Override
  @Deprecated
  protected boolean primitiveMkdir(Path path, FsPermission permission) throws IOException {
    primitiveMkdir(path, permission, true);
    return true;
  }

  @Override
  @Deprecated
  protected void primitiveMkdir(Path path, FsPermission permission, boolean parents) throws IOException {
    names.makeDirectory(absolute(path), Modes.absolute(permission, umask()), parents);
  }

  @Override
  public boolean delete(Path path, boolean recursive) throws IOException {
    Path absolute = absolute(path);
    if (!absolute.isRoot()) {
      return names.remove(absolute, recursive);
    }
    if (!recursive && listings.plain(absolute).hasNext()) {
      throw Failures.of("NotEmpty", "the root directory has entries");
    }
    return false;
  }

  @Override
  public boolean rename(Path source, Path target) throws IOException {
    return renames.renameOrRefuse(absolute(source), absolute(target));
  }

  @Override
  @Deprecated
  protected void rename(Path source, Path target, Options.Rename... options) throws IOException {
    boolean replace = options != null && Arrays.asList(options).contains(Options.Rename.OVERWRITE);
    renames.renameWithOptions(absolute(source), absolute(target), replace);
  }

  @Override
  public boolean supportsSymlinks() {
    return true;
  }

  @Override
  public void createSymlink(Path target, Path link, boolean createParent) throws IOException {
    names.createLink(target, absolute(link), createParent);
  }

  @Override
  public Path getLinkTarget(Path path) throws IOException {
    return names.linkTarget(absolute(path));
  }

  @Override
  protected Path resolveLink(Path path) throws IOException {
    return getLinkTarget(path);
  }

  @Override
  public BulkDelete createBulkDelete(Path path) {
    return new EbbBulkDelete(context, names, absolute(path));
  }

  // --- Attributes ---------------------------------------------------------------------------------------------------

  @Override
  public void setPermission(Path path, FsPermission permission) throws IOException {
    attributes.setPermission(absolute(path), permission);
  }

  @Override
  public void setOwner(Path path, String owner, String group) throws IOException {
    attributes.setOwner(absolute(path), owner, group);
  }

  @Override
  public void setTimes(Path path, long modifiedMs, long accessedMs) throws IOException {
    attributes.setTimes(absolute(path), modifiedMs, accessedMs);
  }

  @Override
  public void access(Path path, FsAction mode) throws AccessControlException, FileNotFoundException, IOException {
    attributes.access(absolute(path), mode);
  }

  /** The number of copies belongs to a dataset. False, if another one is asked for. */
  @Override
  public boolean setReplication(Path path, short copies) throws IOException {
    FileStatus status = getFileStatus(path);
    if (status.isDirectory()) {
      return false;
    }
    if (status.getReplication() != copies) {
      String told = "{} keeps {} copies and not {}: `ebb dataset set --replicas` sets those of its dataset";
      if (COPIES_ASKED_FOR.getAndSet(true)) {
        LOG.debug(told, path, status.getReplication(), copies);
      } else {
        LOG.warn(told, path, status.getReplication(), copies);
      }
    }
    return status.getReplication() == copies;
  }

  @Override
  public FileChecksum getFileChecksum(Path path) throws IOException {
    return attributes.checksum(absolute(path), Long.MAX_VALUE);
  }

  @Override
  public FileChecksum getFileChecksum(Path path, long length) throws IOException {
    return attributes.checksum(absolute(path), length);
  }

  @Override
  public void modifyAclEntries(Path path, List<AclEntry> entries) throws IOException {
    attributes.changeAcl(absolute(path), list -> Acls.modified(list, entries));
  }

  @Override
  public void removeAclEntries(Path path, List<AclEntry> entries) throws IOException {
    attributes.changeAcl(absolute(path), list -> Acls.removed(list, entries));
  }

  @Override
  public void removeDefaultAcl(Path path) throws IOException {
    attributes.changeAcl(absolute(path), Acls::withoutDefault);
  }

  @Override
  public void removeAcl(Path path) throws IOException {
    attributes.changeAcl(absolute(path), Acls::onlyBase);
  }

  @Override
  public void setAcl(Path path, List<AclEntry> entries) throws IOException {
    attributes.changeAcl(absolute(path), list -> Acls.replaced(list, entries));
  }

  @Override
  public AclStatus getAclStatus(Path path) throws IOException {
    return attributes.aclStatus(absolute(path));
  }

  @Override
  public void setXAttr(Path path, String name, byte[] value, EnumSet<XAttrSetFlag> flags) throws IOException {
    attributes.setXattr(absolute(path), name, value, flags);
  }

  @Override
  public byte[] getXAttr(Path path, String name) throws IOException {
    return attributes.xattr(absolute(path), name);
  }

  @Override
  public Map<String, byte[]> getXAttrs(Path path) throws IOException {
    return attributes.xattrs(absolute(path));
  }

  @Override
  public Map<String, byte[]> getXAttrs(Path path, List<String> wanted) throws IOException {
    return attributes.xattrs(absolute(path), wanted);
  }

  @Override
  public List<String> listXAttrs(Path path) throws IOException {
    return attributes.xattrNames(absolute(path));
  }

  @Override
  public void removeXAttr(Path path, String name) throws IOException {
    attributes.removeXattr(absolute(path), name);
  }

  // --- Snapshots ----------------------------------------------------------------------------------------------------

  /** Of the dataset that is rooted at this directory. Without a name it gets one of its time, as in HDFS. */
  @Override
  public Path createSnapshot(Path path, String name) throws IOException {
    return snapshots.take(absolute(path), name);
  }

  @Override
  public void renameSnapshot(Path path, String name, String newName) throws IOException {
    snapshots.rename(absolute(path), name, newName);
  }

  @Override
  public void deleteSnapshot(Path path, String name) throws IOException {
    snapshots.remove(absolute(path), name);
  }

  // --- Datasets -----------------------------------------------------------------------------------------------------

  @Override
  public Path getEnclosingRoot(Path path) throws IOException {
    return datasets.enclosingRoot(absolute(path));
  }

  @Override
  public Path getTrashRoot(Path path) {
    try {
      return datasets.trashRoot(absolute(path), user);
    } catch (IOException e) {
      // Hadoop's way is to go on with the trash of the home directory; moving something there fails or works.
      LOG.warn("cannot find the dataset of {}: {}", path, e.getMessage());
      return super.getTrashRoot(path);
    }
  }

  /** Those of the datasets of the root and of the home directory. A trash of another dataset is named by its path. */
  @Override
  public Collection<FileStatus> getTrashRoots(boolean allUsers) {
    try {
      return trashRoots(allUsers);
    } catch (IOException e) {
      LOG.warn("cannot list the trash: {}", e.getMessage());
      return Collections.emptyList();
    }
  }

  private Collection<FileStatus> trashRoots(boolean allUsers) throws IOException {
    List<FileStatus> roots = new ArrayList<>();
    for (Path dataset : Arrays.asList(getEnclosingRoot(new Path("/")), getEnclosingRoot(getHomeDirectory()))) {
      Path trash = new Path(dataset, TRASH_PREFIX);
      try {
        for (FileStatus root : listStatus(trash)) {
          boolean isMine = root.getPath().getName().equals(user);
          if (root.isDirectory() && (allUsers || isMine) && !roots.contains(root)) {
            roots.add(root);
          }
        }
      } catch (FileNotFoundException e) {
        // Nobody has moved anything to the trash yet.
      }
    }
    return roots;
  }

  @Override
  @Deprecated
  public long getDefaultBlockSize() {
    return datasets.blockSize(absolute(new Path("/")));
  }

  @Override
  public long getDefaultBlockSize(Path path) {
    return datasets.blockSize(absolute(path));
  }

  @Override
  @Deprecated
  public short getDefaultReplication() {
    return datasets.copies(absolute(new Path("/")));
  }

  @Override
  public short getDefaultReplication(Path path) {
    return datasets.copies(absolute(path));
  }

  @Override
  @Deprecated
  public FsServerDefaults getServerDefaults() throws IOException {
    return getServerDefaults(new Path("/"));
  }

  @Override
  public FsServerDefaults getServerDefaults(Path path) throws IOException {
    return datasets.serverDefaults(absolute(path));
  }

  @Override
  public FsStatus getStatus(Path path) throws IOException {
    return datasets.space(absolute(path == null ? new Path("/") : path));
  }

  @Override
  public ContentSummary getContentSummary(Path path) throws IOException {
    return datasets.summary(absolute(path));
  }

  @Override
  public QuotaUsage getQuotaUsage(Path path) throws IOException {
    return datasets.quotaUsage(absolute(path));
  }
}
