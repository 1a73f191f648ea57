package ebb.hadoop;

import java.io.IOException;
import java.util.Collections;
import java.util.EnumSet;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.Path;

/** The builder of {@code createFile} and {@code appendFile}. It knows one option, {@link Settings#OPTION_HOSTS}. */
public final class EbbCreateBuilder extends FSDataOutputStreamBuilder<FSDataOutputStream, EbbCreateBuilder> {
  private final EbbFileSystem fileSystem;

  EbbCreateBuilder(EbbFileSystem fileSystem, Path path) {
    super(fileSystem, path);
    this.fileSystem = fileSystem;
  }

  @Override
  public EbbCreateBuilder getThisBuilder() {
    return this;
  }

  @Override
  public FSDataOutputStream build() throws IOException {
    rejectUnknownMandatoryKeys(Collections.singleton(Settings.OPTION_HOSTS), "for " + getPath());
    EnumSet<CreateFlag> flags = EnumSet.copyOf(getFlags());
    if (flags.contains(CreateFlag.OVERWRITE)) {
      flags.add(CreateFlag.CREATE);
    }
    String hosts = getOptions().getTrimmed(Settings.OPTION_HOSTS, "");
    return fileSystem.create(getPath(), getPermission(), flags, isRecursive(), hosts);
  }
}
