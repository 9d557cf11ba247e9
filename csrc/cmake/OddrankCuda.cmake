# Decides whether _cuda is built: needs nvcc and nccl.h.
oddrank_part(_cuda "ODDRANK_CUDA is OFF" "")
