"""The table of environment variables.

Sources of NCCL's: its user guide and source code, version 2.30.7; what came since, the guide of
2.32.3 on diagnostics, and its library. Of PyTorch's: its documentation, headers and launcher.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

# Short for the values of many rows.
_VALUES = {
    "LEVEL": "LOC/NVL/NVB/C2C/PIX/PXB/PXN/P2C/PHB/SYS/NET/DIS/0..",
    "BOOL": "y/yes/1/t/true/n/no/0/f/false",
}
_NUMBER = re.compile(r"[+-]?(0x[0-9a-f]{1,16}|[0-9]{1,20})", re.IGNORECASE)


@dataclass(frozen=True)
class Variable:
    """An environment variable.

    default: "" if unset means off or nothing. since, until: versions, "" if unknown; until: the
    version that no longer reads it. instead: the name that took its place. source: where all this
    is documented. takes: its values, as words and ranges of whole numbers (`LOC/SYS/0..5`, `1..`);
    a comma at the end: or a list of them; "": any. otherwise: what the library does with others,
    "" if unknown.
    """

    name: str
    does: str
    default: str = ""
    since: str = ""
    until: str = ""
    instead: str = ""
    source: str = ""
    takes: str = ""
    otherwise: str = ""

    def allows(self, value: str) -> bool:
        """Returns whether the variable takes a value. An empty one is as good as none."""
        parts = value.split(",") if self.takes.endswith(",") else [value]
        wanted = self.takes.removesuffix(",").split("/")
        return (
            not self.takes
            or not value.strip()
            or all(any(_fits(one, part.strip()) for one in wanted) for part in parts)
        )

    @property
    def versions(self) -> str:
        """Returns `since torch 2.2`, `until NCCL 2.5` or "", and the name to use instead."""
        known = [f"since {self.since}" * bool(self.since), f"until {self.until}" * bool(self.until)]
        known.append(f"now {self.instead}" * bool(self.instead))
        return ", ".join(filter(None, known))


def _fits(one: str, text: str) -> bool:
    low, is_range, high = one.partition("..")
    if not is_range and not one.isdigit():
        return one.lower() == text.lower()
    if not _NUMBER.fullmatch(text):
        return False
    number = int(text, 16 if "x" in text.lower() else 10)
    if not is_range:
        return number == int(one)
    return (not low or number >= int(low)) and (not high or number <= int(high))


def rows(
    source: str,
    text: str,
    *,
    product: str = "",
    prefix: str = "",
    numbers: str = "",
    words: str = "",
    instead: str = "",
) -> Iterator[Variable]:
    """Yields the rows of a text: `name|what it does|default|since version|values`.

    A line that begins with a blank goes on with the line before. product: of the versions. prefix:
    of the names. numbers, words: `otherwise` of rows that take numbers, and of all others.
    """
    for line in text.strip().replace("\n ", " ").splitlines():
        name, does, default, since, takes = (*line.split("|"), "", "", "")[:5]
        has_numbers = any(one[:1] in ".0123456789" for one in takes.split("/") if one)
        yield Variable(
            f"{prefix}{name}", does, default, since=f"{product} {since}" if since else "",
            instead=instead, source=source, takes=_VALUES.get(takes, takes),
            otherwise=numbers if has_numbers else words,
        )  # fmt: skip


_GUIDE = "NCCL 2.30 user guide, Environment Variables"
_EXPERIMENTS = "NCCL 2.30 user guide: for experiments, not for production"

# See rows(); names are without NCCL_.
_SYSTEM = """
SOCKET_IFNAME|IP interfaces: prefixes, = exact names, ^ all but these|ib* first, not lo, docker*||
SOCKET_FAMILY|forces IPv4 (AF_INET) or IPv6 (AF_INET6)|||AF_INET/AF_INET6
SOCKET_NTHREADS|threads of a TCP connection|1, 2 on AWS, 4 with gVNIC|2.4.8|0..
NSOCKS_PERTHREAD|TCP sockets of such a thread|1, 8 on AWS|2.4.8|0..
CROSS_NIC|rings and trees may change NICs between nodes: 0 no, 1 yes, 2 if faster|2||0..2
IB_HCA|RDMA devices: prefixes, = exact names, ^ all but these|all||
IB_TIMEOUT|InfiniBand timeout, 4.096 us x 2^value; 0 or over 31: endless|20, 18 before 2.23||0..
IB_RETRY_CNT|InfiniBand retries, each of IB_TIMEOUT|7|2.1.15|0..
IB_GID_INDEX|GID index with RoCE|-1|2.1.4|-1..
IB_SL|InfiniBand service level|0|2.1.4|-1..
IB_TC|InfiniBand traffic class|0|2.1.15|-1..
NET|the network: IB, Socket or a plugin's name|chosen|2.10|
NET_PLUGIN|library of a network plugin, or none|libnccl-net.so|2.11|
TUNER_PLUGIN|library of a tuner plugin, or none|libnccl-tuner.so||
PROFILER_PLUGIN|library of a profiler plugin, or none|libnccl-profiler.so||
IGNORE_CPU_AFFINITY|1: ignores the job's CPU affinity, uses the GPU's|0|2.4.6|0/1
CONF_FILE|file with such settings|.nccl.conf in $HOME|2.23|
DEBUG|log level: VERSION, WARN, INFO or TRACE|off||NONE/VERSION/WARN/INFO/ABORT/TRACE
DEBUG_FILE|file of the log; %h is the host, %p the pid|stdout|2.2.12|
DEBUG_SUBSYS|parts that log at INFO|INIT,BOOTSTRAP,ENV|2.3.4|
COLLNET_ENABLE|1: uses the CollNet plugin|0|2.6|0/1
CTA_POLICY|how many SMs to take: DEFAULT, EFFICIENCY, ZERO|DEFAULT|2.27|
TOPO_FILE|XML file with the topology|virtualTopology.xml|2.6|
TOPO_DUMP_FILE|file to write the topology to||2.6|
MULTI_RANK_GPU_ENABLE|1: several ranks may share a GPU (experimental)|0|2.30|0/1
SET_THREAD_NAME|1: names NCCL's threads|0|2.12|0/1
RAS_ENABLE|0: no RAS, which ncclras asks for the state of a job|1|2.24|0/1
RAS_ADDR|address at which RAS listens|localhost:28028|2.24|
RUN_RAS_DIAGNOSTICS|1: RAS compares GPUs, driver and settings of all ranks at the start|0|2.31|0/1
"""
# The guide's section Debugging.
_DEBUGGING = """
P2P_DISABLE|1: no direct access between GPUs by NVLink or PCIe|0||0/1
P2P_LEVEL|longest way for direct access: LOC (never), NVL, PIX, PXB, PHB, SYS|chosen|2.3.4|LEVEL
P2P_DIRECT_DISABLE|1: no access to user buffers of GPUs of the same process|0||0/1
SHM_DISABLE|1: no shared memory; GPUs without direct access use the network|0||0/1
BUFFSIZE|bytes of the buffer between two GPUs|4194304||0..
NTHREADS|CUDA threads of a block|512, 256 on older GPUs||0..
MAX_NCHANNELS|most channels; deprecated since 2.17: NCCL_MAX_CTAS|chosen|2.5|0..
MIN_NCHANNELS|fewest channels; deprecated since 2.17: NCCL_MIN_CTAS|chosen|2.5|0..
CHECKS_DISABLE|1: no checks of arguments; deprecated since 2.2.12|0|2.0.5|0/1
CHECK_POINTERS|1: checks pointers; deprecated since 2.29.7: NCCL_CHECK_MODE|0|2.2.12|0/1
CHECK_MODE|checks of arguments: DEFAULT, DEBUG_LOCAL, DEBUG_GLOBAL|DEFAULT|2.29.7|
LAUNCH_MODE|how kernels are launched; GROUP is deprecated since 2.9|PARALLEL|2.1|PARALLEL/GROUP
RUN_DIAGNOSTICS|1: tries the paths between GPUs at the start|0|2.31|0/1
IB_WQE_LATENCY_THRESHOLD_NS|logs InfiniBand requests that take longer, with both ends|off|2.32|0..
PROGRESS_COUNTERS|1: kernels count their progress on the GPU|0|2.32|0/1
PROGRESS_COUNTER_MONITOR_POLL_MS|time between two looks at these counters||2.32|0..
PROGRESS_COUNTER_MONITOR_STALE_MS|time after which one that stands is stale||2.32|0..
IB_DISABLE|1: no InfiniBand or RoCE, TCP instead|0||0/1
IB_QPS_PER_CONNECTION|queue pairs of a connection|1|2.10|1..
IB_SPLIT_DATA_ON_QPS|1: splits each message over the queue pairs|0, 1 before 2.20|2.18|0/1
IB_PCI_RELAXED_ORDERING|relaxed ordering: 0 no, 1 needed, 2 if available|2|2.12|0..2
IB_ADAPTIVE_ROUTING|adaptive routing|1 on IB, 0 on RoCE|2.16|0/1
IB_MERGE_NICS|0: does not merge the ports of a dual-port NIC|1|2.20|0/1
CUMEM_ENABLE|cuMem allocations|chosen, 0 in 2.18|2.18|..
NET_GDR_LEVEL|longest way from GPU to NIC for GPUDirect RDMA: LOC (never) to SYS|chosen|2.3.4|LEVEL
ALGO|algorithms to choose from: Ring, Tree, NVLS, ...|all|2.5|
PROTO|protocols to choose from: LL, LL128, Simple|all that are safe|2.5|
NVB_DISABLE|1: no NVLink way through another GPU|0|2.11|0/1
PXN_DISABLE|1: no way to a NIC through another GPU|0|2.12|0/1
DMABUF_ENABLE|0: no GPUDirect RDMA by dma-buf|1|2.13|0/1
P2P_NET_CHUNKSIZE|bytes of a message of send and recv|131072|2.14|0..
ALLOC_P2P_NET_LL_BUFFERS|1: LL buffers for all network connections|0|2.14|0/1
COMM_BLOCKING|0: NCCL's calls return at once|by the communicator|2.14|0/1
MAX_CTAS|most blocks that NCCL may use|chosen|2.17|0..
MIN_CTAS|fewest blocks that NCCL uses|chosen|2.17|0..
NVLS_ENABLE|0: no NVLink SHARP|2|2.17|0..2
MNNVL_ENABLE|multi-node NVLink: 0 no, 1 needed, 2 if available|2|2.21|0..2
GRAPH_MIXING_SUPPORT|0: no NCCL calls beside CUDA graphs that have some|1|2.13|0/1
LAUNCH_ORDER_IMPLICIT|1: orders the work of communicators as the host does|0|2.26|..
"""
# Name without NCCL_, what it did, the version that removed it, the variable to use instead.
_REMOVED = (
    ("IB_CUDA_SUPPORT", "GPUDirect RDMA", "2.4", "NCCL_NET_GDR_LEVEL"),
    ("IB_GDR_LEVEL", "GPUDirect RDMA", "2.4", "NCCL_NET_GDR_LEVEL"),
    ("SINGLE_RING_THRESHOLD", "bytes below which one ring is used", "2.3", ""),
    ("LL_THRESHOLD", "bytes below which LL is used", "2.5", "NCCL_PROTO"),
    ("TREE_THRESHOLD", "bytes below which trees are used", "2.5", "NCCL_ALGO"),
)

# src/misc/param.cc and debug.cc.
_rows = partial(
    rows,
    product="NCCL",
    prefix="NCCL_",
    numbers="NCCL reads the digits it begins with; without any, 0 or the default, by version",
    words="NCCL ignores other words",
)
_OF_NCCL: tuple[Variable, ...] = (
    *_rows(_GUIDE, _SYSTEM),
    *_rows(_EXPERIMENTS, _DEBUGGING),
    *(
        Variable(f"NCCL_{name}", did, until=f"NCCL {version}", instead=instead, source=_GUIDE)
        for name, did, version, instead in _REMOVED
    ),
)


# Of PyTorch, CUDA, OpenMP, MKL, gloo, libfabric and UCX.
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

_OTHERS: tuple[Variable, ...] = (
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


TABLE: dict[str, Variable] = {row.name: row for row in (*_OF_NCCL, *_OTHERS)}
"""Name -> its row."""
KNOWN = {
    *TABLE,
    "NCCL_ENV_PLUGIN",
    "NCCL_NVTX_DISABLE",
    "NCCL_P2P_NVL_CHUNKSIZE",
    "NCCL_PAT_ENABLE",
}
"""Names of the table, and other names of NCCL that are so near to them that they look misspelt."""
FAMILIES = (
    "NCCL_", "TORCH_", "TORCHELASTIC_", "PYTORCH_", "OMP_", "MKL_", "KMP_", "GLOO_", "CUDA_",
    "CUBLAS_", "NVIDIA_TF32_", "UCX_", "FI_",
)  # fmt: skip
"""Variables with these beginnings are listed."""
