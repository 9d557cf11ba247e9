"""Who am I: rank, local rank, world, node, host, master of this process. A leaf."""

from oddrank.launch.resolve import Launch, current, job_folder

__all__ = ["Launch", "current", "job_folder"]
