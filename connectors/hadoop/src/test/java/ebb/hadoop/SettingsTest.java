package ebb.hadoop;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.junit.jupiter.api.Test;

class SettingsTest {
  private final Configuration conf = new Configuration(false);

  private Settings settings(String uri) throws IOException {
    return new Settings(URI.create(uri), conf);
  }

  @Test
  void aNameLeadsToItsOwnSettingsFile() throws IOException {
    assertThat(settings("ebb://lab/x").cluster).isEqualTo("/etc/ebb/lab.toml");
    assertThat(settings("ebb://lab/x").uri).isEqualTo(URI.create("ebb://lab"));
    conf.set("fs.ebb.cluster", "/elsewhere");
    assertThat(settings("ebb://lab/x").cluster).isEqualTo("/etc/ebb/lab.toml");
    conf.set("fs.ebb.cluster.lab", "/clusters/lab");
    assertThat(settings("ebb://lab/x").cluster).isEqualTo("/clusters/lab");
  }

  @Test
  void withoutANameTheDefaultClusterIsMeant() throws IOException {
    assertThatThrownBy(() -> settings("ebb:///x"))
        .isInstanceOf(IOException.class)
        .hasMessageContaining("fs.ebb.cluster");
    conf.set("fs.ebb.cluster", "/clusters/lab");
    assertThat(settings("ebb:///x").cluster).isEqualTo("/clusters/lab");
    assertThat(settings("ebb:///x").uri).isEqualTo(URI.create("ebb:///"));
  }

  @Test
  void aPortIsRefused() {
    assertThatThrownBy(() -> settings("ebb://lab:80/")).isInstanceOf(IOException.class).hasMessageContaining("port");
  }

  @Test
  void thisHostIsTheConfiguredOne() throws IOException {
    conf.set("fs.ebb.host", "h3");
    assertThat(settings("ebb://lab/").host).isEqualTo("h3");
    conf.unset("fs.ebb.host");
    assertThat(settings("ebb://lab/").host).isNotEmpty();
  }

  @Test
  void cachesAreSmallUnlessSet() throws IOException {
    assertThat(settings("ebb://lab/").readCacheBytes).isEqualTo(32 << 20);
    assertThat(settings("ebb://lab/").dirtyBytes).isEqualTo(32 << 20);
    conf.set("fs.ebb.read.cache", "1g");
    conf.set("fs.ebb.dirty", "8m");
    assertThat(settings("ebb://lab/").readCacheBytes).isEqualTo(1L << 30);
    assertThat(settings("ebb://lab/").dirtyBytes).isEqualTo(8 << 20);
  }

  @Test
  void closingWaitsForReceiptUnlessToldOtherwise() throws IOException {
    assertThat(settings("ebb://lab/").syncsAtClose).isFalse();
    conf.set("fs.ebb.close", "synced");
    assertThat(settings("ebb://lab/").syncsAtClose).isTrue();
    conf.set("fs.ebb.close", "perhaps");
    assertThatThrownBy(() -> settings("ebb://lab/")).hasMessageContaining("perhaps");
  }
}
