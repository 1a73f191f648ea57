package ebb.hadoop;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.IOException;
import org.apache.hadoop.fs.InvalidPathException;
import org.apache.hadoop.fs.InvalidPathHandleException;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.Test;

class StatusesTest {
  private static final Path PATH = new Path("ebb://test/a");

  private static Answer.Status status(int kind, long size, long modifiedNs, int mode, String target)
      throws IOException {
    return Answer.status(new Answers().status(kind, size, modifiedNs, mode, target).done());
  }

  @Test
  void aFileShowsItsBlockSizeAndCopies() throws IOException {
    EbbFileStatus file = Statuses.of(status(Answer.Status.FILE, 10, 1_999_999, 01644, ""), PATH);
    assertThat(file.isFile()).isTrue();
    assertThat(file.getLen()).isEqualTo(10);
    assertThat(file.getBlockSize()).isEqualTo(64 << 20);
    assertThat(file.getReplication()).isEqualTo((short) 3);
    assertThat(file.getModificationTime()).isEqualTo(1);
    assertThat(file.getPermission().toShort()).isEqualTo((short) 01644);
    assertThat(file.hasAcl()).isFalse();
  }

  @Test
  void aDirectoryHasNoSizeForHadoop() throws IOException {
    EbbFileStatus directory = Statuses.of(status(Answer.Status.DIRECTORY, 4096, 0, 0755, ""), PATH);
    assertThat(directory.isDirectory()).isTrue();
    assertThat(directory.getLen() + directory.getBlockSize() + directory.getReplication()).isZero();
    assertThat(directory.getEtag()).isNull();
  }

  @Test
  void timesBefore1970AreRoundedDown() {
    assertThat(Statuses.ms(-1)).isEqualTo(-1);
    assertThat(Statuses.ms(-1_000_000)).isEqualTo(-1);
    assertThat(Statuses.ms(1_999_999)).isEqualTo(1);
  }

  @Test
  void theEtagFollowsSizeAndTime() throws IOException {
    String etag = Statuses.etag(status(Answer.Status.FILE, 10, 5, 0644, ""));
    assertThat(Statuses.etag(status(Answer.Status.FILE, 10, 5, 0600, ""))).isEqualTo(etag);
    assertThat(Statuses.etag(status(Answer.Status.FILE, 11, 5, 0644, ""))).isNotEqualTo(etag);
    assertThat(Statuses.etag(status(Answer.Status.FILE, 10, 6, 0644, ""))).isNotEqualTo(etag);
  }

  @Test
  void aLinkKeepsItsTargetAsItIs() throws IOException {
    assertThat(Statuses.of(status(Answer.Status.LINK, 4, 0, 0777, "../b"), PATH).getSymlink().toString())
        .isEqualTo("../b");
    assertThat(Statuses.target(status(Answer.Status.LINK, 4, 0, 0777, "a:b")).toUri().getPath()).endsWith("a:b");
  }

  @Test
  void halfACharacterIsNoName() {
    assertThat(Texts.bytes(new Path("/\u00e9"))).isEqualTo(new byte[] {'/', (byte) 0xc3, (byte) 0xa9});
    assertThatThrownBy(() -> Texts.bytes(new Path("/a\ud800b"))).isInstanceOf(InvalidPathException.class);
    assertThat(Texts.textOrNull(new byte[] {(byte) 0xff})).isNull();
    assertThat(Texts.textOrNull(new byte[] {'a', ':', 'b'})).isEqualTo("a:b");
  }

  @Test
  void aHandleSurvivesItsBytesAndKnowsItsFile() throws IOException {
    Answer.Status before = status(Answer.Status.FILE, 10, 5, 0644, "");
    Answer.Status after = status(Answer.Status.FILE, 11, 5, 0644, "");
    EbbPathHandle handle = new EbbPathHandle(PATH, Statuses.etag(before), false);
    EbbPathHandle read = EbbPathHandle.of(handle::bytes);
    assertThat(read).isEqualTo(handle);
    assertThat(read.path()).isEqualTo(PATH);
    read.check(before);
    assertThatThrownBy(() -> read.check(after)).isInstanceOf(InvalidPathHandleException.class);
    EbbPathHandle.of(new EbbPathHandle(PATH, Statuses.etag(before), true)::bytes).check(after);
  }

  @Test
  void bytesOfSomethingElseAreNoHandle() {
    assertThatThrownBy(() -> EbbPathHandle.of(() -> java.nio.ByteBuffer.wrap(new byte[] {1, 0, 9, 9})))
        .isInstanceOf(IOException.class);
    assertThatThrownBy(() -> EbbPathHandle.of(() -> java.nio.ByteBuffer.wrap(new byte[] {7})))
        .isInstanceOf(IOException.class);
  }
}
