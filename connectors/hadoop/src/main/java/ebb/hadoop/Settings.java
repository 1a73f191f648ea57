package ebb.hadoop;

import java.io.IOException;
import java.net.InetAddress;
import java.net.URI;
import java.net.UnknownHostException;
import org.apache.hadoop.conf.Configuration;

/** What a file system is configured with. {@code README.md} has the list for people. */
final class Settings {
  static final String SCHEME = "ebb";
  /** Settings file or directory of the cluster; with {@code .NAME} behind it, of the cluster in {@code ebb://NAME/}. */
  static final String CLUSTER = "fs.ebb.cluster";
  /** Name of this host, as the cluster knows it. */
  static final String HOST = "fs.ebb.host";
  static final String READ_CACHE = "fs.ebb.read.cache";
  static final String DIRTY = "fs.ebb.dirty";
  /** A user who may do everything, as HDFS has one. */
  static final String SUPERUSER = "fs.ebb.superuser";
  /** What `close` of a stream waits for. */
  static final String CLOSE = "fs.ebb.close";
  /** Option of a create builder: hosts of the file's first copies, with commas between them. */
  static final String OPTION_HOSTS = "fs.option.ebb.hosts";

  /** Small, since a process of a job has little beside its heap, and YARN ends it when it takes more. */
  private static final long DEFAULT_CACHE_BYTES = 32L << 20;

  /** {@code ebb://NAME}, or {@code ebb:///} without a name. */
  final URI uri;
  /** A cluster's directory, or a settings file. */
  final String cluster;
  final String host;
  final long readCacheBytes;
  final long dirtyBytes;
  final String superuser;
  /** Whether closing a stream syncs, and does not only wait until all members have received. */
  final boolean syncsAtClose;

  Settings(URI name, Configuration conf) throws IOException {
    String authority = name.getAuthority();
    if (authority != null && (authority.contains(":") || authority.contains("@"))) {
      throw new IOException(name + ": a cluster's name has no port and no user; its masters are in its settings file");
    }
    uri = URI.create(authority == null ? SCHEME + ":///" : SCHEME + "://" + authority);
    cluster = findCluster(authority, conf);
    host = findHost(conf);
    readCacheBytes = conf.getLongBytes(READ_CACHE, DEFAULT_CACHE_BYTES);
    dirtyBytes = conf.getLongBytes(DIRTY, DEFAULT_CACHE_BYTES);
    superuser = conf.getTrimmed(SUPERUSER, "");
    syncsAtClose = isSynced(conf.getTrimmed(CLOSE, "received"));
  }

  private static String findCluster(String name, Configuration conf) throws IOException {
    if (name == null) {
      String cluster = conf.getTrimmed(CLUSTER, "");
      if (cluster.isEmpty()) {
        throw new IOException("ebb:/// names no cluster: write ebb://NAME/, or set " + CLUSTER + " to a settings file");
      }
      return cluster;
    }
    String cluster = conf.getTrimmed(CLUSTER + "." + name, "");
    return cluster.isEmpty() ? "/etc/ebb/" + name + ".toml" : cluster;
  }

  /** YARN tells its containers where they are. The name must be the cluster's: it decides what is near. */
  private static String findHost(Configuration conf) throws IOException {
    String host = conf.getTrimmed(HOST, "");
    if (host.isEmpty()) {
      host = System.getenv().getOrDefault("NM_HOST", "");
    }
    if (host.isEmpty()) {
      try {
        host = InetAddress.getLocalHost().getHostName();
      } catch (UnknownHostException e) {
        throw new IOException("this host has no name that resolves; set " + HOST, e);
      }
    }
    return host;
  }

  private static boolean isSynced(String close) throws IOException {
    switch (close) {
      case "received":
        return false;
      case "synced":
        return true;
      default:
        throw new IOException(CLOSE + " is " + close + ", and must be received or synced");
    }
  }
}
