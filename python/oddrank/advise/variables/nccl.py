"""NCCL's environment variables. Sources: its user guide and source code, version 2.30.7; what came
since, the guide of 2.32.3 on diagnostics, and its library."""

from functools import partial

from oddrank.advise.variables.variable import Variable, rows

_GUIDE = "NCCL 2.30 user guide, Environment Variables"
_EXPERIMENTS = "NCCL 2.30 user guide: for experiments, not for production"

# See variable.rows; names are without NCCL_.
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
VARIABLES: tuple[Variable, ...] = (
    *_rows(_GUIDE, _SYSTEM),
    *_rows(_EXPERIMENTS, _DEBUGGING),
    *(
        Variable(f"NCCL_{name}", did, until=f"NCCL {version}", instead=instead, source=_GUIDE)
        for name, did, version, instead in _REMOVED
    ),
)
