package ebb.hadoop;

import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.fs.statistics.IOStatistics;
import org.apache.hadoop.fs.statistics.StoreStatisticNames;
import org.apache.hadoop.fs.statistics.impl.DynamicIOStatisticsBuilder;
import org.apache.hadoop.fs.statistics.impl.IOStatisticsBinding;

/** Counts one file system's calls, and shows what its session sent, received and read from files of its own host. */
final class Counters {
  static final String NETWORK_SENT = "ebb_network_bytes_sent";
  static final String NETWORK_RECEIVED = "ebb_network_bytes_received";
  /** Bytes that were read from files of replicas on this host, without a block server. */
  static final String LOCAL_READ = "ebb_local_bytes_read";
  /** Of the network's bytes: with hosts of the own sub-rack. */
  static final String SUB_RACK_SENT = "ebb_sub_rack_bytes_sent";

  static final String SUB_RACK_RECEIVED = "ebb_sub_rack_bytes_received";

  /** Setting or removing an extended attribute. Hadoop has no name for it. */
  static final String SET_XATTR = "op_xattr_set";

  /** As HDFS names them. */
  static final String CREATE_SNAPSHOT = "op_create_snapshot";

  static final String RENAME_SNAPSHOT = "op_rename_snapshot";
  static final String DELETE_SNAPSHOT = "op_delete_snapshot";

  private static final String[] OPERATIONS = {
    SET_XATTR,
    CREATE_SNAPSHOT,
    RENAME_SNAPSHOT,
    DELETE_SNAPSHOT,
    StoreStatisticNames.OP_ACCESS,
    StoreStatisticNames.OP_APPEND,
    StoreStatisticNames.OP_BULK_DELETE,
    StoreStatisticNames.OP_CREATE,
    StoreStatisticNames.OP_CREATE_NON_RECURSIVE,
    StoreStatisticNames.OP_DELETE,
    StoreStatisticNames.OP_GET_CONTENT_SUMMARY,
    StoreStatisticNames.OP_GET_FILE_CHECKSUM,
    StoreStatisticNames.OP_GET_FILE_STATUS,
    StoreStatisticNames.OP_GET_STATUS,
    StoreStatisticNames.OP_LIST_FILES,
    StoreStatisticNames.OP_LIST_LOCATED_STATUS,
    StoreStatisticNames.OP_LIST_STATUS,
    StoreStatisticNames.OP_MKDIRS,
    StoreStatisticNames.OP_OPEN,
    StoreStatisticNames.OP_RENAME,
    StoreStatisticNames.OP_SET_ACL,
    StoreStatisticNames.OP_SET_OWNER,
    StoreStatisticNames.OP_SET_PERMISSION,
    StoreStatisticNames.OP_SET_TIMES,
    StoreStatisticNames.OP_TRUNCATE,
    StoreStatisticNames.OP_XATTR_GET_NAMED,
    StoreStatisticNames.OP_XATTR_LIST,
  };

  private final Map<String, AtomicLong> counts = new HashMap<>();
  private final IOStatistics statistics;

  Counters(Session session) {
    DynamicIOStatisticsBuilder builder = IOStatisticsBinding.dynamicIOStatistics();
    for (String operation : OPERATIONS) {
      AtomicLong count = new AtomicLong();
      counts.put(operation, count);
      builder.withAtomicLongCounter(operation, count);
    }
    String[] traffic = {NETWORK_SENT, NETWORK_RECEIVED, LOCAL_READ, SUB_RACK_SENT, SUB_RACK_RECEIVED};
    for (int i = 0; i < traffic.length; i++) {
      int index = i;
      builder.withLongFunctionCounter(traffic[i], key -> traffic(session, index));
    }
    statistics = builder.build();
  }

  void add(String operation) {
    AtomicLong count = counts.get(operation);
    if (count != null) {
      count.incrementAndGet();
    }
  }

  IOStatistics statistics() {
    return statistics;
  }

  /** 0 once the file system is closed: counters are read when a job ends, and must not fail it. */
  private static long traffic(Session session, int index) {
    try {
      return Native.traffic(session.session())[index];
    } catch (IOException e) {
      return 0;
    }
  }
}
