package ebb.hadoop;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

class ReadPoliciesTest {
  @Test
  void theFirstPolicyThatIsKnownCounts() {
    assertThat(ReadPolicies.advice("parquet, vector, random")).isEqualTo(Native.ADVICE_RANDOM);
    assertThat(ReadPolicies.advice("some-new-one, Whole-File")).isEqualTo(Native.ADVICE_SEQUENTIAL);
    assertThat(ReadPolicies.advice("default,random")).isEqualTo(Native.ADVICE_NORMAL);
    assertThat(ReadPolicies.advice("")).isEqualTo(Native.ADVICE_NORMAL);
  }
}
