package ebb.hadoop;

import org.apache.hadoop.fs.ClusterStorageCapacityExceededException;

/** A dataset's quota is used up. MapReduce can be told to end a job on it, instead of trying each task four times. */
public class EbbQuotaException extends ClusterStorageCapacityExceededException {
  private static final long serialVersionUID = 1;

  EbbQuotaException(String message) {
    super(message);
  }
}
