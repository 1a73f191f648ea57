package ebb.hadoop;

import java.util.Locale;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Options.OpenFileOptions;
import org.apache.hadoop.fs.impl.AbstractFSBuilderImpl;
import org.apache.hadoop.fs.impl.OpenFileParameters;

/** What {@code openFile} is told about how a file will be read. */
final class ReadPlan {
  /** Nothing was said. */
  static final ReadPlan UNKNOWN = new ReadPlan(Native.ADVICE_NORMAL, Long.MAX_VALUE);

  /** One of the library's constants. */
  final int advice;
  /** The end of the task's split: only the rest of its last record is read beyond. */
  final long end;

  private ReadPlan(int advice, long end) {
    this.advice = advice;
    this.end = end;
  }

  /**
   * The plan for the library.
   *
   * <p>A length or a status that the caller has need not be looked at: opening answers with them in the same call.
   */
  static ReadPlan of(OpenFileParameters parameters, String forWhat) {
    AbstractFSBuilderImpl.rejectUnknownMandatoryKeys(
        parameters.getMandatoryKeys(), OpenFileOptions.FS_OPTION_OPENFILE_STANDARD_OPTIONS, forWhat);
    return of(parameters.getOptions());
  }

  static ReadPlan of(Configuration options) {
    long end = options.getLong(OpenFileOptions.FS_OPTION_OPENFILE_SPLIT_END, Long.MAX_VALUE);
    // A split without an end, or with a wrong one, is no reason to refuse to read.
    return new ReadPlan(
        advice(options.getTrimmed(OpenFileOptions.FS_OPTION_OPENFILE_READ_POLICY, "")), end < 0 ? Long.MAX_VALUE : end);
  }

  /** Of a list of policies, the first that is known counts. */
  static int advice(String policies) {
    for (String policy : policies.split(",")) {
      switch (policy.trim().toLowerCase(Locale.ROOT)) {
        case "sequential":
        case "whole-file":
        case "avro":
        case "csv":
        case "json":
          return Native.ADVICE_SEQUENTIAL;
        case "random":
        case "vector":
        case "columnar":
        case "parquet":
        case "orc":
        case "hbase":
          return Native.ADVICE_RANDOM;
        case "adaptive":
        case "default":
          return Native.ADVICE_NORMAL;
        default:
          break;
      }
    }
    return Native.ADVICE_NORMAL;
  }
}
