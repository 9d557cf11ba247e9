"""Dies at a line marked `fatal: KIND`, DEPTH calls deep, under the recorder: KIND DEPTH FOLDER."""

import ctypes
import os
import signal
import sys

import oddrank

_HOG_MB = 96  # more than the test's memory limit


def sigkill():
    os.kill(os.getpid(), signal.SIGKILL)  # fatal: sigkill


def sigsegv():
    ctypes.string_at(1)  # fatal: sigsegv


def abort():
    os.abort()  # fatal: abort


def exits():
    os._exit(3)  # fatal: exits


def out_of_memory():
    hog = []
    for _ in range(_HOG_MB):
        hog.append(b"x" * (1 << 20))  # fatal: out_of_memory


def stopped():
    os.kill(os.getpid(), signal.SIGSTOP)  # fatal: stopped


def holds_the_gil():
    print("ready", flush=True)
    ctypes.PyDLL(None).sleep(1000)  # fatal: holds_the_gil


def in_a_callback():
    print("ready", flush=True)
    while True:
        spin(3)


def spin(n):
    return [leaf(i) for i in range(n)] if n % 2 else leaf(n)


def leaf(n):
    value = n * n
    return value


def down(depth, die):
    return down(depth - 1, die) if depth > 0 else die()


def main():
    down(int(sys.argv[2]), globals()[sys.argv[1]])


oddrank.arm()
main()
