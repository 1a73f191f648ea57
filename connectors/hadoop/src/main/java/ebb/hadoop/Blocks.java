package ebb.hadoop;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.net.NetworkTopology;

/**
 * Where the parts of a file lie, as schedulers want to know it.
 *
 * <p>Hosts that serve come first, then those that a power plan wakes, the soonest first. Hosts that it keeps off are
 * left out, for work that is sent there waits; unless they are all, since a location without hosts says that data is
 * lost.
 */
final class Blocks {
  private Blocks() {}

  static BlockLocation[] of(List<Answer.Location> locations) {
    BlockLocation[] blocks = new BlockLocation[locations.size()];
    for (int i = 0; i < blocks.length; i++) {
      blocks[i] = block(locations.get(i));
    }
    return blocks;
  }

  private static BlockLocation block(Answer.Location location) {
    List<Answer.Copy> copies = inOrder(location.copies);
    int count = copies.size();
    String[] names = new String[count];
    String[] hosts = new String[count];
    String[] topology = new String[count];
    String[] storages = new String[count];
    StorageType[] types = new StorageType[count];
    for (int i = 0; i < count; i++) {
      Answer.Copy copy = copies.get(i);
      hosts[i] = copy.host;
      // Programs take a host and a port apart here. There is no port to connect to.
      names[i] = copy.host + ":0";
      topology[i] = rack(copy.rack) + "/" + names[i];
      storages[i] = copy.storage;
      types[i] = StorageType.DISK;
    }
    return new BlockLocation(
        names, hosts, null, topology, storages, types, location.offset, location.length, false);
  }

  static List<Answer.Copy> inOrder(List<Answer.Copy> copies) {
    List<Answer.Copy> ordered = new ArrayList<>(copies);
    ordered.removeIf(copy -> copy.state == Answer.Copy.OFF);
    if (ordered.isEmpty()) {
      ordered.addAll(copies);
    }
    // Of a host with two copies, the scheduler needs to know once.
    ordered.sort(Comparator.comparingInt((Answer.Copy copy) -> copy.state).thenComparingLong(Blocks::wakesInMs));
    List<Answer.Copy> distinct = new ArrayList<>();
    for (Answer.Copy copy : ordered) {
      if (distinct.stream().noneMatch(other -> other.host.equals(copy.host))) {
        distinct.add(copy);
      }
    }
    return distinct;
  }

  private static long wakesInMs(Answer.Copy copy) {
    if (copy.state == Answer.Copy.SERVES) {
      return 0;
    }
    return copy.wakesInMs < 0 ? Long.MAX_VALUE : copy.wakesInMs;
  }

  /** Hadoop's racks begin with a slash. */
  static String rack(String rack) {
    if (rack.isEmpty()) {
      return NetworkTopology.DEFAULT_RACK;
    }
    return rack.startsWith("/") ? rack : "/" + rack;
  }
}
