"""The command `sinkshot`: one file per subcommand."""

import sys


def main() -> None:
    """Run the command; an interrupt is no error, whenever it comes."""
    try:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")  # a terminal without "±" still gets its table
        from sinkshot.cli.app import app

        app()
    except KeyboardInterrupt:
        sys.exit(130)
