package ebb.hadoop;

import java.util.Locale;
import org.apache.hadoop.fs.Options.OpenFileOptions;
import org.apache.hadoop.fs.impl.AbstractFSBuilderImpl;
import org.apache.hadoop.fs.impl.OpenFileParameters;

/** What {@code openFile} is told about how a file will be read. */
final class ReadPolicies {
  private ReadPolicies() {}

  /**
   * The advice for the library.
   *
   * <p>A length or a status that the caller has need not be looked at: opening answers with them in the same call.
   */
  static int advice(OpenFileParameters parameters, String forWhat) {
    AbstractFSBuilderImpl.rejectUnknownMandatoryKeys(
        parameters.getMandatoryKeys(), OpenFileOptions.FS_OPTION_OPENFILE_STANDARD_OPTIONS, forWhat);
    return advice(parameters.getOptions().getTrimmed(OpenFileOptions.FS_OPTION_OPENFILE_READ_POLICY, ""));
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
