package ebb.hadoop;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.util.Arrays;
import java.util.Collections;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.StorageType;
import org.junit.jupiter.api.Test;

class BlocksTest {
  private static Answer.Copy copy(String host, int state, long wakesInMs) {
    return new Answer.Copy(host, "r1", "v-" + host, state, wakesInMs);
  }

  private static BlockLocation block(Answer.Copy... copies) {
    return Blocks.of(Collections.singletonList(new Answer.Location(100, 50, Arrays.asList(copies))))[0];
  }

  @Test
  void hostsThatServeComeFirstThenTheSoonestAwake() throws IOException {
    BlockLocation block =
        block(
            copy("unknown", Answer.Copy.SLEEPS, -1),
            copy("late", Answer.Copy.SLEEPS, 9000),
            copy("soon", Answer.Copy.SLEEPS, 10),
            copy("off", Answer.Copy.OFF, -1),
            copy("now", Answer.Copy.SERVES, 0));
    assertThat(block.getHosts()).containsExactly("now", "soon", "late", "unknown");
  }

  @Test
  void hostsThatAreKeptOffCountIfThereAreNoOthers() throws IOException {
    BlockLocation block = block(copy("b", Answer.Copy.OFF, -1), copy("a", Answer.Copy.OFF, 5));
    assertThat(block.getHosts()).containsExactly("a", "b");
  }

  @Test
  void aHostWithTwoCopiesIsNamedOnce() throws IOException {
    assertThat(block(copy("a", Answer.Copy.SERVES, 0), copy("a", Answer.Copy.SLEEPS, 1)).getHosts())
        .containsExactly("a");
  }

  @Test
  void allThatSchedulersReadIsThere() throws IOException {
    BlockLocation block = block(copy("a", Answer.Copy.SERVES, 0));
    assertThat(block.getOffset()).isEqualTo(100);
    assertThat(block.getLength()).isEqualTo(50);
    assertThat(block.getNames()).containsExactly("a:0");
    assertThat(block.getTopologyPaths()).containsExactly("/r1/a:0");
    assertThat(block.getStorageIds()).containsExactly("v-a");
    assertThat(block.getStorageTypes()).containsExactly(StorageType.DISK);
    assertThat(block.isCorrupt()).isFalse();
  }

  @Test
  void racksBeginWithASlash() {
    assertThat(Blocks.rack("/x/y")).isEqualTo("/x/y");
    assertThat(Blocks.rack("x")).isEqualTo("/x");
    assertThat(Blocks.rack("")).isEqualTo("/default-rack");
  }

  @Test
  void anEmptyFileHasNoBlocks() {
    assertThat(Blocks.of(Collections.emptyList())).isEmpty();
  }
}
