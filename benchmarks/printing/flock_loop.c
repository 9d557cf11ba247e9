// The yardstick of ratios.py: the cheapest locked line without shared memory: flock, write, unlock.
// flock_loop LOCK COUNT waits for a byte on stdin, then writes COUNT lines of 64 bytes to stdout.
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int lock = open(argv[1], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const long count = atol(argv[2]);
  char line[64];
  memset(line, 'x', sizeof line - 1);
  line[sizeof line - 1] = '\n';
  char go;
  if (lock < 0 || write(2, "r", 1) != 1 || read(0, &go, 1) != 1) return 1;
  for (long i = 0; i < count; ++i) {
    if (flock(lock, LOCK_EX) != 0) return 1;
    if (write(1, line, sizeof line) != (ssize_t)sizeof line) return 1;
    if (flock(lock, LOCK_UN) != 0) return 1;
  }
  return write(2, "d", 1) == 1 ? 0 : 1;
}
