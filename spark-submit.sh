#!/usr/bin/env bash
# Submits a job to a cluster, with its packages; or to Spark in one process.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
  cat <<'END'
./spark-submit.sh [--master URL] [any option of spark-submit] JOB.py [options of the job]

  ./spark-submit.sh jobs/settlements_to_refunds.py --config conf/production.toml
  ./spark-submit.sh --master spark://host:7077 jobs/settlements_to_refunds.py --config conf/production.toml

Without --master Spark runs in this process: local[*,4]. To any other master the job takes dist/spark-eos-env.tar.gz
(`make archive`). conf/spark-defaults.conf and conf/log4j2.properties hold; options of yours come after these, so they win.
SPARK_HOME is honoured; else it is the pyspark in .venv. SIGTERM and Ctrl-C let the job end its batch, and stop it.
docs/deploy.md has the settings for standalone, YARN and Kubernetes.
END
}

die() {
  echo "spark-submit.sh: $*" >&2
  exit 2
}

# Master and deploy mode, from the options before the job; and the job.
master='' mode=client job=''
look_at() {
  while (($#)); do
    case $1 in
      -h | --help)
        usage
        exit
        ;;
      --*=*)
        set -- "${1%%=*}" "${1#*=}" "${@:2}"
        continue
        ;;
      --master) master=${2-} ;;
      --deploy-mode) mode=${2-} ;;
      --conf | -c)
        case ${2-} in
          spark.master=*) master=${2#*=} ;;
          spark.submit.deployMode=*) mode=${2#*=} ;;
        esac
        ;;
      --supervise | --verbose | -v | --version | --usage-error | --load-spark-defaults)
        shift
        continue
        ;;
      -*) ;;
      *)
        job=$1
        return
        ;;
    esac
    shift
    if (($#)); then shift; fi
  done
}
look_at "$@"
(($#)) || { usage >&2 && exit 2; }

python=$here/.venv/bin/python
[[ -x $python ]] || die "there is no $python: run 'make install' first."
if [[ -z ${SPARK_HOME-} ]]; then
  SPARK_HOME=$("$python" -c 'import importlib.util as u; print(u.find_spec("pyspark").submodule_search_locations[0])')
  export SPARK_HOME
fi

# An administrator's spark-defaults.conf still holds for what ours does not set.
options=(--properties-file "$here/conf/spark-defaults.conf" --load-spark-defaults)
log4j2=$here/conf/log4j2.properties
[[ -n $master ]] || options+=(--master "${master:=local[*,4]}")

# Spark starts the Python of its data sources by one name on the driver and on executors, and takes the driver's where
# they differ. So the archive is unpacked under the name that the venv has here.
unset PYSPARK_DRIVER_PYTHON
if [[ $master == local || $master == local\[* ]]; then
  export PYSPARK_PYTHON=$python
else
  archive=$here/dist/spark-eos-env.tar.gz
  [[ -f $archive ]] || die "there is no $archive for the executors of $master: run 'make archive' first."
  [[ $mode == cluster || . -ef $here ]] || die "run it in $here: .venv/bin/python must be Python's name there, too."
  export PYSPARK_PYTHON=.venv/bin/python
  options+=(--archives "$archive#.venv" --py-files "$here/dist/jobs.zip")
fi
case ${job##*/} in
  refunds_to_warehouse.py | reconcile.py)
    # Delta Lake's JARs, in the version that the Python package of the venv names.
    options+=(--packages "$("$python" -c 'from delta import configure_spark_with_delta_pip as c
from pyspark.sql import SparkSession; print(c(SparkSession.builder)._options["spark.jars.packages"])')")
    ;;
esac
options+=(--conf "spark.pyspark.python=$PYSPARK_PYTHON" --conf "spark.pyspark.driver.python=$PYSPARK_PYTHON")
if [[ $master == yarn ]]; then
  # YARN puts --files into the folders of executors, and of a driver of its own, before it starts them. No one else does.
  options+=(--files "$log4j2" --conf spark.executor.defaultJavaOptions=-Dlog4j2.configurationFile=log4j2.properties)
  if [[ $mode == cluster ]]; then log4j2=log4j2.properties; fi
fi
if [[ $mode == client || $master == yarn ]]; then
  options+=(--conf "spark.driver.defaultJavaOptions=\"-Dlog4j2.configurationFile=$log4j2\"")
fi

"$SPARK_HOME/bin/spark-submit" "${options[@]}" "$@" &
spark=$!
# The job is a child of the JVM, as Spark's Python workers are. It stops in order when it is asked to; the JVM just ends.
trap 'pkill -TERM -P "$spark" -f -- "${job##*/}" || kill "$spark"' TERM INT
code=0
wait "$spark" || code=$?
while kill -0 "$spark" 2>/dev/null; do
  code=0
  wait "$spark" || code=$?
done
exit "$code"
