"""`python -m sinkshot` is the command `sinkshot`."""

from sinkshot.cli import main

if __name__ == "__main__":
    main()
