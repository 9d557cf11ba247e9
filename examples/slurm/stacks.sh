#!/bin/sh
# Shows where each rank of a running job is, on all of its nodes, though the job has all their CPUs
# and GPUs. On a login node, as the owner of the job:
#   ./stacks.sh 4711                    a job; 4711_3 an element of an array; 4711.1 a step of it
#   ./stacks.sh 4711 collect -o /shared/evidence      another command of oddrank on all nodes; then
#   oddrank triage /shared/evidence                   which rank is to blame
# The job needs oddrank.arm() or `oddrank run`. Without them py-spy is used, if it is installed.
# Each line begins with its node. Nothing waits longer than $DEADLINE seconds (120).
set -u
if [ $# -eq 0 ]; then
    sed -n 's/^#   //p' "$0" >&2
    exit 2
fi
job=${1%%.*} step=.${1#*.}
[ "$1" != "$job" ] || step=.
shift
found=$(squeue --noheader --jobs "$job" --states RUNNING --format '%A %D' | head -n 1)
[ -n "$found" ] || { echo "job $job does not run: squeue --me" >&2; exit 2; }
number=${found% *} nodes=${found#* }
[ $# -gt 0 ] || set -- trace where "slurm-$number$step"
export PYTHON="${PYTHON:-python3}"
# --gres=none: the training has the GPUs. --immediate: rather fail than wait for the training's end.
# shellcheck disable=SC2016 # each node expands it
timeout "${DEADLINE:-120}" srun --jobid "$number" --overlap --gres=none --immediate=30 \
    --nodes "$nodes" --ntasks "$nodes" --ntasks-per-node 1 --cpus-per-task 1 --kill-on-bad-exit=0 \
    sh -c '
    out=$("$PYTHON" -m oddrank "$@" 2>&1)
    code=$?
    if [ "$code" -ne 0 ] && [ "$1 $2" = "trace where" ] && command -v py-spy >/dev/null; then
        out=$(scontrol listpids "$SLURM_JOB_ID" | awk -v own="$SLURM_STEP_ID" "NR > 1 && \$3 != own" |
            while read -r pid _; do py-spy dump --pid "$pid" 2>/dev/null; done)
        code=0
    fi
    printf "%s\n" "$out" | sed "s/^/$SLURMD_NODENAME: /"
    exit "$code"' stacks "$@"
