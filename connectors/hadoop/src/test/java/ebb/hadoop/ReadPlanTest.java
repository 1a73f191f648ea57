package ebb.hadoop;

import static org.assertj.core.api.Assertions.assertThat;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Options.OpenFileOptions;
import org.junit.jupiter.api.Test;

class ReadPlanTest {
  @Test
  void theFirstPolicyThatIsKnownCounts() {
    assertThat(ReadPlan.advice("parquet, vector, random")).isEqualTo(Native.ADVICE_RANDOM);
    assertThat(ReadPlan.advice("some-new-one, Whole-File")).isEqualTo(Native.ADVICE_SEQUENTIAL);
    assertThat(ReadPlan.advice("default,random")).isEqualTo(Native.ADVICE_NORMAL);
    assertThat(ReadPlan.advice("")).isEqualTo(Native.ADVICE_NORMAL);
  }

  @Test
  void theEndOfASplitIsToldAndAWrongOneIsNone() {
    Configuration options = new Configuration(false);
    assertThat(ReadPlan.of(options).end).isEqualTo(Long.MAX_VALUE);
    options.setLong(OpenFileOptions.FS_OPTION_OPENFILE_SPLIT_END, 1 << 20);
    assertThat(ReadPlan.of(options).end).isEqualTo(1 << 20);
    options.setLong(OpenFileOptions.FS_OPTION_OPENFILE_SPLIT_END, -1);
    assertThat(ReadPlan.of(options).end).isEqualTo(Long.MAX_VALUE);
  }
}
