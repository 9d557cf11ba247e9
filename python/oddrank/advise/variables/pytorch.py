"""PyTorch's environment variables of training. Sources: its documentation, headers and launcher."""

from oddrank.advise.variables.variable import Variable

_NCCL = "docs.pytorch.org, ProcessGroupNCCL Environment Variables"
_HEADER = "torch 2.13, ProcessGroupNCCL.hpp"
_RECORDER = "torch 2.13, FlightRecorder.hpp"
_C10D = "torch 2.15, distributed/c10d and its release notes"
_CUDA = "docs.pytorch.org, CUDA Environment Variables"
_NOTES = "docs.pytorch.org, CUDA semantics"
_ELASTIC = "torch 2.13, torch/distributed/elastic"
_RENAMED = "torch 2.2, c10d/Utils.hpp"
# c10d/Utils.hpp: getCvarBool and getCvarInt.
_BOOL = "y/yes/1/t/true/n/no/0/f/false"
_STOPS = "torch stops with an error"
_NO_DIGIT = "torch stops with an error where the value begins with no digit"
_22 = "torch 2.2"

VARIABLES = (
    Variable("TORCH_NCCL_ASYNC_ERROR_HANDLING",
             "after an error or timeout: 0 nothing, 1 aborts NCCL and ends the process, 2 aborts"
             " NCCL, 3 ends the process", "3 (torchrun sets 1)", since=_22, source=_NCCL,
             takes="0..3", otherwise=_NO_DIGIT),
    Variable("TORCH_NCCL_BLOCKING_WAIT", "1: wait() blocks the CPU until the collective has ended",
             "0", since=_22, source=_NCCL,
             takes=_BOOL, otherwise=_STOPS),
    Variable("TORCH_NCCL_DESYNC_DEBUG", "1: a timeout says which ranks are behind", "0", since=_22,
             source=_NCCL,
             takes=_BOOL, otherwise=_STOPS),
    Variable("TORCH_NCCL_ENABLE_TIMING", "1: measures each collective; may hang the watchdog", "0",
             since=_22, source=_HEADER,
             takes=_BOOL, otherwise=_STOPS),
    Variable("NCCL_ASYNC_ERROR_HANDLING", "as TORCH_NCCL_ASYNC_ERROR_HANDLING",
             instead="TORCH_NCCL_ASYNC_ERROR_HANDLING", source=_RENAMED,
             takes="0..3", otherwise=_NO_DIGIT),
    Variable("NCCL_BLOCKING_WAIT", "as TORCH_NCCL_BLOCKING_WAIT",
             instead="TORCH_NCCL_BLOCKING_WAIT", source=_RENAMED,
             takes=_BOOL, otherwise=_STOPS),
    Variable("NCCL_DESYNC_DEBUG", "as TORCH_NCCL_DESYNC_DEBUG",
             instead="TORCH_NCCL_DESYNC_DEBUG", source=_RENAMED,
             takes=_BOOL, otherwise=_STOPS),
    Variable("NCCL_ENABLE_TIMING", "as TORCH_NCCL_ENABLE_TIMING",
             instead="TORCH_NCCL_ENABLE_TIMING", source=_RENAMED,
             takes=_BOOL, otherwise=_STOPS),
    Variable("TORCH_FR_BUFFER_SIZE", "collectives that the Flight Recorder keeps; 0: off",
             "2000 in torch 2.13", since="torch 2.9", source=_RECORDER,
             takes="0..", otherwise=_NO_DIGIT),
    Variable("TORCH_NCCL_TRACE_BUFFER_SIZE", "older name of TORCH_FR_BUFFER_SIZE, still read",
             "2000 in torch 2.13", source=_RECORDER,
             takes="0..", otherwise=_NO_DIGIT),
    Variable("TORCH_FR_DUMP_TEMP_FILE", "beginning of the names of Flight Recorder dumps",
             since="torch 2.9", source=_RECORDER),
    Variable("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "older name of TORCH_FR_DUMP_TEMP_FILE",
             source=_NCCL),
    Variable("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "pipe: what is written there makes a dump",
             source=_NCCL),
    Variable("TORCH_FR_CPP_STACK", "1: the Flight Recorder keeps C++ stacks", "0",
             source=_RECORDER,
             takes=_BOOL, otherwise=_STOPS),
    Variable("TORCH_NCCL_DUMP_ON_TIMEOUT", "0: a timeout writes no Flight Recorder dump",
             source=_NCCL,
             takes=_BOOL, otherwise=_STOPS),
    Variable("TORCH_NCCL_ENABLE_MONITORING",
             "0: a watchdog that hangs does not end the process, and a timeout writes no dump", "1",
             source=_HEADER,
             takes=_BOOL, otherwise=_STOPS),
    Variable("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "seconds until a watchdog counts as hanging",
             source=_NCCL,
             takes="0..", otherwise=_NO_DIGIT),
    Variable("TORCH_NCCL_COORD_CHECK_MILSEC", "milliseconds between looks for other ranks' errors",
             "1000", source=_NCCL,
             takes="0..", otherwise=_NO_DIGIT),
    Variable("TORCH_FR_DUMP_ON_TIMEOUT", "0: a timeout writes no Flight Recorder dump", "1",
             since="torch 2.14", source=_C10D,
             takes=_BOOL, otherwise=_STOPS),
    Variable("TORCH_FR_WAIT_TIMEOUT_DUMP_MILSEC", "longest wait for a dump, in ms", "15000",
             since="torch 2.14", source=_C10D,
             takes="0..", otherwise=_NO_DIGIT),
    Variable("TORCH_DIST_USE_NCCL2", "0: the back end nccl is that of torch 2.13, not nccl2",
             "0 in torch 2.14, 1 since 2.15", since="torch 2.14", source=_C10D),
    Variable("TORCH_DIST_NAN_CHECK", "1: checks the inputs of collectives for NaN", "0",
             since="torch 2.14", source=_C10D),
    Variable("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "longest wait for a dump before the exit",
             source=_NCCL,
             takes="0..", otherwise=_NO_DIGIT),
    Variable("TORCH_NCCL_NAN_CHECK", "1: checks the inputs of collectives for NaN", "0",
             source=_NCCL,
             takes=_BOOL, otherwise=_STOPS),
    Variable("TORCH_NCCL_HIGH_PRIORITY", "1: collectives run on streams of high priority", "0",
             source=_NCCL,
             takes=_BOOL, otherwise=_STOPS),
    Variable("TORCH_NCCL_AVOID_RECORD_STREAMS",
             "1: keeps references to tensors instead of recording streams", source=_HEADER,
             takes=_BOOL, otherwise=_STOPS),
    Variable("TORCH_NCCL_CUDA_EVENT_CACHE", "1: reuses CUDA events in the watchdog",
             source=_HEADER,
             takes=_BOOL, otherwise=_STOPS),
    Variable("TORCH_NCCL_PROPAGATE_ERROR", "1: tells errors of NCCL to all ranks", source=_HEADER,
             takes=_BOOL, otherwise=_STOPS),
    Variable("TORCH_NCCL_RETHROW_CUDA_ERRORS", "0: the watchdog does not raise CUDA errors", "1",
             source=_HEADER,
             takes=_BOOL, otherwise=_STOPS),
    Variable("TORCH_NCCL_RANKS_PER_ROOT", "ranks that one root serves while NCCL starts",
             source=_HEADER,
             takes="0..", otherwise=_NO_DIGIT),
    Variable("TORCH_NCCL_USE_COMM_NONBLOCKING", "1: non-blocking NCCL communicators",
             source=_CUDA),
    Variable("TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK",
             "1: registers all of torch's GPU memory with NCCL", "0", source=_RENAMED,
             takes=_BOOL, otherwise=_STOPS),
    Variable("TORCH_DISTRIBUTED_DEBUG",
             "OFF, INFO or DETAIL: checks that ranks call the same collectives", "OFF",
             source="docs.pytorch.org, torch.distributed",
             takes="OFF/INFO/DETAIL", otherwise=_STOPS),
    Variable("TORCH_CPP_LOG_LEVEL", "log level of C++: INFO, WARNING, ERROR",
             source="docs.pytorch.org, torch.distributed"),
    Variable("TORCH_SHOW_CPP_STACKTRACES", "1: exceptions show C++ stacks", "0",
             source="docs.pytorch.org, Miscellaneous Environment Variables"),
    Variable("PYTORCH_ALLOC_CONF", "options of the GPU allocator, as expandable_segments:True",
             source=_CUDA),
    Variable("PYTORCH_CUDA_ALLOC_CONF", "older name of PYTORCH_ALLOC_CONF, still read",
             source=_CUDA),
    Variable("PYTORCH_NO_CUDA_MEMORY_CACHING", "1: no cache of GPU memory, for debugging",
             source=_CUDA),
    Variable("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "1: float32 matmuls in TF32, whatever torch says",
             source=_CUDA),
    Variable("TORCHELASTIC_RUN_ID", "name of the job; torchrun sets it", source=_ELASTIC),
    Variable("TORCHELASTIC_RESTART_COUNT", "restarts so far; torchrun sets it", source=_ELASTIC),
    Variable("TORCHELASTIC_MAX_RESTARTS", "restarts allowed; torchrun sets it", source=_ELASTIC),
    Variable("TORCHELASTIC_ERROR_FILE", "file for a rank's exception; torchrun sets it",
             source=_ELASTIC),
    Variable("TORCHELASTIC_USE_AGENT_STORE", "True: the launcher's store serves the ranks",
             source=_ELASTIC),
    Variable("TORCHELASTIC_SIGNALS_TO_HANDLE", "signals that torchrun passes on to its ranks",
             source=_ELASTIC),
    Variable("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "prefix of the lines that torchrun shows",
             source=_ELASTIC),
)  # fmt: skip

# Names of torch 2.13 beside those of the table: its headers, libraries and launcher.
_NAMES = """
    TORCH_NCCL_BCAST_UNIQUEID TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING
    TORCH_NCCL_LOG_CPP_STACK_ON_UNCLEAN_SHUTDOWN TORCH_NCCL_EXTRA_DUMP_ON_EXEC
    TORCH_NCCL_TRACE_CPP_STACK TORCH_FR_DUMP_DYNAMIC_FILE_NAME TORCH_FR_DEBUG_INFO_PIPE_FILE
    TORCHELASTIC_ENABLE_FILE_TIMER TORCHELASTIC_TIMER_FILE TORCHELASTIC_HEALTH_CHECK_PORT
    TORCHELASTIC_ETCD_BINARY_PATH
    TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT GLOO_DEVICE_TRANSPORT GLOO_LOG_LEVEL
    GLOO_DISABLE_CONNECTION_RETRIES GLOO_ENABLE_STORE_V2_API GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER
"""
NAMES = frozenset(_NAMES.split())
