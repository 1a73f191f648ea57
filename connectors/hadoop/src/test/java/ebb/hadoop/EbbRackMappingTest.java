package ebb.hadoop;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;

class EbbRackMappingTest {
  private final List<Answer.Host> hosts = new ArrayList<>();
  private int asked;
  private final EbbRackMapping mapping =
      new EbbRackMapping(
          () -> {
            asked++;
            if (hosts.isEmpty()) {
              throw new IOException("no master answers");
            }
            return hosts;
          });

  private void add(String name, String rack) throws IOException {
    hosts.addAll(Answer.hosts(new Answers().i32(1).text(name).text(rack).done()));
  }

  @Test
  void eachNameHasItsRackInTheOrderOfTheQuestion() throws IOException {
    // Not names that resolve: a cluster's names need not be those of DNS.
    add("ebb-host-1.invalid", "r1");
    add("ebb-host-2.invalid", "/r2");
    assertThat(mapping.resolve(Arrays.asList("ebb-host-2.invalid", "elsewhere.invalid", "ebb-host-1.invalid")))
        .containsExactly("/r2", "/default-rack", "/r1");
    assertThat(asked).isEqualTo(1);
  }

  @Test
  void anAddressIsThatOfItsHost() throws IOException {
    add("localhost", "r1");
    assertThat(mapping.resolve(Arrays.asList("127.0.0.1"))).containsExactly("/r1");
  }

  @Test
  void aClusterThatDoesNotAnswerGivesTheDefaultAndIsNotAskedForEachName() throws IOException {
    assertThat(mapping.resolve(Arrays.asList("a.invalid", "b.invalid")))
        .containsExactly("/default-rack", "/default-rack");
    assertThat(asked).isEqualTo(1);
    add("a.invalid", "r1");
    mapping.reloadCachedMappings();
    assertThat(mapping.resolve(Arrays.asList("a.invalid"))).containsExactly("/r1");
    assertThat(mapping.getSwitchMap()).containsEntry("a.invalid", "/r1");
  }
}
