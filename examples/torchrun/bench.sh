#!/bin/sh
# Measures the collectives of an allocation. Run it once on each node, as you would run torchrun:
#   NODES=2 NODE_RANK=0 MASTER_ADDR=node0 ./bench.sh      and on the other node
#   NODES=2 NODE_RANK=1 MASTER_ADDR=node0 ./bench.sh
# Rank 0's node prints table and verdict and writes the report to $REPORT, for bench compare.
# torchrun turns every non-zero exit code into 1: read the verdict from the report.
set -u
python=${PYTHON:-python3}
gpus=$("$python" -c 'import torch; print(torch.cuda.device_count() or 2)')
exec "$python" -m torch.distributed.run \
    --nnodes "${NODES:-1}" --node-rank "${NODE_RANK:-0}" --nproc-per-node "${RANKS_PER_NODE:-$gpus}" \
    --master-addr "${MASTER_ADDR:-127.0.0.1}" --master-port "${MASTER_PORT:-29500}" \
    -m oddrank bench run --sizes "${SIZES:-8:256M:x4}" ${DEADLINE:+--deadline "$DEADLINE"} \
    --json "${REPORT:-bench.json}" "$@"
