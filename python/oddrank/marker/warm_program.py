"""The warm parent as a program. Stacks of ranks do not show it: it is oddrank's, not the user's."""

import sys

if __name__ == "__main__":
    __name__ = "oddrank.marker.warm_program"
    sys.path[:] = eval(sys.argv.pop())
    from oddrank.marker import warm

    warm.begin(int(sys.argv[1]), sys.argv[2:])
