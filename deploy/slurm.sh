#!/bin/bash
# Train on the nodes that Slurm gives: sbatch deploy/slurm.sh cub --run runs/cub
# A worker that dies is started again, and a job that is requeued goes on with --run, which lies
# where the first node sees it again.
#SBATCH --job-name=vicinal
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --requeue
#SBATCH --signal=TERM@120
set -euo pipefail

head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 # else processes meet those that have died
exec srun torchrun \
    --nnodes "$SLURM_JOB_NUM_NODES" \
    --nproc-per-node "${SLURM_GPUS_ON_NODE:-1}" \
    --max-restarts 3 \
    --rdzv-id "$SLURM_JOB_ID" \
    --rdzv-backend c10d \
    --rdzv-endpoint "$head:29400" \
    -m -- vicinal train "$@"
