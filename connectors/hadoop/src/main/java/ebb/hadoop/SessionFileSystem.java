package ebb.hadoop;

import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.StorageStatistics;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.fs.statistics.IOStatistics;
import org.apache.hadoop.fs.statistics.IOStatisticsSource;
import org.apache.hadoop.fs.statistics.impl.IOStatisticsBinding;
import org.apache.hadoop.security.UserGroupInformation;

/** What all calls of the file system need: its settings, its user, its session, and how a path is made absolute. */
abstract class SessionFileSystem extends FileSystem implements IOStatisticsSource {
  Settings settings;
  String user;
  Session session;
  Context context;
  Names names;
  Datasets datasets;

  private Path workingDirectory;

  @Override
  public void initialize(URI name, Configuration conf) throws IOException {
    super.initialize(name, conf);
    setConf(conf);
    settings = new Settings(name, conf);
    user = UserGroupInformation.getCurrentUser().getShortUserName();
    session = Session.open(settings, user);
    context = new Context(settings, session, () -> statistics);
    names = new Names(context);
    datasets = new Datasets(context);
    workingDirectory = getHomeDirectory();
  }

  @Override
  public String getScheme() {
    return Settings.SCHEME;
  }

  @Override
  public URI getUri() {
    return settings.uri;
  }

  /** No tokens are issued: who runs a process that has the cluster's secret needs none. */
  @Override
  public String getCanonicalServiceName() {
    return null;
  }

  @Override
  public Path getHomeDirectory() {
    return makeQualified(new Path(new Path(USER_HOME_PREFIX), new Path(null, null, user)));
  }

  @Override
  public Path getWorkingDirectory() {
    return workingDirectory;
  }

  @Override
  public void setWorkingDirectory(Path directory) {
    workingDirectory = absolute(directory);
  }

  /** Closes the streams of this file system: what they wrote is pushed. Other file systems of the process go on. */
  @Override
  public void close() throws IOException {
    try {
      // Removes what was to be removed on exit.
      super.close();
    } finally {
      if (session != null) {
        session.close();
      }
    }
  }

  /** Nothing to wait for: each call sees what was recorded before it. */
  @Override
  public void msync() throws IOException {
    session.check();
  }

  @Override
  public IOStatistics getIOStatistics() {
    return context == null ? null : context.counters.statistics();
  }

  @Override
  public StorageStatistics getStorageStatistics() {
    return IOStatisticsBinding.publishAsStorageStatistics(settings.uri.toString(), getScheme(), getIOStatistics());
  }

  @Override
  public boolean hasPathCapability(Path path, String capability) throws IOException {
    return Capabilities.has(absolute(path), capability) || super.hasPathCapability(path, capability);
  }

  /** With scheme and authority; a path with an authority alone is its root. */
  final Path absolute(Path path) {
    Path qualified = makeQualified(path);
    return qualified.toUri().getPath().isEmpty() ? new Path(qualified, "/") : qualified;
  }

  /** Looked up each time, since programs change it on a file system that is open. */
  final int umask() {
    return FsPermission.getUMask(getConf()).toShort();
  }

  @Override
  public String toString() {
    String what = settings == null ? "before its initialization" : settings.uri + " as " + user;
    return getClass().getSimpleName() + " " + what;
  }
}
