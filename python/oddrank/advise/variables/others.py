"""Environment variables of PyTorch, CUDA, OpenMP, MKL, gloo, libfabric and UCX that a training may
have. Sources of PyTorch's: its documentation, headers and launcher."""

from functools import partial

from oddrank.advise.variables.variable import Variable, rows

# c10d/Utils.hpp: getCvarBool and getCvarInt.
_torch = partial(
    rows,
    product="torch",
    numbers="torch stops with an error where the value begins with no digit",
    words="torch stops with an error",
)
_openmp = partial(rows, numbers="what follows depends on the OpenMP library",
                  words="what follows depends on the OpenMP library")  # fmt: skip
# Newer name -> values of the older name that it has without TORCH_.
_RENAMED = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0..3",
    "TORCH_NCCL_BLOCKING_WAIT": "BOOL",
    "TORCH_NCCL_DESYNC_DEBUG": "BOOL",
    "TORCH_NCCL_ENABLE_TIMING": "BOOL",
}

VARIABLES: tuple[Variable, ...] = (
    *_torch("docs.pytorch.org, ProcessGroupNCCL Environment Variables", """
TORCH_NCCL_ASYNC_ERROR_HANDLING|after an error or timeout: 0 nothing, 1 aborts NCCL and ends the
 process, 2 aborts NCCL, 3 ends the process|3 (torchrun sets 1)|2.2|0..3
TORCH_NCCL_BLOCKING_WAIT|1: wait() blocks the CPU until the collective has ended|0|2.2|BOOL
TORCH_NCCL_DESYNC_DEBUG|1: a timeout says which ranks are behind|0|2.2|BOOL
TORCH_NCCL_DEBUG_INFO_TEMP_FILE|older name of TORCH_FR_DUMP_TEMP_FILE
TORCH_NCCL_DEBUG_INFO_PIPE_FILE|pipe: what is written there makes a dump
TORCH_NCCL_DUMP_ON_TIMEOUT|0: a timeout writes no Flight Recorder dump|||BOOL
TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC|seconds until a watchdog counts as hanging|||0..
TORCH_NCCL_COORD_CHECK_MILSEC|milliseconds between looks for other ranks' errors|1000||0..
TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC|longest wait for a dump before the exit|||0..
TORCH_NCCL_NAN_CHECK|1: checks the inputs of collectives for NaN|0||BOOL
TORCH_NCCL_HIGH_PRIORITY|1: collectives run on streams of high priority|0||BOOL
"""),
    *_torch("torch 2.13, ProcessGroupNCCL.hpp", """
TORCH_NCCL_ENABLE_TIMING|1: measures each collective; may hang the watchdog|0|2.2|BOOL
TORCH_NCCL_ENABLE_MONITORING|0: a watchdog that hangs does not end the process, and a timeout
 writes no dump|1||BOOL
TORCH_NCCL_AVOID_RECORD_STREAMS|1: keeps references to tensors instead of recording streams|||BOOL
TORCH_NCCL_CUDA_EVENT_CACHE|1: reuses CUDA events in the watchdog|||BOOL
TORCH_NCCL_PROPAGATE_ERROR|1: tells errors of NCCL to all ranks|||BOOL
TORCH_NCCL_RETHROW_CUDA_ERRORS|0: the watchdog does not raise CUDA errors|1||BOOL
TORCH_NCCL_RANKS_PER_ROOT|ranks that one root serves while NCCL starts|||0..
"""),
    *_torch("torch 2.13, FlightRecorder.hpp", """
TORCH_FR_BUFFER_SIZE|collectives that the Flight Recorder keeps; 0: off|2000 in torch 2.13|2.9|0..
TORCH_NCCL_TRACE_BUFFER_SIZE|older name of TORCH_FR_BUFFER_SIZE, still read|2000 in torch 2.13||0..
TORCH_FR_DUMP_TEMP_FILE|beginning of the names of Flight Recorder dumps||2.9
TORCH_FR_CPP_STACK|1: the Flight Recorder keeps C++ stacks|0||BOOL
"""),
    *_torch("torch 2.15, distributed/c10d and its release notes", """
TORCH_FR_DUMP_ON_TIMEOUT|0: a timeout writes no Flight Recorder dump|1|2.14|BOOL
TORCH_FR_WAIT_TIMEOUT_DUMP_MILSEC|longest wait for a dump, in ms|15000|2.14|0..
TORCH_DIST_USE_NCCL2|0: the back end nccl is that of torch 2.13, not nccl2|0 in torch 2.14, 1
 since 2.15|2.14
TORCH_DIST_NAN_CHECK|1: checks the inputs of collectives for NaN|0|2.14
TORCH_DIST_INIT_BARRIER|1: a barrier after each new process group|0||0..
TORCH_DISTRIBUTED_USE_TORCHCOMMS|1: torchcomms in the place of NCCL and gloo|0
TORCH_ELASTIC_SHUTDOWN_TIMEOUT|seconds from torchrun's SIGTERM to SIGKILL|30||0..
TORCH_GLOO_LAZY_INIT|1: gloo connects ranks when they first talk|0||BOOL
TORCH_NCCL_TEARDOWN_ON_TIMEOUT|1: a timeout ends the process also if CUDA errors do not|0|2.15|BOOL
TORCH_WATCHDOG_STUCK_ACTION|what torch's watchdog does once stuck: log, abort or exit|log|2.15
TORCH_WATCHDOG_POLL_INTERVAL_SECS|seconds between its looks at the GPU|1|2.15
"""),
    *_torch("docs.pytorch.org, CUDA Environment Variables", """
TORCH_NCCL_USE_COMM_NONBLOCKING|1: non-blocking NCCL communicators
PYTORCH_ALLOC_CONF|options of the GPU allocator, as expandable_segments:True
PYTORCH_CUDA_ALLOC_CONF|older name of PYTORCH_ALLOC_CONF, still read
PYTORCH_NO_CUDA_MEMORY_CACHING|1: no cache of GPU memory, for debugging
TORCH_ALLOW_TF32_CUBLAS_OVERRIDE|1: float32 matmuls in TF32, whatever torch says
"""),
    *_torch("torch 2.2, c10d/Utils.hpp", """
TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK|1: registers all of torch's GPU memory with
 NCCL|0||BOOL
"""),
    *(
        row
        for new, takes in _RENAMED.items()
        for row in _torch("torch 2.2, c10d/Utils.hpp", f"{new[6:]}|as {new}|||{takes}", instead=new)
    ),
    *_torch("docs.pytorch.org, torch.distributed", """
TORCH_DISTRIBUTED_DEBUG|OFF, INFO or DETAIL: checks that ranks call the same
 collectives|OFF||OFF/INFO/DETAIL
TORCH_CPP_LOG_LEVEL|log level of C++: INFO, WARNING, ERROR
GLOO_SOCKET_IFNAME|network interfaces of gloo, separated by commas|that of the host's name
"""),
    *_torch("docs.pytorch.org, Miscellaneous Environment Variables", """
TORCH_SHOW_CPP_STACKTRACES|1: exceptions show C++ stacks|0
"""),
    *_torch("torch 2.13, torch/distributed/elastic", """
TORCHELASTIC_RUN_ID|name of the job; torchrun sets it
TORCHELASTIC_RESTART_COUNT|restarts so far; torchrun sets it
TORCHELASTIC_MAX_RESTARTS|restarts allowed; torchrun sets it
TORCHELASTIC_ERROR_FILE|file for a rank's exception; torchrun sets it
TORCHELASTIC_USE_AGENT_STORE|True: the launcher's store serves the ranks
TORCHELASTIC_SIGNALS_TO_HANDLE|signals that torchrun passes on to its ranks
TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE|prefix of the lines that torchrun shows
"""),
    *rows("CUDA programming guide, CUDA Environment Variables", """
CUDA_LAUNCH_BLOCKING|1: each kernel launch waits for the kernel, for debugging|0||0/1
CUDA_VISIBLE_DEVICES|GPUs that this process sees, and their order; empty: none|all
CUDA_DEVICE_ORDER|order of GPUs: FASTEST_FIRST or PCI_BUS_ID|FASTEST_FIRST||FASTEST_FIRST/PCI_BUS_ID
CUDA_DEVICE_MAX_CONNECTIONS|hardware queues of a GPU, 1 to 32|8||1..32
CUDA_MODULE_LOADING|LAZY: loads a kernel at its first launch; EAGER: at the
 start|LAZY||LAZY/EAGER/DEFAULT
"""),
    *rows("cuBLAS documentation, Results Reproducibility", """
CUBLAS_WORKSPACE_CONFIG|workspaces of cuBLAS; :4096:8 or :16:8: deterministic
"""),
    *rows("cuBLAS documentation", """
NVIDIA_TF32_OVERRIDE|0: no TF32 in NVIDIA's libraries, for debugging|||0/1
"""),
    *_openmp("openmp.org, OpenMP specification, Environment Variables", """
OMP_NUM_THREADS|threads of a parallel region on the CPU|the CPUs of the process (torchrun sets
 1)||1..,
OMP_PROC_BIND|whether threads stay on their CPUs|||true/false/primary/master/close/spread,
OMP_PLACES|CPUs that threads are bound to
"""),
    *rows("Intel oneMKL and compiler guides", """
MKL_NUM_THREADS|threads of MKL; beats OMP_NUM_THREADS there|as OpenMP||1..
KMP_AFFINITY|binding of threads in Intel's OpenMP
"""),
    *rows("ofiwg.github.io, man fabric(7) and fi_efa(7)", """
FI_PROVIDER|network provider of libfabric: efa, cxi, tcp, ...|chosen
FI_EFA_USE_DEVICE_RDMA|RDMA of AWS's EFA: 1 needed, 0 not used
FI_EFA_FORK_SAFE|1: fork() is safe with AWS's EFA
"""),
    *rows("openucx.readthedocs.io, Frequently Asked Questions", """
UCX_TLS|transports of UCX, as rc,cuda_copy,cuda_ipc|all
UCX_NET_DEVICES|network devices of UCX, as mlx5_0:1|all
"""),
)  # fmt: skip
