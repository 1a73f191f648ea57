package ebb.hadoop;

import java.io.IOException;
import java.net.URI;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.net.CachedDNSToSwitchMapping;
import org.apache.hadoop.net.DNSToSwitchMapping;
import org.apache.hadoop.net.NetUtils;
import org.apache.hadoop.net.NetworkTopology;
import org.apache.hadoop.security.UserGroupInformation;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Racks of hosts, as the cluster of the default file system knows them.
 *
 * <p>It is the value of {@code net.topology.node.switch.mapping.impl}.
 *
 * <p>Names are compared as they are, and then as addresses. Hadoop's own cache would turn all names to addresses first,
 * and would mix up the hosts of a cluster on one machine.
 */
public class EbbRackMapping extends CachedDNSToSwitchMapping {
  private static final Logger LOG = LoggerFactory.getLogger(EbbRackMapping.class);
  /** A host that is not known may have been added. It is asked for again, but not with each container. */
  private static final long ASK_AGAIN_NS = 30_000_000_000L;

  /** Where hosts and their racks come from. */
  interface Hosts {
    List<Answer.Host> list() throws IOException;
  }

  private final Hosts hosts;

  // Guarded by this.
  private Map<String, String> racks = Collections.emptyMap();
  private Map<String, String> racksOfAddresses = Collections.emptyMap();
  private long askedAtNs;
  private boolean wasAsked;

  /** Called by Hadoop, which then sets the configuration. */
  public EbbRackMapping() {
    super(new Nothing());
    hosts = this::ask;
  }

  EbbRackMapping(Hosts hosts) {
    super(new Nothing());
    this.hosts = hosts;
  }

  @Override
  public synchronized List<String> resolve(List<String> names) {
    List<String> result = new ArrayList<>(names.size());
    for (String name : names) {
      String rack = find(name);
      if (rack == null && mayAsk()) {
        refresh();
        rack = find(name);
      }
      result.add(rack == null ? NetworkTopology.DEFAULT_RACK : rack);
    }
    return result;
  }

  private String find(String name) {
    String rack = racks.get(name);
    return rack == null ? racksOfAddresses.get(NetUtils.normalizeHostName(name)) : rack;
  }

  private boolean mayAsk() {
    return !wasAsked || System.nanoTime() - askedAtNs > ASK_AGAIN_NS;
  }

  private void refresh() {
    wasAsked = true;
    askedAtNs = System.nanoTime();
    try {
      Map<String, String> byName = new HashMap<>();
      Map<String, String> byAddress = new HashMap<>();
      for (Answer.Host host : hosts.list()) {
        String rack = Blocks.rack(host.rack);
        byName.put(host.name, rack);
        byAddress.putIfAbsent(NetUtils.normalizeHostName(host.name), rack);
      }
      racks = byName;
      racksOfAddresses = byAddress;
    } catch (IOException e) {
      LOG.warn("cannot learn the racks of hosts; those not known yet get {}: {}",
          NetworkTopology.DEFAULT_RACK, e.getMessage());
    }
  }

  /** A session for the moment. Racks are asked for seldom, and the daemon that asks may run for months. */
  private List<Answer.Host> ask() throws IOException {
    URI uri = FileSystem.getDefaultUri(getConf());
    if (!Settings.SCHEME.equals(uri.getScheme())) {
      throw new IOException("the default file system is " + uri + ", and not one of Ebb");
    }
    Settings settings = new Settings(uri, getConf());
    String user = UserGroupInformation.getCurrentUser().getShortUserName();
    try (Session session = Session.open(settings, user)) {
      return Answer.hosts(Native.hosts(session.session()));
    }
  }

  @Override
  public synchronized Map<String, String> getSwitchMap() {
    return new HashMap<>(racks);
  }

  @Override
  public boolean isSingleSwitch() {
    return false;
  }

  @Override
  public synchronized void reloadCachedMappings() {
    wasAsked = false;
    racks = Collections.emptyMap();
    racksOfAddresses = Collections.emptyMap();
  }

  @Override
  public void reloadCachedMappings(List<String> names) {
    reloadCachedMappings();
  }

  @Override
  public String toString() {
    return "EbbRackMapping of " + (getConf() == null ? "nothing yet" : FileSystem.getDefaultUri(getConf()));
  }

  /** The class above wants one, and never asks it, since what would is replaced. */
  private static final class Nothing implements DNSToSwitchMapping {
    @Override
    public List<String> resolve(List<String> names) {
      return Collections.nCopies(names.size(), NetworkTopology.DEFAULT_RACK);
    }

    @Override
    public void reloadCachedMappings() {}

    @Override
    public void reloadCachedMappings(List<String> names) {}
  }
}
