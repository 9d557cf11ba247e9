"""`python -m oddrank` and `torchrun -m oddrank`: the same entry as the `oddrank` command."""

from oddrank.cli import main

if __name__ == "__main__":
    main()
