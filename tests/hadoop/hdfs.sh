# HDFS on the hosts of a run: a NameNode, and a DataNode for each host. It is what Ebb is compared with. Sourced.

hdfs=org.apache.hadoop.hdfs.server

# hdfs_conf RUN REPLICATION BLOCK_BYTES
hdfs_conf() {
    write_xml "$1/conf/hdfs-site.xml" \
        dfs.replication "$2" dfs.blocksize "$3" dfs.namenode.fs-limits.min-block-size 65536 \
        dfs.namenode.name.dir "$1/hdfs/name" dfs.namenode.rpc-address master:8020 dfs.namenode.rpc-bind-host "$master" \
        dfs.namenode.http-address "$master:9870" dfs.namenode.safemode.extension 0 \
        dfs.client.use.datanode.hostname true dfs.datanode.use.datanode.hostname true \
        dfs.namenode.handler.count 4 dfs.datanode.handler.count 3 dfs.datanode.directoryscan.interval -1
}

# hdfs_start RUN HOST...: after hdfs_conf and the rest of the configuration.
hdfs_start() {
    local run=$1 host
    shift
    hadoop "$run" $hdfs.namenode.NameNode -format -force -nonInteractive >"$run/logs/format" 2>&1 || {
        show_logs "$run" format
        return 1
    }
    start_server "$run" namenode master 256m $hdfs.namenode.NameNode
    for host; do
        mkdir -p "$run/hdfs/$host"
        start_server "$run" "datanode-$host" "$host" 192m $hdfs.datanode.DataNode \
            "-Ddfs.datanode.data.dir=$run/hdfs/$host" "-Ddfs.datanode.hostname=$host" \
            "-Ddfs.datanode.address=$(address "$host"):9866" "-Ddfs.datanode.ipc.address=$(address "$host"):9867" \
            "-Ddfs.datanode.http.address=$(address "$host"):9864"
    done
    wait_until 120 "the start of $# DataNodes" hdfs_serves $# || {
        show_logs "$run" namenode "${@/#/datanode-}"
        return 1
    }
}

# hdfs_serves COUNT: whether so many DataNodes live, and the NameNode lets write.
hdfs_serves() {
    on_host master curl -sf "http://$master:9870/jmx?qry=Hadoop:service=NameNode,name=*" | jq -e --argjson count "$1" \
        '([.beans[].NumLiveDataNodes // empty] | max) == $count and ([.beans[].Safemode // empty] | all(. == ""))'
}

# hdfs_stop RUN HOST...
hdfs_stop() {
    local run=$1
    shift
    stop_processes "$run" "${@/#/datanode-}" namenode
}
