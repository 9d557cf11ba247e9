"""Keeps lines whole: `printflock`, and `install_printing` for every print and logging line.

Each output (device and inode) has a lock, in one file that all processes of a user share on a host
or in a container: ranks of one job, of two jobs in one terminal, and the processes they start.

- Messages through printflock stay whole. Plain print(), sys.stdout.write(), C code and other users'
  processes take no lock. Different hosts share no lock (a file on NFS).
- printflock writes a message to sys.stdout, sys.stderr or another text file over a plain file at
  once. Other files get one write() call, and flush() only on request.
- If a holder is killed, the next one writes at once; the cut line stands alone. If a holder is
  stopped, the others go on after ODDRANK_PRINT_TIMEOUT (1 s) with one warning and keep a lock among
  themselves; when the holder goes on, it writes its message again as a whole. If a holder runs but
  does nothing for ten timeouts, the others go on, too: only then can lines mix.
- While a pipe is full or a terminal is held, all wait, as print() does.
- printflock cannot see a newline= given to sys.stdout.reconfigure().
"""
