# Runs Spark programs. Sourced.

# spark_submit RUN MASTER DIRECTORY PROGRAM ARGUMENT...: DIRECTORY is for what Spark itself keeps.
spark_submit() {
    local run=$1 master_url=$2 directory=$3 home options
    shift 3
    home=$(echo "$cache"/spark/lib/python3*/site-packages/pyspark)
    options="${jvm[*]} -Djdk.net.hosts.file=$run/hosts"
    local settings=(
        # Its jars are on every host already.
        spark.yarn.jars="local:$home/jars/*" spark.yarn.stagingDir="$directory/staging"
        # Else Spark takes the address of a network card.
        spark.yarn.appMasterEnv.SPARK_LOCAL_IP=127.0.0.1 spark.executorEnv.SPARK_LOCAL_IP=127.0.0.1
        spark.driver.host=localhost spark.driver.bindAddress=127.0.0.1 spark.ui.enabled=false
        spark.driver.extraClassPath="$run/lib/*:$cache/classes"
        spark.executor.extraClassPath="$run/lib/*:$cache/classes"
        spark.executor.extraJavaOptions="$options" spark.yarn.am.extraJavaOptions="$options"
        spark.executor.instances=2 spark.executor.cores=1 spark.executor.memory=512m
        spark.executor.memoryOverhead=256m spark.yarn.am.memory=450m
        spark.sql.shuffle.partitions=4 spark.sql.warehouse.dir="$directory/warehouse"
        spark.eventLog.enabled=true spark.eventLog.dir="$directory/events" spark.eventLog.compress=false
        spark.eventLog.rolling.enabled=false
    )
    local setting arguments=()
    for setting in "${settings[@]}"; do arguments+=(--conf "$setting"); done
    SPARK_HOME=$home HADOOP_CONF_DIR=$run/conf SPARK_LOCAL_IP=127.0.0.1 PYSPARK_PYTHON=$cache/spark/bin/python \
        "$home/bin/spark-submit" --master "$master_url" --deploy-mode client --driver-memory 512m \
        --driver-java-options "$options" "${arguments[@]}" "$@" </dev/null
}
