# YARN on the hosts of a run: a ResourceManager, and a NodeManager under the name of each host. Sourced.

yarn=org.apache.hadoop.yarn.server
# Milliseconds after which a silent NodeManager is given up: Hadoop's own number.
nodemanager_expiry=600000

# core_site FILE_SYSTEM RUN BLOCK_BYTES CLUSTER_DIRECTORY: the properties by which Hadoop finds the file system: ebb,
# hdfs or file. They are in the array `core` then.
core_site() {
    local run=$2
    core=(hadoop.tmp.dir "$run/tmp")
    case $1 in
        ebb)
            core+=(fs.defaultFS ebb://test/ fs.ebb.impl ebb.hadoop.EbbFileSystem
                fs.AbstractFileSystem.ebb.impl ebb.hadoop.EbbFs fs.ebb.cluster.test "$4"
                net.topology.node.switch.mapping.impl ebb.hadoop.EbbRackMapping)
            ;;
        hdfs) core+=(fs.defaultFS hdfs://master:8020 hadoop.rpc.socket.factory.class.default HostSockets) ;;
        file) core+=(fs.defaultFS file:/// fs.local.block.size "$3") ;;
    esac
    if [ "$1" != ebb ]; then
        core+=(net.topology.node.switch.mapping.impl org.apache.hadoop.net.TableMapping
            net.topology.table.file.name "$run/racks")
    fi
}

# yarn_conf RUN HOSTS STAGING: staging is where jobs put what their tasks need, in the default file system.
yarn_conf() {
    local run=$1 options="${jvm[*]} -Djdk.net.hosts.file=$1/hosts -Xmx400m"
    # A NodeManager looks at its disks once, as it starts, even without the checker, and would not work on one that is
    # nine tenths full.
    write_xml "$run/conf/yarn-site.xml" \
        yarn.resourcemanager.hostname master yarn.resourcemanager.bind-host "$master" \
        yarn.scheduler.minimum-allocation-mb 100 yarn.scheduler.maximum-allocation-mb 3500 \
        yarn.nodemanager.resource.memory-mb 3500 yarn.nodemanager.resource.cpu-vcores 5 \
        yarn.nodemanager.aux-services mapreduce_shuffle yarn.nodemanager.env-whitelist JAVA_HOME,PATH,LANG \
        yarn.nodemanager.vmem-check-enabled false yarn.nodemanager.disk-health-checker.enable false \
        yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage 100 \
        yarn.nodemanager.recovery.enabled false yarn.nm.liveness-monitor.expiry-interval-ms "$nodemanager_expiry" \
        yarn.application.classpath "$(class_path "$run" | tr : ,)"
    # A map waits for a place beside its data until every host has had its turn. Turns are heartbeats, as they were
    # before Hadoop 3.5: the scheduler's own threads would go round all hosts in milliseconds, and no map would wait. A
    # turn gives one container: a job asks for all hosts of each copy, and the scheduler learns which it no longer
    # wants only after the job has seen what it was given.
    write_xml "$run/conf/capacity-scheduler.xml" \
        yarn.scheduler.capacity.root.queues default yarn.scheduler.capacity.root.default.capacity 100 \
        yarn.scheduler.capacity.maximum-am-resource-percent 0.6 yarn.scheduler.capacity.node-locality-delay "$2" \
        yarn.scheduler.capacity.rack-locality-additional-delay "$2" \
        yarn.scheduler.capacity.schedule-asynchronously.enable false \
        yarn.scheduler.capacity.per-node-heartbeat.multiple-assignments-enabled false
    write_xml "$run/conf/mapred-site.xml" \
        mapreduce.framework.name yarn mapreduce.application.classpath "$(class_path "$run" | tr : ,)" \
        yarn.app.mapreduce.am.staging-dir "$3" mapreduce.jobhistory.address master:10020 \
        yarn.app.mapreduce.am.resource.mb 700 mapreduce.map.memory.mb 700 mapreduce.reduce.memory.mb 700 \
        yarn.app.mapreduce.am.command-opts "$options" \
        mapreduce.map.java.opts "$options" mapreduce.reduce.java.opts "$options" \
        mapreduce.task.io.sort.mb 64 mapreduce.job.reduce.slowstart.completedmaps 0.9 \
        mapreduce.map.speculative false mapreduce.reduce.speculative false mapreduce.shuffle.port 0 \
        yarn.app.mapreduce.am.scheduler.heartbeat.interval-ms 100 \
        mapreduce.client.progressmonitor.pollinterval 200 mapreduce.client.completion.pollinterval 200
    cp "$here/log4j.properties" "$run/conf"
}

# start_node_manager RUN HOST
start_node_manager() {
    local run=$1 host=$2
    mkdir -p "$run/yarn/$host"/{local,log}
    start_server "$run" "nodemanager-$host" "$host" 256m $yarn.nodemanager.NodeManager \
        "-Dyarn.nodemanager.hostname=$host" "-Dyarn.nodemanager.bind-host=$(address "$host")" \
        "-Dyarn.nodemanager.address=$host:8041" "-Dyarn.nodemanager.localizer.address=$host:8040" \
        "-Dyarn.nodemanager.webapp.address=$host:8042" \
        "-Dyarn.nodemanager.local-dirs=$run/yarn/$host/local" "-Dyarn.nodemanager.log-dirs=$run/yarn/$host/log"
}

# yarn_start RUN HOST...: after yarn_conf and core-site.xml; returns when every NodeManager runs.
yarn_start() {
    local run=$1 host
    shift
    start_server "$run" resourcemanager master 384m $yarn.resourcemanager.ResourceManager
    for host; do start_node_manager "$run" "$host"; done
    wait_until 150 "the start of $# NodeManagers" yarn_runs $# || {
        show_logs "$run" resourcemanager "${@/#/nodemanager-}"
        return 1
    }
}

# yarn_runs COUNT
yarn_runs() {
    on_host master curl -sf "http://$master:8088/ws/v1/cluster/nodes?states=RUNNING" |
        jq -e --argjson count "$1" '.nodes.node | length == $count'
}

# yarn_stop RUN HOST...: by SIGKILL, for a NodeManager that is asked to end waits for logs to grow old. Its containers
# are ended, too.
yarn_stop() {
    local run=$1
    shift
    kill_processes "$run" "${@/#/nodemanager-}" resourcemanager
    kill_java "$run/yarn"
}
