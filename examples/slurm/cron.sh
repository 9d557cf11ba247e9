#!/bin/sh
#SBATCH --ntasks=1
#SBATCH --time=00:30:00
#SBATCH --requeue
# Runs commands every hour, every day, ... on a cluster without cron: each run is a small SLURM job
# that first queues the next one. Partition and account: SBATCH_PARTITION and SBATCH_ACCOUNT, or
# lines above.
#   ./cron.sh start hourly now+1hour            runs all executables of ./cron.hourly/
#   ./cron.sh start daily 03:30                 those of ./cron.daily/, at 03:30
#   ./cron.sh start usage now+10minutes du -sh /shared/run17          runs one command
#   ./cron.sh status hourly                     the next run, and how the last one ended
#   ./cron.sh stop hourly                       ends a run that is under way, too
# The first run is at that time, too (as sbatch --begin understands it). start does nothing if there
# is a job already: repeat it as you like. A command that fails, or runs for more than $LIMIT
# seconds (600), keeps neither the others nor the next run from starting. The folders and the logs,
# cron.NAME.log/, are in $CRON_DIR (the current folder). Logs stay for $KEEP_DAYS (7).
set -u
alive=PENDING,CONFIGURING,RUNNING,SUSPENDED

usage() {
    sed -n 's/^#   //p' "$0" >&2
    exit 2
}

# Prints the numbers of this cron's jobs in these states.
jobs_in() {
    squeue --noheader --user "$(id -un)" --name "$job" --states "$1" --format %A
}

# Queues a run. By singleton a run never overlaps the one before it.
submit() {
    sbatch --parsable --job-name "$job" --begin "$when" --dependency singleton \
        --output "$logs/%j.out" "$script" run "$name" "$when" "$@"
}

start() {
    queued=$(jobs_in "$alive") || exit 1
    if [ -n "$queued" ]; then
        echo "$job is job $(echo "$queued" | tail -n 1) already; to change it: $0 stop $name" >&2
        return
    fi
    if [ $# -eq 0 ] && [ ! -d "cron.$name" ]; then
        echo "there is no folder $PWD/cron.$name: make it, or give a command" >&2
        exit 2
    fi
    mkdir -p "$logs"
    number=$(submit "$@") || exit 1
    echo "$job is job $number"
}

status() {
    if [ -f "$logs/last" ]; then cat "$logs/last"; else echo "$job: no run has ended yet"; fi
    queued=$(jobs_in "$alive") || exit 1
    if [ -z "$queued" ]; then
        echo "$job is not queued: $0 start $name ..." >&2
        exit 1
    fi
    squeue --user "$(id -un)" --name "$job" --format '%.10i %.20j %.10T %.20S %R'
}

stop() {
    # Again and again, since a run that is under way may queue the next one.
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        queued=$(jobs_in "$alive") || exit 1
        [ -n "$queued" ] || { echo "$job is not queued"; return; }
        scancel --user "$(id -un)" --name "$job"
        sleep 1
    done
    echo "$job does not end: job $(echo "$queued" | head -n 1)" >&2
    exit 1
}

# Queues the next run, unless there is one: of a run that SLURM started again, or of two starts.
queue_next() {
    tries=0
    until next=$(jobs_in PENDING) && { [ -n "$next" ] || next=$(submit "$@"); }; do
        tries=$((tries + 1))
        [ "$tries" -lt 10 ] || { echo "the next run can't be queued" >&2; return 1; }
        sleep 30
    done
    echo "next: job $(echo "$next" | head -n 1), $when"
}

run_one() {
    count=$((count + 1))
    timeout --kill-after 10 "${LIMIT:-600}" "$@" && return
    code=$?
    echo "$1 ended with $code" >&2
    failed="$failed $1 ($code)"
}

run() {
    number=$SLURM_JOB_ID count=0 failed=
    # Jobs that the commands submit must not take this job's size for theirs.
    for variable in $(env | grep -Eo '^SLURM_[A-Z0-9_]+'); do
        case $variable in SLURM_CONF | SLURM_CLUSTERS | SLURM_JWT) continue ;; esac
        unset "$variable"
    done
    queue_next "$@" || failed=" sbatch"
    find "$logs" -name '*.out' -mtime "+${KEEP_DAYS:-7}" -exec rm -f {} +
    if [ $# -gt 0 ]; then
        run_one "$@"
    else
        for file in "cron.$name"/*; do
            if [ -f "$file" ] && [ -x "$file" ]; then run_one "./$file"; fi
        done
    fi
    echo "$job: job $number ended $(date '+%F %T'), $count run, failed:${failed:- none}" |
        tee "$logs/last"
    [ -z "$failed" ]
}

[ $# -ge 2 ] || usage
order=$1 name=$2 job=cron-$2 logs=cron.$2.log
shift 2
case $name in
'' | *[!A-Za-z0-9_-]*) usage ;;
esac
case $order in
start | run)
    [ $# -ge 1 ] || usage
    when=$1 script=$0 # a run queues SLURM's copy: this file may be gone
    shift
    ;;
status | stop) ;;
*) usage ;;
esac
if [ "$order" != run ]; then # a run is there already
    script=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
    cd "${CRON_DIR:-.}" || exit 2
fi
"$order" "$@"
