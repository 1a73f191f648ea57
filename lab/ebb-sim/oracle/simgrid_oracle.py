"""Runs flow graphs in SimGrid: cases as JSON on stdin, the same cases with the times at which flows ended on stdout.

A resource is a link, a flow a message over a route of links; the network model is the plain one (CM02 without
corrections), which shares links max-min fairly. SimGrid keeps one world for a process, so each case has a process of its own.
"""

import json
import multiprocessing
import sys


def run(case):
    """When each flow of the case ends."""
    from simgrid import Actor, Comm, Engine, LinkInRoute, NetZone, this_actor

    engine = Engine(["oracle", "--log=root.threshold:error"])
    for setting in [
        "network/model:CM02",
        "network/TCP-gamma:0",
        "network/bandwidth-factor:1",
        "network/latency-factor:1",
        "network/weight-S:0",
        "network/crosstraffic:0",
    ]:
        Engine.set_config(setting)
    # The same settings were renamed between versions 3 and 4.
    for old, new in [("maxmin/precision:1e-9", "precision/work-amount:1e-9"), ("surf/precision:1e-9", "precision/timing:1e-9")]:
        try:
            Engine.set_config(new)
        except IndexError:
            Engine.set_config(old)
    zone = NetZone.create_full_zone("zone")
    links = []
    for index, resource in enumerate(case["resources"]):
        link = zone.create_link(f"link{index}", resource)
        link.set_latency(0.0)
        links.append(link.seal())
    hosts = []
    for index, flow in enumerate(case["flows"]):
        source = zone.create_host(f"source{index}", 1e9)
        target = zone.create_host(f"target{index}", 1e9)
        route = [LinkInRoute(links[used]) for used in flow["uses"]]
        if flow["limit"] is not None:
            # A limit is a link of its own.
            own = zone.create_link(f"limit{index}", flow["limit"])
            own.set_latency(0.0)
            route.append(LinkInRoute(own.seal()))
        zone.add_route(source.netpoint, target.netpoint, None, None, route, False)
        hosts.append((source, target))
    home = zone.create_host("home", 1e9)
    zone.seal()

    ends = [None] * len(case["flows"])
    waits = [len(flow["after"]) for flow in case["flows"]]

    def carry(index):
        flow = case["flows"][index]
        this_actor.sleep_for(flow["delay"])
        comm = Comm.sendto_init(*hosts[index])
        comm.set_payload_size(flow["amount"])
        comm.wait()
        ends[index] = engine.clock
        for later, other in enumerate(case["flows"]):
            if index in other["after"]:
                waits[later] -= 1
                if waits[later] == 0:
                    Actor.create(f"flow{later}", home, carry, later)

    for index, flow in enumerate(case["flows"]):
        if not flow["after"]:
            Actor.create(f"flow{index}", home, carry, index)
    engine.run()
    return ends


def scaled(case, factor):
    """The same case with units so much smaller, for payloads in SimGrid are whole numbers."""
    return {
        "resources": [one * factor for one in case["resources"]],
        "flows": [
            {**one, "amount": round(one["amount"] * factor), "limit": one["limit"] and one["limit"] * factor}
            for one in case["flows"]
        ],
    }


def child(case, pipe):
    pipe.send(run(case))


def main():
    import simgrid

    cases = json.load(sys.stdin)
    ends = []
    for case in cases:
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.Process(target=child, args=(scaled(case, 1e9), theirs))
        process.start()
        theirs.close()
        try:
            ends.append(ours.recv())
        except EOFError:
            sys.exit(f"SimGrid did not get through {case['name']!r}; its messages are above")
        process.join()
    json.dump({"simgrid": simgrid.simgrid_version, "cases": cases, "ends": ends}, sys.stdout)
    sys.stdout.write("\n")


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    main()
