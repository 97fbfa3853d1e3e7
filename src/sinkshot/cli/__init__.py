"""The command `sinkshot`: one file per subcommand."""

import sys


def main() -> None:
    """Run the command; whatever ends it, from its first moment on, ends it with a sentence."""
    from sinkshot.cli import _exit_codes, _signals

    try:
        _signals.accept()
        _exit_codes.check_surroundings()
        from sinkshot.cli.app import app

        app()
    except BaseException as error:
        code = _exit_codes.ending(error)
    sys.exit(_exit_codes.flushed(code))
