"""Tables of frames that say what a thread does: communication, data, disk, GPU, locks, helpers.

A row: (class, regular expression of the file, of the function). Files match at their end, since
py-spy shortens paths; functions without the classes that newer Pythons put before them. The class
of the innermost row that decides is the stack's. New libraries are new rows.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from oddrank.triage.facts import Frame

# Classes: peers, data, gpu, disk, lock, network, running; "" if unknown. Besides, in the tables:
# through: wrappers, which decide nothing. threads: waits for another thread of its own process.
# leaving: the process has left the training and ends.
PEERS, DATA, GPU, DISK, LOCK, NETWORK = "peers", "data", "gpu", "disk", "lock", "network"
THROUGH, THREADS, LEAVING, RUNNING = "through", "threads", "leaving", "running"

_C10D_OPS = (
    r"_?all_reduce\w*|_?all_gather\w*|_?all_to_all\w*|_?broadcast\w*|_?reduce_scatter\w*|reduce"
    r"|barrier|monitored_barrier|gather|gather_object|scatter|scatter_object_list|recv_object_list"
    r"|send_object_list|send|recv|batch_isend_irecv|_store_based_barrier|init_process_group"
    r"|new_group|_new_process_group_helper|new_subgroups\w*|split_group|_object_\w*barrier"
)
_SITE = r"(?:^|/)"

# (class, file, function) of Python's frames.
_PYTHON: tuple[tuple[str, str, str], ...] = (
    (LEAVING, r"torch/distributed/distributed_c10d\.py", r"destroy_process_group|_abort_\w+"),
    (PEERS, r"torch/distributed/distributed_c10d\.py", _C10D_OPS),
    (PEERS, r"torch/distributed/_functional_collectives\.py", r"wait_tensor|wait|\w*all_\w+|broadcast|barrier"),
    (PEERS, r"torch/distributed/nn/functional\.py", r"forward|backward"),
    (PEERS, r"torch/distributed/(?:rendezvous|constants)\.py", r".*"),
    (PEERS, r"torch/distributed/elastic/(?:utils/store|rendezvous/\w+)\.py", r".*"),
    (PEERS, r"torch/distributed/utils\.py", r"_sync_module_states|_verify_param_shape_across_processes"),
    (PEERS, r"torch/distributed/device_mesh\.py", r"_init_process_groups|_get_or_create_default_group"),
    (PEERS, r"torch/distributed/checkpoint/utils\.py", r"(?:all_)?(?:reduce|gather|scatter|broadcast)\w*|barrier"),
    (PEERS, r"deepspeed/comm/(?:comm|torch|ccl)\.py", r"\w*(?:all_?|reduce|broadcast|barrier|send|recv|gather|scatter)\w*|wait"),
    (PEERS, r"deepspeed/runtime/pipe/p2p\.py", r"send\w*|recv\w*|wait|_is_valid_send_recv"),
    (PEERS, r"deepspeed/runtime/comm/\w+\.py", r".*"),
    (PEERS, r"megatron/(?:core/)?(?:pipeline_parallel/)?p2p_communication\.py", r"_communicate\w*|_batched_p2p_ops|_p2p_ops|send\w*|recv\w*|_?run_\w+"),
    (PEERS, r"(?:vllm|sglang|lmdeploy)/.*(?:shm_broadcast)\.py", r"acquire_read|acquire_write|dequeue|enqueue|recv|wait_until_ready|broadcast_object"),
    (PEERS, r"(?:vllm|sglang)/.*(?:pynccl|custom_all_reduce|pymscclpp|hccl_communicator)\w*\.py", r".*"),
    (PEERS, r"horovod/\w+/mpi_(?:ops|lib\w*)\.py", r"synchronize|_\w+|poll|join|barrier"),
    (PEERS, r"horovod/\w+/(?:functions|optimizer)\.py", r"synchronize|broadcast\w*|allgather\w*"),
    (PEERS, r"(?:ray/util/collective|cupy/cuda/nccl|mpi4py|oneccl_bindings_for_pytorch|apex/parallel)/.*", r"\w*(?:all|reduce|bcast|broadcast|barrier|send|recv|gather|scatter|synchronize)\w*"),
    (PEERS, r"torchcomms/.*\.py", r"\w*(?:all_|reduce|broadcast|barrier|send|recv|gather|scatter|wait)\w*"),
    (PEERS, r"jax/.*multihost_utils\.py", r"sync_global_devices|broadcast\w*|process_allgather|assert_equal"),
    (THROUGH, r"torch/distributed/c10d_logger\.py", r".*"),
    (THROUGH, r"torch/(?:utils/_contextlib|_dynamo/eval_frame|autograd/grad_mode|_dynamo/external_utils)\.py", r".*"),
    (THROUGH, r"torch/distributed/elastic/multiprocessing/errors/\w+\.py", r"wrapper"),
    (THROUGH, r"deepspeed/utils/(?:nvtx|logging|timer)\.py", r".*"),
    (THROUGH, r"(?:contextlib|functools|typing)\.py", r".*"),
    (DATA, r"torch/utils/data/(?:dataloader|_utils/\w+|datapipes/.*)\.py|torch/utils/data/.*\.py", r".*"),
    (DATA, r"(?:torchdata|webdataset|streaming/base|nvidia/dali|ffcv|grain|litdata|datatrove|braceexpand)/.*", r".*"),
    (DATA, r"datasets/(?:iterable_dataset|arrow_dataset|dataset_dict|formatting/\w+|builder)\.py", r".*"),
    (DATA, r"deepspeed/runtime/dataloader\.py|accelerate/data_loader\.py|lightning/.*(?:data_connector|fetchers|combined_loader)\.py", r"__next__|__iter__|_fetch\w*|_get\w*|next|advance"),
    (DATA, r"megatron/(?:core/)?(?:legacy/)?(?:data|datasets)/.*\.py", r"__getitem__|__next__|__iter__|_query\w*|get|__init__|_build\w*"),
    (DISK, r"torch/serialization\.py|torch/storage\.py|torch/distributed/checkpoint/(?:filesystem|storage|_fsspec\w*|hf_storage|staging|_async\w*)\.py", r".*"),
    (DISK, r"(?:shutil|genericpath|posixpath|tempfile|glob|zipfile|tarfile|gzip|lzma|bz2|fileinput|pathlib|pathlib/\w+|_pyio)\.py", r".*"),
    (DISK, r"(?:safetensors|h5py|zarr|netCDF4|tensorstore|pyarrow/parquet|orbax|numpy/lib)/.*", r"\w*(?:load|save|read|write|open|memmap|fromfile|serialize)\w*"),
    (DISK, r"numpy/(?:_?core/memmap|lib/(?:_?npyio\w*|format|_format_impl))\.py", r".*"),
    (DISK, r"<frozen (?:os|genericpath|posixpath)>|os\.py", r"(?:walk|listdir|makedirs|stat|fsync|scandir|exists|isfile|isdir|fdopen|remove|rename)"),
    (NETWORK, r"(?:socket|ssl|ftplib|smtplib|xmlrpc/\w+|http/client|urllib/request)\.py", r".*"),
    (NETWORK, r"(?:urllib3|requests|botocore|boto3|s3transfer|s3fs|gcsfs|adlfs|aiohttp|httpx|httpcore|paramiko|grpc|huggingface_hub|google/cloud|fsspec/(?:asyn|implementations/http)|s3torchconnector|wandb|mlflow|neptune|comet_ml|pymongo|redis|psycopg2?|zmq)/.*", r".*"),
    (THREADS, r"torch/autograd/(?:__init__|graph)\.py", r"backward|_engine_run_backward|grad"),
    (THREADS, r"concurrent/futures/(?:_base|thread)\.py", r"result|wait|exception|shutdown|as_completed|__exit__|result_iterator|map"),
    (THREADS, r"threading\.py", r"join|_wait_for_tstate_lock"),
    (THREADS, r"torch/(?:futures/__init__|_tensor)\.py", r"wait|value|backward"),
    (LEAVING, r"threading\.py", r"_shutdown"),
    (LEAVING, r"multiprocessing/util\.py", r"_exit_function|_run_finalizers"),
    (LEAVING, r"concurrent/futures/thread\.py", r"_python_exit"),
    (LOCK, r"(?:threading|queue|_queue)\.py", r".*"),
    (LOCK, r"multiprocessing/(?:synchronize|queues|connection|popen_\w+|process|pool|managers|reduction|context)\.py", r".*"),
    (LOCK, r"(?:torch/multiprocessing|filelock|portalocker|fasteners|readerwriterlock)/.*", r".*"),
    (LOCK, r"torch/utils/file_baton\.py", r".*"),
    (LOCK, r"(?:selectors|asyncio/\w+|uvloop/.*|subprocess|signal|sched|pexpect/\w+|trio/.*|gevent/.*)\.?(?:py)?", r".*"),
    (LOCK, r"(?:pdb|bdb|cmd|code|codeop|ipdb/.*|IPython/.*|debugpy/.*)\.?(?:py)?", r".*"),
    (GPU, r"torch/(?:cuda|xpu|npu|mtia|accelerator|hip)/(?:__init__|streams|graphs|memory|random|_utils)\.py", r"\w*(?:synchronize|wait|empty_cache|replay|capture_end|_lazy_init|current_stream|set_rng_state|get_rng_state|elapsed_time|query)\w*"),
    (GPU, r"torch/nn/utils/clip_grad\.py|torch/optim/.*\.py|torch/amp/grad_scaler\.py|torch/cuda/amp/.*\.py|torch/utils/_foreach_utils\.py", r".*"),
    (GPU, r"torch/distributed/(?:fsdp|_composable|tensor|_tensor|pipelining|algorithms|optim|_shard|_symmetric_memory)/.*\.py", r".*"),
    (GPU, r"(?:deepspeed/ops|deepspeed/accelerator|apex/(?:optimizers|multi_tensor_apply)|flash_attn|transformer_engine|xformers|triton|bitsandbytes|torch/_inductor/runtime)/.*", r".*"),
)  # fmt: skip

# (class, function) of native frames, searched in the whole name.
_NATIVE: tuple[tuple[str, str], ...] = (
    (LEAVING, r"^(?:Py_Finalize\w*|Py_FinalizeEx|__run_exit_handlers|_exit|exit)$"),
    (LEAVING, r"ncclComm(?:Abort|Destroy|Finalize)|ProcessGroup\w+::(?:shutdown|abort)|commReclaim"),
    (PEERS, r"(?<![\w:])c10d::(?!.*(?:runLoop|watchdog|Watchdog|heartbeat|Heartbeat|Daemon|workCleanupLoop|ncclCommWatchdog))\w*"),
    (PEERS, r"^p?nccl[A-Z](?!.*(?:proxy|Proxy|ras))|^ncclSocket|^bootstrap[A-Z]|^rcc?l[A-Z]|^hccl[A-Z]|ncclProxyCallBlocking"),
    (PEERS, r"gloo::(?!transport::\w+::(?:Loop|Device|Listener))"),
    (PEERS, r"^P?MPI_[A-Z]|^ompi_|^opal_progress|^mca_(?:pml|coll|btl)|^MPIDI?_|^ucp_|^uct_|^ucs_|^oneccl|horovod::|sharp_coll"),
    (GPU, r"(?:cuda|cu|hip)\w*(?:Synchronize|LaunchKernel\w*|LaunchCooperative\w*|GraphLaunch|Memcpy\w*|Memset\w*|MemAlloc\w*|MemFree\w*|Malloc\w*|Free\w*|EventQuery|StreamWait\w*|ModuleLoad\w*|CtxCreate)"),
    (GPU, r"_local_scalar_dense_cuda|c10::cuda::|at::cuda::|at::native::\w*cuda\w*|torch::cuda"),
    (DISK, r"^_*(?:GI_+)?_*(?:libc_)?(?:pread|preadv|pwrite|fsync|fdatasync|open|openat|stat|fstat|lstat|newfstatat|getdents|unlink|rename|mkdir|flock|fread|fwrite|ftruncate|fallocate|posix_fallocate)(?:64|2)?(?:_nocancel)?(?:@.*)?$"),
    (DISK, r"^(?:nfs|lustre|ll_|cl_|osc_|gpfs|fuse_|ceph_|beegfs|rpc_wait|wait_on_page|io_schedule)\w*"),
    (NETWORK, r"^_*(?:GI_+)?_*(?:libc_)?(?:connect|recvfrom|recvmsg|sendto|sendmsg|recv|send|accept4?|getaddrinfo)(?:_nocancel)?(?:@.*)?$"),
    (LOCK, r"pthread_(?:mutex|rwlock|spin)_\w*lock|lll_lock_wait|std::(?:timed_)?mutex::lock|PyThread_acquire_lock\w*|sem_(?:timed|clock)?wait|do_futex_wait|semop|flock"),
    (THREADS, r"torch::autograd::Engine::execute|torch::autograd::python::PythonEngine::execute|pthread_(?:timed|clock)?join\w*|std::thread::join"),
)  # fmt: skip
# Threads that wait for the GIL, in native stacks.
_WANTS_GIL = re.compile(
    r"^take_gil|PyEval_(?:RestoreThread|AcquireThread|AcquireLock)|PyGILState_Ensure"
    r"|_PyThreadState_Attach|gil_scoped_acquire"
)

# Threads that run beside training and wait for work: their stacks say nothing.
_HELPER_NAMES = re.compile(
    r"pin_memory|QueueFeederThread|ThreadPoolExecutor|tensorboard|_AsyncWriterThread|tqdm|wandb"
    r"|MsgRouter|NetStatThr|ChkStopThr|IntMsgThr|HandlerThread|asyncio_|fsspec|mlflow|prometheus"
    r"|pydevd|IPythonHistory|heartbeat|monitor|watchdog|metrics|py-spy|oddrank"
    r"|pt_(?:nccl|gloo|tcpstore|elastic|autograd_\d+)\w*|cuda-EvtHandlr|cuda\d{6,}|gloo_\w+"
    r"|nccl_?\w*|NCCL .*|async|uvloop|grpc|ray[._]\w*|jemalloc_bg_thd",
    re.I,
)
_HELPER_FRAMES: tuple[tuple[str, str], ...] = (
    (r"torch/utils/data/_utils/pin_memory\.py", r"_pin_memory_loop|do_one_step"),
    (r"multiprocessing/queues\.py", r"_feed"),
    (r"multiprocessing/pool\.py", r"_handle_\w+|_help_stuff_finish|worker"),
    (r"multiprocessing/resource_sharer\.py", r"_serve"),
    (r"tqdm/_monitor\.py", r"run"),
    (r"concurrent/futures/thread\.py", r"_worker"),
    (r"concurrent/futures/process\.py", r"run|wait_result_broken_or_wakeup"),
    (r"torch/_inductor/compile_worker/.*\.py", r".*"),
    (r"torch/distributed/elastic/(?:timer|events|multiprocessing/tail_log|agent)/?.*\.py", r".*"),
    (r"torch/distributed/debug/.*\.py|torch/distributed/elastic/control_plane\.py", r".*"),
    (r"(?:tensorboard\w*|torch/utils/tensorboard|wandb|mlflow|prometheus_client|ray/_private|neptune|comet_ml|sentry_sdk|opentelemetry|ipykernel|zmq)/.*", r".*"),
    (r"(?:socketserver|http/server|wsgiref/\w+)\.py", r".*"),
    (r"deepspeed/.*(?:monitor|elasticity|async_io)/?.*\.py", r".*"),
    (r"nvidia_resiliency_ext/.*|megatron/core/.*(?:ft_integration|straggler)\w*\.py", r".*"),
    (r"oddrank/.*", r".*"),
)  # fmt: skip
_HELPER_NATIVE = re.compile(
    r"ncclProxy(?:Progress|Service)|ncclRas|rasThread|watchdogHandler|ncclCommWatchdog|runLoop"
    r"|heartbeatMonitor|HeartbeatMonitor|workCleanupLoop|LibUVStoreDaemon|TCPStoreMasterDaemon"
    r"|BackgroundThread|gloo::transport::\w+::Loop|blas_thread_server|gomp_\w*(?:barrier|team|thread)"
    r"|__kmp|kmp_flag|gomp_thread_start|tbb::|uv__?(?:io_poll|run)|uv_thread|grpc_core|EventEngine"
    r"|CUPTI|cudbg|libcudadebugger|DeviceThread|torch::autograd::ReadyQueue::pop"
    r"|torch::monitor|opal_progress_thread|progress_engine|ucs_async|libevent|event_base_loop"
    r"|rdma_get_cm_event|ibv_get_async_event|pmix"
)
# Processes that are no ranks: workers of dataloaders, launchers, helpers.
_NO_RANKS: tuple[tuple[str, str, str], ...] = (
    ("dataloader worker", r"torch/utils/data/_utils/worker\.py", r"_worker_loop"),
    ("launcher", r"torch/distributed/(?:launcher/api|run|launch|elastic/agent/server/\w+)\.py",
     r"launch_agent|_invoke_run|_monitor_workers|main|run"),
    ("launcher", r"(?:torch/multiprocessing/spawn|deepspeed/launcher/\w+)\.py",
     r"start_processes|join|main|runner"),
    ("launcher", r"(?:accelerate/commands|horovod/runner|ray/scripts)/.*\.py", r".*"),
    ("helper", r"multiprocessing/(?:resource_tracker|semaphore_tracker|forkserver|managers)\.py",
     r"main|_run_server|serve_forever"),
    ("helper", r"torch/_inductor/compile_worker/.*\.py", r"main|_\w+"),
)  # fmt: skip

# Functions of the user or a framework that say what an unknown leaf inside them is about.
_CONTEXTS: tuple[tuple[str, str], ...] = (
    (DISK, r"(?:_?(?:save|load|write|read|restore|resume|dump)_?\w*(?:checkpoint|ckpt|state|weights|shards?|snapshot)\w*|\w*checkpoint\w*_(?:save|load|write|read)\w*|save_pretrained|from_pretrained)"),
    (DATA, r"(?:get_batch\w*|_?next_batch|_?load_batch|fetch_batch|load_data\w*|_?get_data|read_batch|_?load_micro_batch|next_data\w*|tokeni[sz]e\w*|collate\w*|collate_fn|__getitem__)"),
)  # fmt: skip

_NATIVE_OPS: tuple[tuple[str, str], ...] = (
    (r"reduce_?scatter", "reduce_scatter"),
    (r"all_?reduce", "all_reduce"),
    (r"all_?gather", "all_gather"),
    (r"all_?to_?all", "all_to_all"),
    (r"broadcast|bcast", "broadcast"),
    (r"barrier", "barrier"),
    (r"(?<!i)(?:\brecv|MPI_I?Recv|ncclRecv|::recv)", "recv"),
    (r"(?:\bsend|MPI_I?Send|ncclSend|::send)", "send"),
    (r"CommInitRank|CommInit|bootstrapInit", "communicator init"),
    (r"reduce", "reduce"),
)


def _compiled(file: str, function: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    return re.compile(f"{_SITE}(?:{file})$"), re.compile(f"(?:{function})")


_PYTHON_ROWS = tuple((kind, *_compiled(file, function)) for kind, file, function in _PYTHON)
_NATIVE_ROWS = tuple((kind, re.compile(function)) for kind, function in _NATIVE)
_HELPER_ROWS = tuple(_compiled(*row) for row in _HELPER_FRAMES)
_NO_RANK_ROWS = tuple((what, *_compiled(file, function)) for what, file, function in _NO_RANKS)
_CONTEXT_ROWS = tuple((kind, re.compile(function, re.I)) for kind, function in _CONTEXTS)
_OP_ROWS = tuple((re.compile(pattern, re.I), op) for pattern, op in _NATIVE_OPS)
_OPS = re.compile(_C10D_OPS)
_WAITS = frozenset({"wait", "get", "acquire", "poll", "select", "join", "result", "sleep", "put"})
_TEMPLATE = re.compile(r"<[^<>]*>")


@dataclass(frozen=True, slots=True)
class Leaf:
    """What a stack says its thread does.

    kind: peers, data, gpu, disk, lock, network, running, threads, leaving, or "" if unknown.
    frame: the innermost frame that a user would name. op: the operation, of peers. cut: how many
    innermost frames lie inside libraries, of which a tree shows only the outermost. called: an
    unknown function of the user's lies inside of what decided.
    """

    kind: str
    frame: Frame | None
    op: str = ""
    cut: int = 0
    called: bool = False


@lru_cache(maxsize=1 << 16)
def kind_of(frame: Frame) -> str:
    """Returns the class of a frame by the tables; "" if it is in none."""
    function = bare(frame)
    if not frame.file and not frame.native:  # of a list of functions alone
        return PEERS if _OPS.fullmatch(function) else LOCK if function in _WAITS else ""
    if frame.native:
        if frame.file.startswith("libcuda.so"):
            return GPU
        plain = _plain(frame.function)
        return next((kind for kind, known in _NATIVE_ROWS if known.search(plain)), "")
    return next(
        (
            kind
            for kind, file, known in _PYTHON_ROWS
            if known.fullmatch(function) and file.search(frame.file)
        ),
        "",
    )


def _plain(function: str) -> str:
    """Returns a function of C++ without template arguments: they name other functions' types."""
    for _ in range(8):
        shorter = _TEMPLATE.sub("", function)
        if shorter == function:
            break
        function = shorter
    return function


def short(frame: Frame) -> str:
    """Returns a function's name as a sentence can hold it."""
    if not frame.native:
        return frame.function
    plain = _plain(frame.function).partition("(")[0] or frame.function
    return plain if len(plain) <= 80 else plain[:77] + "..."


def bare(frame: Frame) -> str:
    """Returns a function's name without its class: __next__ of DataLoader.__next__."""
    return frame.function if frame.native else frame.function.rpartition(".")[2] or frame.function


@lru_cache(maxsize=1 << 14)
def leaf(frames: tuple[Frame, ...]) -> Leaf:
    """Returns what a thread does by its stack, innermost first."""
    waits = ""  # a lock or socket at the bottom: what it is for shows further out
    waits_at: Frame | None = None
    user: Frame | None = None
    for i, frame in enumerate(frames):
        kind = kind_of(frame)
        if kind == THROUGH or (not kind and frame.native):
            continue
        if not kind:
            user = user or frame
            context = next((k for k, known in _CONTEXT_ROWS if known.fullmatch(bare(frame))), "")
            if context and waits in ("", LOCK):
                return Leaf(context, user, cut=i if user is frame else 0, called=user is not frame)
            continue
        if user is None and kind in (LOCK, NETWORK, THREADS):
            if not waits or kind == THREADS or (kind == waits and frame.native):
                waits, waits_at = kind, frame
            continue
        if user is None:
            cut = _cut(frames, i, kind)
            op = _op(frames[: cut + 1]) if kind == PEERS else ""
            place = frames[cut] if kind in (PEERS, LEAVING) else _outermost_name(frames, i, kind)
            return Leaf(kind, place, op, cut)
        if kind in (DATA, DISK):
            return Leaf(waits if waits == NETWORK else kind, user, called=True)
    if waits:
        return Leaf(waits, user or waits_at, cut=frames.index(waits_at) if waits_at else 0)
    return Leaf("", user or (frames[0] if frames else None))


def _cut(frames: Sequence[Frame], first: int, kind: str) -> int:
    """Returns the outermost frame of the block of a library that begins at `first`."""
    last = first
    for i in range(first + 1, len(frames)):
        found = kind_of(frames[i])
        if found == kind:
            if kind == PEERS and not frames[last].native and not _same_call(frames, last, i):
                break
            last = i
        elif found != THROUGH and not (frames[i].native and not found):
            break
    return last


def _same_call(frames: Sequence[Frame], inner: int, outer: int) -> bool:
    """Whether two frames of communication libraries belong to one call of the user's."""
    return outer - inner <= 4


def _outermost_name(frames: Sequence[Frame], first: int, kind: str) -> Frame:
    """Returns the frame to name: the innermost of its class, unless that is a native one."""
    for frame in frames[first:]:
        found = kind_of(frame)
        if found == kind and not frame.native:
            return frame
        if found not in (kind, THROUGH) and not frame.native:
            break
    return frames[first]


def _op(block: Sequence[Frame]) -> str:
    """Returns the operation that a block of communication frames, innermost first, is about."""
    for frame in block:
        if not frame.native and kind_of(frame) == PEERS:
            name = bare(frame)
            if _OPS.fullmatch(name):
                return name.lstrip("_") if name != "_store_based_barrier" else "barrier"
    for frame in reversed(block):
        if kind_of(frame) == PEERS:
            for pattern, op in _OP_ROWS:
                if pattern.search(_plain(frame.function)):
                    return op
    return ""


@lru_cache(maxsize=1 << 14)
def is_helper(name: str, frames: tuple[Frame, ...]) -> bool:
    """Whether a thread runs beside training and waits for work: no evidence."""
    if not frames:
        return True
    if _HELPER_NAMES.search(name) and kind_of(frames[0]) not in (PEERS,):
        return True
    for i, frame in enumerate(frames):
        if frame.native:
            if _HELPER_NATIVE.search(frame.function):
                return True
            continue
        for file, function in _HELPER_ROWS:
            if function.fullmatch(bare(frame)) and file.search(frame.file):
                # A pool's thread is a helper only while it waits for work.
                return bare(frame) != "_worker" or all(
                    kind_of(f) == LOCK or f.native for f in frames[:i]
                )
    return False


@lru_cache(maxsize=1 << 14)
def no_rank(frames: tuple[Frame, ...]) -> str:
    """Returns what a process with this stack is, if it is no rank: dataloader worker, launcher."""
    for frame in frames:
        if frame.native:
            continue
        for what, file, function in _NO_RANK_ROWS:
            if function.fullmatch(bare(frame)) and file.search(frame.file):
                return what
    return ""


def wants_gil(frames: Sequence[Frame]) -> bool:
    """Whether a thread waits for the GIL, by its native frames."""
    for frame in frames:
        if not frame.native:
            return False
        if _WANTS_GIL.search(frame.function):
            return True
    return False
