#!/bin/sh
# Tests every rank of an allocation before the real job. Run it once on each node, as torchrun:
#   NODES=2 NODE_RANK=0 MASTER_ADDR=node0 ./selftest.sh      and on the other node
#   NODES=2 NODE_RANK=1 MASTER_ADDR=node0 ./selftest.sh
# Rank 0's node prints the verdict, and writes the report to $REPORT and the nodes to leave out to
# $EXCLUDE. torchrun turns every non-zero exit code into 1: read the verdict from the report. The
# quick test, about a minute: ./selftest.sh --quick
set -u
python=${PYTHON:-python3}
gpus=$("$python" -c 'import torch; print(torch.cuda.device_count() or 2)')
exec "$python" -m torch.distributed.run \
    --nnodes "${NODES:-1}" --node-rank "${NODE_RANK:-0}" --nproc-per-node "${RANKS_PER_NODE:-$gpus}" \
    --master-addr "${MASTER_ADDR:-127.0.0.1}" --master-port "${MASTER_PORT:-29500}" \
    -m oddrank selftest --deadline "${DEADLINE:-300}" --json "${REPORT:-selftest.json}" \
    --write-exclude "${EXCLUDE:-exclude.txt}" "$@"
