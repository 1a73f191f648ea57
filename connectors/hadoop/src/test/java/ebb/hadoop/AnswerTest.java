package ebb.hadoop;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.IOException;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;

class AnswerTest {
  @Test
  void aStatusHasAllItsFields() throws IOException {
    byte[] bytes =
        new Answers().u8(2).i64(9).i64(5).i64(1_500_000).i64(-1).i32(01755).text("ada").text("staff").i32(3)
            .i64(64 << 20).u8(1).text("../b").done();
    Answer.Status status = Answer.status(bytes);
    assertThat(status.isLink()).isTrue();
    assertThat(status.inode).isEqualTo(9);
    assertThat(status.size).isEqualTo(5);
    assertThat(status.modifiedNs).isEqualTo(1_500_000);
    assertThat(status.accessedNs).isEqualTo(-1);
    assertThat(status.mode).isEqualTo(01755);
    assertThat(status.owner).isEqualTo("ada");
    assertThat(status.group).isEqualTo("staff");
    assertThat(status.copies).isEqualTo(3);
    assertThat(status.metablockSize).isEqualTo(64 << 20);
    assertThat(status.hasAcl).isTrue();
    assertThat(Statuses.target(status).toString()).isEqualTo("../b");
  }

  @Test
  void aPageTellsFilesWithLocationsFromDirectories() throws IOException {
    byte[] bytes =
        new Answers().i64(42).i32(2)
            .text("file").status(0, 10, 0, 0644, "").i32(1).i64(0).i64(10).i32(1).copy("h1", "r1", 1, 250)
            .text("dir").status(1, 0, 0, 0755, "").i32(-1)
            .done();
    Answer.Page page = Answer.page(bytes);
    assertThat(page.next).isEqualTo(42);
    assertThat(page.entries).hasSize(2);
    Answer.Copy copy = page.entries.get(0).locations.get(0).copies.get(0);
    assertThat(copy.host).isEqualTo("h1");
    assertThat(copy.rack).isEqualTo("r1");
    assertThat(copy.storage).isEqualTo("v-h1");
    assertThat(copy.state).isEqualTo(Answer.Copy.SLEEPS);
    assertThat(copy.wakesInMs).isEqualTo(250);
    assertThat(page.entries.get(1).locations).isNull();
    assertThat(page.entries.get(1).status.isDirectory()).isTrue();
  }

  @Test
  void anOpenedFileHasItsNumberBeforeItsStatus() throws IOException {
    Answer.Opened opened = Answer.opened(new Answers().i64(77).status(0, 3, 0, 0600, "").done());
    assertThat(opened.file).isEqualTo(77);
    assertThat(opened.status.size).isEqualTo(3);
  }

  @Test
  void aDatasetHasAllItsFields() throws IOException {
    byte[] bytes =
        new Answers().text("/d").i64(1).i64(2).i64(3).i64(4).i32(5).i32(6).i64(7).i64(8).done();
    Answer.Dataset dataset = Answer.dataset(bytes);
    assertThat(dataset.root).isEqualTo("/d");
    assertThat(
            Arrays.asList(
                dataset.quotaBytes, dataset.quotaInodes, dataset.usedBytes, dataset.usedInodes,
                (long) dataset.trashSeconds, (long) dataset.copies, dataset.metablockSize, dataset.blockSize))
        .containsExactly(1L, 2L, 3L, 4L, 5L, 6L, 7L, 8L);
  }

  @Test
  void hostsAndTextsAreRead() throws IOException {
    List<Answer.Host> hosts = Answer.hosts(new Answers().i32(1).text("h1").text("r1").done());
    assertThat(hosts.get(0).name + hosts.get(0).rack).isEqualTo("h1r1");
    assertThat(Answer.acl("user::rw-\n\nother::---\n".getBytes())).containsExactly("user::rw-", "other::---");
    assertThat(Answer.names("user.a\0trusted.b\0".getBytes())).containsExactly("user.a", "trusted.b");
    assertThat(Answer.names(new byte[0])).isEmpty();
  }

  @Test
  void everyAnswerThatIsCutShortIsRefusedWithAHint() {
    byte[] whole = new Answers().i64(77).status(0, 3, 0, 0600, "x").done();
    for (int length = 0; length < whole.length; length++) {
      byte[] cut = Arrays.copyOf(whole, length);
      assertThatThrownBy(() -> Answer.opened(cut)).isInstanceOf(IOException.class).hasMessageContaining("version");
    }
  }

  @Test
  void anAnswerWithBytesLeftIsRefused() {
    byte[] longer = new Answers().status(0, 3, 0, 0600, "").u8(0).done();
    assertThatThrownBy(() -> Answer.status(longer)).isInstanceOf(IOException.class).hasMessageContaining("version");
  }

  @Test
  void aWrongCountDoesNotTakeMemory() {
    byte[] wrong = new Answers().i64(0).i32(Integer.MAX_VALUE).done();
    assertThatThrownBy(() -> Answer.page(wrong)).isInstanceOf(IOException.class);
    byte[] negative = new Answers().i32(-5).done();
    assertThatThrownBy(() -> Answer.locations(negative)).isInstanceOf(IOException.class);
  }
}
