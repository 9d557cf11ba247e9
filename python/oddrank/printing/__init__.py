"""Lines that stay whole: `printflock`, and `install` for every print and logging line.

One lock per output (device and inode), in one file that all processes of a user on a host share:
ranks of one job, of two jobs in one terminal, and what they fork or spawn. What that means:

- Whole are the messages that go through printflock. A plain print(), sys.stdout.write(), C code
  and other users' processes take no lock. Between hosts there is no lock (a file on NFS).
- A message to sys.stdout or sys.stderr is written at once; so is one to another text file over a
  plain file. Everything else gets one write() call, and flush() only if it was asked for.
- A holder that is killed is followed at once; its cut line stands alone. One that is stopped is
  left behind after ODDRANK_PRINT_TIMEOUT (1 s) with one warning, and the others keep a lock among
  themselves; when it goes on, it writes its message again as a whole. One that runs and does
  nothing for ten times as long is left behind too: only then can a line mix.
- While a pipe is full or a terminal is held, all wait, as print() does: nobody could write.
- A newline= given to sys.stdout.reconfigure() is not seen: nothing in Python can tell it.
"""
