"""What tests let forks of a warm parent do: each is a way to live or to end."""

import atexit
import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path

from forked import of_this


def tell(*arguments):
    print(os.getcwd(), sys.argv, os.environ.get("COLOR"), os.getsid(0) == os.getpid(), *arguments)


def write_to(descriptor, text):
    os.write(descriptor, text.encode())


def say_goodbye():
    atexit.register(print, "goodbye")
    threading.Thread(target=lambda: time.sleep(0.2) or print("the thread ends")).start()
    print("no newline is flushed", end="")


def end(how):
    if how == "raises":
        raise ValueError("no data")
    if how == "says":
        sys.exit("no data")
    if how == "interrupted":
        raise KeyboardInterrupt
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(int(how))


def register_with_c():
    global at_exit
    told = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p)
    at_exit = told(lambda code, _: os.write(1, b"told by C"))
    ctypes.CDLL(None).on_exit(at_exit, None)


def draw():
    import numpy

    print(numpy.random.random(), [name for name in sys.modules if name == "secret_of_the_user"])


def sleep():
    time.sleep(10_000)


def tell_from_a_fork():
    order = dict(descriptors=[0, 1, 2], argv=[""], cwd="/")
    parent = of_this()
    calls = [("marker.warm_programs:show_color", [])]
    parent.fork(calls, environ={**os.environ, "COLOR": "blue"}, **order).wait()
    parent.close()
    show_environment()


def show_color():
    print(os.environ["COLOR"])


def show_environment():
    print(Path("/proc/self/environ").read_bytes().split(b"\0").count(b"COLOR=red"))
