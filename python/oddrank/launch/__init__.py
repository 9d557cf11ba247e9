"""Who am I: rank, local rank, world, node, host, master of this process. A leaf."""

from oddrank.launch.resolve import Launch, current, fakes_terminals, job_folder, refuse_half

__all__ = ["Launch", "current", "fakes_terminals", "job_folder", "refuse_half"]
