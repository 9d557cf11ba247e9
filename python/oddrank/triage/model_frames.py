"""Tables of frames that say what a thread does: communication, data, disk, GPU, locks, helpers.

A row: a class, files and functions, as words with * for anything. Files match at their end, since
py-spy shortens paths, but a whole package (wandb/*) or one file (code.py) only where packages are
installed: the user's folders may have any name. Functions match without the classes that newer
Pythons put before them. The class of the innermost row that decides is the stack's. A new library
is a new row.
"""

import re

# Classes: peers, data, queue, gpu, disk, file-lock, pipe, child, lock, network, running; "": not
# known. Also maybe: perhaps waits for peers, by its function's name; through: a wrapper, decides
# nothing; threads: waits for a thread of its own; leaving: has left the training, and ends.
PEERS, DATA, GPU, DISK, LOCK, NETWORK = "peers", "data", "gpu", "disk", "lock", "network"
MAYBE, THROUGH, THREADS, LEAVING, RUNNING = "maybe", "through", "threads", "leaving", "running"
FILE_LOCK, PIPE, CHILD, QUEUE = "file-lock", "pipe", "child", "queue"

C10D_OPS = (
    "all_reduce* _all_reduce* all_gather* _all_gather* all_to_all* _all_to_all* broadcast*"
    " _broadcast* reduce reduce_scatter* _reduce_scatter* barrier monitored_barrier gather"
    " gather_object scatter scatter_object_list send recv isend irecv send_object_list"
    " recv_object_list batch_isend_irecv _store_based_barrier init_process_group new_group"
    " _new_process_group_helper new_subgroups* split_group"
)
_COMMUNICATE = (
    "*all_reduce* *allreduce* *all_gather* *allgather* *all_to_all* *alltoall* *reduce_scatter*"
    " *broadcast* *bcast* *barrier* *send* *recv* *gather* *scatter* reduce reduce_* synchronize"
)

# (class, files, functions) of Python's frames. The first row that fits counts.
PYTHON: tuple[tuple[str, str, str], ...] = (
    (LEAVING, "torch/distributed/distributed_c10d.py",
     "destroy_process_group _abort_* _distributed_excepthook"),
    (PEERS, "torch/distributed/distributed_c10d.py", C10D_OPS),
    (PEERS, "torch/distributed/_functional_collectives.py", f"wait* {_COMMUNICATE}"),
    (PEERS, "torch/distributed/nn/functional.py", "forward backward"),
    (PEERS, "torch/distributed/rendezvous.py torch/distributed/elastic/utils/store.py"
     " torch/distributed/elastic/rendezvous/*.py", "*"),
    (PEERS, "torch/distributed/utils.py",
     "_sync_module_states _verify_param_shape_across_processes"),
    (PEERS, "torch/distributed/checkpoint/utils.py", f"all_reduce reduce {_COMMUNICATE}"),
    (PEERS, "deepspeed/comm/*.py", f"{_COMMUNICATE} wait monitored_barrier"),
    (PEERS, "deepspeed/runtime/pipe/p2p.py", "send* recv* wait"),
    (PEERS, "megatron/*p2p_communication.py",
     "_communicate* _batched_p2p_ops _p2p_ops send* recv*"),
    (PEERS, "vllm/*shm_broadcast.py sglang/*shm_broadcast.py",
     "acquire_read acquire_write dequeue enqueue recv wait_until_ready broadcast_object"),
    (PEERS, "vllm/*pynccl.py sglang/*pynccl.py vllm/*custom_all_reduce*.py"
     " sglang/*custom_all_reduce*.py", "*"),
    (PEERS, "horovod/*mpi_ops.py horovod/*mpi_lib*.py horovod/*functions.py horovod/*optimizer.py",
     f"{_COMMUNICATE} poll join"),
    (PEERS, "ray/util/collective/* cupy/*nccl* mpi4py/* oneccl_bindings_for_pytorch/*"
     " apex/parallel/* torchcomms/*", f"{_COMMUNICATE} wait"),
    (PEERS, "jax/*multihost_utils.py",
     "sync_global_devices broadcast* process_allgather assert_equal"),
    (THROUGH, "torch/distributed/c10d_logger.py deepspeed/comm/*.py torch/utils/_contextlib.py"
     " torch/_dynamo/eval_frame.py torch/_dynamo/external_utils.py torch/autograd/grad_mode.py"
     " deepspeed/utils/nvtx.py deepspeed/utils/timer.py contextlib.py functools.py", "*"),
    (THROUGH, "torch/distributed/elastic/multiprocessing/errors/*.py", "wrapper"),
    (DATA, "torch/utils/data/*.py torchdata/* webdataset/* streaming/base/* nvidia/dali/* ffcv/*"
     " grain/* litdata/* datatrove/* datasets/iterable_dataset.py datasets/arrow_dataset.py"
     " datasets/formatting/*.py datasets/builder.py", "*"),
    (DATA, "deepspeed/runtime/dataloader.py accelerate/data_loader.py lightning/*data_connector.py"
     " lightning/*fetchers.py lightning/*combined_loader.py lightning_fabric/*",
     "__next__ __iter__ _fetch* _get* next advance"),
    (DATA, "megatron/*data/*.py megatron/*datasets/*.py",
     "__getitem__ __next__ __iter__ _query* _build* get"),
    (DISK, "torch/serialization.py torch/storage.py torch/distributed/checkpoint/filesystem.py"
     " torch/distributed/checkpoint/storage.py torch/distributed/checkpoint/_fsspec*.py"
     " torch/distributed/checkpoint/_hf*.py shutil.py genericpath.py posixpath.py tempfile.py"
     " glob.py zipfile.py zipfile/*.py tarfile.py gzip.py lzma.py bz2.py pathlib.py pathlib/*.py"
     " _pyio.py numpy/*memmap.py numpy/lib/*npyio*.py numpy/lib/*format*.py", "*"),
    (DISK, "safetensors/* h5py/* zarr/* netCDF4/* tensorstore/* pyarrow/* orbax/*",
     "*load* *save* *read* *write* *open* *serialize*"),
    (DISK, "<frozen os> <frozen genericpath> os.py",
     "walk listdir makedirs stat fsync scandir exists isfile isdir fdopen remove rename"),
    (NETWORK, "socket.py ssl.py ftplib.py http/client.py urllib/request.py urllib3/* requests/*"
     " botocore/* boto3/* s3transfer/* s3fs/* gcsfs/* adlfs/* aiohttp/* httpx/* httpcore/*"
     " paramiko/* grpc/* huggingface_hub/* google/cloud/* fsspec/asyn.py s3torchconnector/*"
     " wandb/* mlflow/* neptune/* comet_ml/* redis/* zmq/*", "*"),
    (THREADS, "torch/autograd/__init__.py torch/autograd/graph.py torch/_tensor.py",
     "backward _engine_run_backward grad"),
    (THREADS, "concurrent/futures/_base.py concurrent/futures/thread.py torch/futures/__init__.py",
     "result wait exception shutdown as_completed __exit__ result_iterator map value"),
    (LEAVING, "threading.py", "_shutdown"),
    (THREADS, "threading.py", "join _wait_for_tstate_lock"),
    (LEAVING, "multiprocessing/util.py", "_exit_function _run_finalizers"),
    (LEAVING, "concurrent/futures/thread.py", "_python_exit"),
    (FILE_LOCK, "filelock/* portalocker/* fasteners/* torch/utils/file_baton.py", "*"),
    (LOCK, "threading.py queue.py multiprocessing/*.py torch/multiprocessing/*.py selectors.py"
     " asyncio/*.py uvloop/* subprocess.py signal.py pdb.py bdb.py cmd.py code.py ipdb/*"
     " IPython/* debugpy/*", "*"),
    (GPU, "torch/cuda/*.py torch/xpu/*.py torch/npu/*.py torch_npu/*.py torch/accelerator/*.py",
     "*synchronize* wait* empty_cache replay capture_end _lazy_init elapsed_time query"
     " get_rng_state set_rng_state"),
    (GPU, "torch/nn/utils/clip_grad.py torch/optim/*.py torch/amp/grad_scaler.py"
     " torch/cuda/amp/*.py torch/utils/_foreach_utils.py torch/distributed/fsdp/*.py"
     " torch/distributed/_composable/*.py torch/distributed/tensor/*.py"
     " torch/distributed/_tensor/*.py torch/distributed/pipelining/*.py"
     " torch/distributed/algorithms/*.py torch/distributed/optim/*.py deepspeed/ops/*"
     " deepspeed/accelerator/* apex/* flash_attn/* transformer_engine/* xformers/* triton/*"
     " bitsandbytes/* torch/_inductor/runtime/*", "*"),
)  # fmt: skip

# FILE:FUNCTION of frames that the table above counts as waits for locks, and what they are.
NO_LOCKS = (
    (CHILD, r"(?:^|/)(?:subprocess\.py:|multiprocessing/(?:process\.py:join|popen_\w+\.py:wait)$)"),
    (QUEUE, r"(?:^|/)(?:queue|multiprocessing/queues)\.py:"),
    (THREADS, r"(?:^|/)threading\.py:"),
    ("", r"(?:^|/)(?:selectors\.py|asyncio/\w+\.py):|(?:^|/)uvloop/"),
)

# (class, regular expressions) of native frames, searched in the name without template arguments.
_GLIBC = r"^_*(?:GI_+)?_*(?:libc_)?"
# Functions of the kernel in which a thread sleeps, as /proc/PID/wchan names them.
KERNEL: tuple[tuple[str, str], ...] = (
    (FILE_LOCK, r"(?:locks_lock_inode|flock_lock_inode|posix_lock_inode|fcntl_setlk)"),
    (PIPE, r"(?:anon_)?pipe_(?:read|write|wait)|fifo_"),
    (CHILD, r"do_wait|kernel_wait4|kernel_waitid"),
    (DISK, r"request_wait_answer|fuse_|rpc_|nfs\d?_|cl_|ll_|lov_|osc_|ldlm_|ptlrpc_|gpfs|cxi|ceph_|"
           r"io_schedule|folio_wait|wait_on_page|wait_on_buffer|blk_|jbd2_|xfs_|ext4_|btrfs_|bio_"),
    (GPU, r"nv_|nvidia_|uvm_|os_acquire_|rm_|nvkms"),
    (LOCK, r"futex_|rwsem_|down_|mutex_|__mutex|percpu_rwsem"),
    (NETWORK, r"ib_|rdma_|mlx\d_|sk_wait|lock_sock|inet_csk|unix_stream|tcp_"),
)  # fmt: skip
NATIVE: tuple[tuple[str, tuple[str, ...]], ...] = (
    (LEAVING, ("^Py_Finalize", "^__run_exit_handlers$", "^_?exit$",
               "ncclComm(?:Abort|Destroy|Finalize)", r"ProcessGroup\w+::(?:shutdown|abort)")),
    (PEERS, (r"(?<![\w:])c10d::(?!.*(?:runLoop|[wW]atchdog|[hH]eartbeat|Daemon|workCleanupLoop))",
             "^p?nccl[A-Z](?!.*(?:[pP]roxy(?:Progress|Service)|Ras))", "^bootstrap[A-Z]",
             "^hccl[A-Z]",
             r"gloo::(?!transport::\w+::(?:Loop|Device|Listener))", "^P?MPI_[A-Z]", "^ompi_",
             "^opal_progress$", "^mca_(?:pml|coll|btl)", "^MPIDI?_", "^uc[pt]_", "horovod::")),
    (GPU, (r"^(?:cuda|cu|hip)\w*(?:Synchronize|Launch|Memcpy|Memset|Alloc|Malloc|Free|EventQuery)",
           r"^cu(?:StreamWait|ModuleLoad|CtxCreate|GraphLaunch)", "_local_scalar_dense_cuda",
           r"c10::cuda::|at::cuda::|at::native::\w*cuda|torch::cuda")),
    (DISK, (_GLIBC + "(?:pread|pwrite|preadv|fsync|fdatasync|open|openat|stat|fstat|lstat"
            "|newfstatat|getdents|unlink|rename|mkdir|flock|fread|fwrite|ftruncate|fallocate)"
            "(?:64|2)?(?:_nocancel)?(?:@.*)?$",
            "^(?:nfs|lustre|ll_|gpfs|fuse_|ceph_|beegfs|rpc_wait|wait_on_page|io_schedule)")),
    (NETWORK, (_GLIBC + "(?:connect|recvfrom|recvmsg|sendto|sendmsg|recv|send|accept4?|getaddrinfo)"
               "(?:_nocancel)?(?:@.*)?$",)),
    (LOCK, (r"pthread_(?:mutex|rwlock|spin)_\w*lock", "lll_lock_wait",
            "std::(?:timed_)?mutex::lock", "PyThread_acquire_lock",
            "sem_(?:timed|clock)?wait$", "do_futex_wait", "^semop")),
    (THREADS, ("torch::autograd::(?:python::Python)?Engine::execute", r"pthread_\w*join",
               "std::thread::join")),
)  # fmt: skip
# Threads that wait for the GIL, in native stacks.
WANTS_GIL = re.compile(
    r"^take_gil|PyEval_(?:RestoreThread|AcquireThread|AcquireLock)|PyGILState_Ensure"
    r"|_PyThreadState_Attach|gil_scoped_acquire"
)

# Threads that run beside training and wait for work: their stacks say nothing.
HELPER_NAMES = re.compile(
    r"pin_memory|QueueFeederThread|ThreadPoolExecutor|tensorboard|_AsyncWriterThread|tqdm|wandb"
    r"|MsgRouter|NetStatThr|ChkStopThr|IntMsgThr|HandlerThread|asyncio_|fsspec|mlflow|prometheus"
    r"|pydevd|IPythonHistory|heartbeat|monitor|watchdog|metrics|py-spy|oddrank"
    r"|pt_(?:nccl|gloo|tcpstore|elastic)|cuda-EvtHandlr|cuda\d{6,}|gloo_|nccl|async|uvloop|grpc"
    r"|ray[._]|jemalloc_bg_thd",
    re.I,
)
HELPER_FRAMES: tuple[tuple[str, str, str], ...] = (
    ("helper", "torch/utils/data/_utils/pin_memory.py", "_pin_memory_loop do_one_step"),
    ("helper", "multiprocessing/queues.py", "_feed"),
    ("helper", "multiprocessing/pool.py", "_handle_* _help_stuff_finish worker"),
    ("helper", "multiprocessing/resource_sharer.py", "_serve"),
    ("helper", "tqdm/_monitor.py", "run"),
    ("helper", "concurrent/futures/thread.py", "_worker"),
    ("helper", "concurrent/futures/process.py", "run wait_result_broken_or_wakeup"),
    ("helper", "torch/_inductor/compile_worker/*.py torch/distributed/elastic/timer/*.py"
     " torch/distributed/elastic/events/*.py torch/distributed/elastic/multiprocessing/tail_log.py"
     " torch/distributed/debug/*.py torch/distributed/elastic/control_plane.py tensorboard*"
     " torch/utils/tensorboard/* wandb/* mlflow/* prometheus_client/* ray/_private/* neptune/*"
     " comet_ml/* sentry_sdk/* opentelemetry/* ipykernel/* socketserver.py http/server.py"
     " deepspeed/*monitor/*.py nvidia_resiliency_ext/* oddrank/*", "*"),
)  # fmt: skip
HELPER_NATIVE = re.compile(
    r"ncclProxy(?:Progress|Service)|ncclRas|rasThread|watchdogHandler|ncclCommWatchdog|runLoop"
    r"|[hH]eartbeatMonitor|workCleanupLoop|LibUVStoreDaemon|TCPStoreMasterDaemon|BackgroundThread"
    r"|gloo::transport::\w+::Loop|blas_thread_server|gomp_\w*(?:barrier|team|thread)|__kmp"
    r"|kmp_flag|tbb::|^uv__?(?:io_poll|run)|grpc_core|EventEngine|CUPTI|libcudadebugger"
    r"|ReadyQueue::pop|torch::monitor|opal_progress_thread|ucs_async|libevent|event_base_loop"
    r"|rdma_get_cm_event|ibv_get_async_event|pmix"
)
# Processes that are no ranks: workers of dataloaders, launchers, helpers.
NO_RANKS: tuple[tuple[str, str, str], ...] = (
    ("dataloader worker", "torch/utils/data/_utils/worker.py", "_worker_loop"),
    ("launcher", "torch/distributed/launcher/api.py torch/distributed/elastic/agent/server/*.py",
     "launch_agent _invoke_run _monitor_workers run"),
    ("launcher", "torch/multiprocessing/spawn.py deepspeed/launcher/*.py accelerate/commands/*.py"
     " horovod/runner/*.py ray/scripts/*.py", "start_processes join main *launch* run*"),
    ("helper", "multiprocessing/resource_tracker.py multiprocessing/forkserver.py"
     " multiprocessing/managers.py", "main _run_server serve_forever"),
    ("helper", "torch/_inductor/compile_worker/*.py", "main _*"),
)  # fmt: skip

# Functions of the user or a framework that say what an unknown leaf inside them is about.
CONTEXTS: tuple[tuple[str, str, str], ...] = (
    (DISK, "*", "save_*checkpoint* load_*checkpoint* _save_*checkpoint* _load_*checkpoint*"
     " read_*checkpoint* write_*checkpoint* restore_*checkpoint* *_checkpoint_save"
     " *_checkpoint_load"
     " save_*ckpt* load_*ckpt* save_*state* load_*state* read_*shard* write_*shard* load_*weights*"
     " save_*weights* save_pretrained from_pretrained checkpoint_read* checkpoint_write*"),
    (DATA, "*", "get_batch* _next_batch next_batch load_batch* fetch_batch* load_data* get_data"
     " _get_data read_batch* _load_micro_batch load_micro_batch next_data* tokenize* tokenise*"
     " collate* __getitem__"),
)  # fmt: skip

# Functions of the user's in which an idle thread may wait for peers: what it calls (the wait() of
# an operation that it has begun) leaves no frame of Python.
MAYBE_WAITS = (
    "*wait* *reduce* *gather* *broadcast* *scatter* *barrier* *sync* *all_to_all* *alltoall*"
    " *exchange* send* recv* *_send* *_recv* *_p2p*"
)

NATIVE_OPS: tuple[tuple[str, str], ...] = (
    ("reduce_scatter", r"(?i)reduce_?scatter"),
    ("all_reduce", r"(?i)all_?reduce"),
    ("all_gather", r"(?i)all_?gather"),
    ("all_to_all", r"(?i)all_?to_?all"),
    ("broadcast", r"(?i)broadcast|bcast"),
    ("barrier", r"(?i)barrier"),
    ("recv", r"(?i)(?<!i)(?:\brecv|MPI_I?Recv|ncclRecv|::recv)"),
    ("send", r"(?i)(?:\bsend|MPI_I?Send|ncclSend|::send)"),
    ("communicator init", r"(?i)CommInitRank|CommInit|bootstrapInit"),
    ("reduce", r"(?i)reduce"),
)
