package ebb.hadoop;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.XAttrSetFlag;
import org.apache.hadoop.fs.permission.AclEntry;
import org.apache.hadoop.fs.permission.AclStatus;
import org.apache.hadoop.fs.permission.FsAction;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * Ebb for programs that use {@code FileContext}: MapReduce's staging, YARN's logs, Spark's checkpoints.
 *
 * <p>Hadoop finds it by {@code fs.AbstractFileSystem.ebb.impl = ebb.hadoop.EbbFs}, which has to be set. Where the class
 * that it extends would look first and act then, or would not pass a call on, the call goes to the file system here.
 */
public class EbbFs extends DelegateToFileSystem {
  private final EbbFileSystem fs;

  /** Called by Hadoop. */
  public EbbFs(URI uri, Configuration conf) throws IOException, URISyntaxException {
    super(uri, new EbbFileSystem(), conf, Settings.SCHEME, false);
    fs = (EbbFileSystem) fsImpl;
  }

  @Override
  public FSDataOutputStream createInternal(
      Path path,
      EnumSet<CreateFlag> flags,
      FsPermission permission,
      int bufferSize,
      short replication,
      long blockSize,
      Progressable progress,
      Options.ChecksumOpt checksum,
      boolean parents)
      throws IOException {
    checkPath(path);
    return fs.createAbsolute(path, permission, flags, parents);
  }

  @Override
  @SuppressWarnings("deprecation")
  public void renameInternal(Path source, Path target, boolean overwrite) throws IOException {
    checkPath(source);
    checkPath(target);
    fs.rename(source, target, overwrite ? Options.Rename.OVERWRITE : Options.Rename.NONE);
  }

  @Override
  public void access(Path path, FsAction mode) throws IOException {
    checkPath(path);
    fs.access(path, mode);
  }

  @Override
  public RemoteIterator<FileStatus> listStatusIterator(Path path) throws IOException {
    checkPath(path);
    return fs.listStatusIterator(path);
  }

  @Override
  public RemoteIterator<LocatedFileStatus> listLocatedStatus(Path path) throws IOException {
    checkPath(path);
    return fs.listLocatedStatus(path);
  }

  @Override
  public Path getEnclosingRoot(Path path) throws IOException {
    return fs.getEnclosingRoot(path);
  }

  @Override
  public void modifyAclEntries(Path path, List<AclEntry> entries) throws IOException {
    fs.modifyAclEntries(path, entries);
  }

  @Override
  public void removeAclEntries(Path path, List<AclEntry> entries) throws IOException {
    fs.removeAclEntries(path, entries);
  }

  @Override
  public void removeDefaultAcl(Path path) throws IOException {
    fs.removeDefaultAcl(path);
  }

  @Override
  public void removeAcl(Path path) throws IOException {
    fs.removeAcl(path);
  }

  @Override
  public void setAcl(Path path, List<AclEntry> entries) throws IOException {
    fs.setAcl(path, entries);
  }

  @Override
  public AclStatus getAclStatus(Path path) throws IOException {
    return fs.getAclStatus(path);
  }

  @Override
  public void setXAttr(Path path, String name, byte[] value, EnumSet<XAttrSetFlag> flags) throws IOException {
    fs.setXAttr(path, name, value, flags);
  }

  @Override
  public byte[] getXAttr(Path path, String name) throws IOException {
    return fs.getXAttr(path, name);
  }

  @Override
  public Map<String, byte[]> getXAttrs(Path path) throws IOException {
    return fs.getXAttrs(path);
  }

  @Override
  public Map<String, byte[]> getXAttrs(Path path, List<String> names) throws IOException {
    return fs.getXAttrs(path, names);
  }

  @Override
  public List<String> listXAttrs(Path path) throws IOException {
    return fs.listXAttrs(path);
  }

  @Override
  public void removeXAttr(Path path, String name) throws IOException {
    fs.removeXAttr(path, name);
  }
}
