"""Environment variables of CUDA, OpenMP, MKL, gloo, libfabric and UCX that a training may have."""

from oddrank.advise.variables.variable import Variable

_CUDA = "CUDA programming guide, CUDA Environment Variables"
_OPENMP = "openmp.org, OpenMP specification, Environment Variables"
_OTHERWISE = "what follows depends on the OpenMP library"
_INTEL = "Intel oneMKL and compiler guides"
_GLOO = "docs.pytorch.org, torch.distributed"
_FABRIC = "ofiwg.github.io, man fabric(7) and fi_efa(7)"
_UCX = "openucx.readthedocs.io, Frequently Asked Questions"

VARIABLES = (
    Variable("CUDA_LAUNCH_BLOCKING", "1: each kernel launch waits for the kernel, for debugging",
             "0", source=_CUDA,
             takes="0/1"),
    Variable("CUDA_VISIBLE_DEVICES", "GPUs that this process sees, and their order; empty: none",
             "all", source=_CUDA),
    Variable("CUDA_DEVICE_ORDER", "order of GPUs: FASTEST_FIRST or PCI_BUS_ID", "FASTEST_FIRST",
             source=_CUDA,
             takes="FASTEST_FIRST/PCI_BUS_ID"),
    Variable("CUDA_DEVICE_MAX_CONNECTIONS", "hardware queues of a GPU, 1 to 32", "8",
             source=_CUDA,
             takes="1..32"),
    Variable("CUDA_MODULE_LOADING", "LAZY: loads a kernel at its first launch; EAGER: at the start",
             "LAZY", source=_CUDA,
             takes="LAZY/EAGER/DEFAULT"),
    Variable("CUBLAS_WORKSPACE_CONFIG", "workspaces of cuBLAS; :4096:8 or :16:8: deterministic",
             source="cuBLAS documentation, Results Reproducibility"),
    Variable("NVIDIA_TF32_OVERRIDE", "0: no TF32 in NVIDIA's libraries, for debugging",
             source="cuBLAS documentation",
             takes="0/1"),
    Variable("OMP_NUM_THREADS", "threads of a parallel region on the CPU",
             "the CPUs of the process (torchrun sets 1)", source=_OPENMP,
             takes="1..,", otherwise=_OTHERWISE),
    Variable("OMP_PROC_BIND", "whether threads stay on their CPUs", source=_OPENMP,
             takes="true/false/primary/master/close/spread,", otherwise=_OTHERWISE),
    Variable("OMP_PLACES", "CPUs that threads are bound to", source=_OPENMP),
    Variable("MKL_NUM_THREADS", "threads of MKL; beats OMP_NUM_THREADS there", "as OpenMP",
             source=_INTEL,
             takes="1.."),
    Variable("KMP_AFFINITY", "binding of threads in Intel's OpenMP", source=_INTEL),
    Variable("GLOO_SOCKET_IFNAME", "network interfaces of gloo, separated by commas",
             "that of the host's name", source=_GLOO),
    Variable("FI_PROVIDER", "network provider of libfabric: efa, cxi, tcp, ...", "chosen",
             source=_FABRIC),
    Variable("FI_EFA_USE_DEVICE_RDMA", "RDMA of AWS's EFA: 1 needed, 0 not used", source=_FABRIC),
    Variable("FI_EFA_FORK_SAFE", "1: fork() is safe with AWS's EFA", source=_FABRIC),
    Variable("UCX_TLS", "transports of UCX, as rc,cuda_copy,cuda_ipc", "all", source=_UCX),
    Variable("UCX_NET_DEVICES", "network devices of UCX, as mlx5_0:1", "all", source=_UCX),
)  # fmt: skip
