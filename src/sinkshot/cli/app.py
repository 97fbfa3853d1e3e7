"""The subcommands, and the options of `sinkshot` itself."""

from __future__ import annotations

from typing import Annotated

import typer

from sinkshot import __version__
from sinkshot.cli.banks import convert, info
from sinkshot.cli.compare import compare
from sinkshot.cli.demo import demo
from sinkshot.cli.evaluate import evaluate
from sinkshot.cli.extract import extract
from sinkshot.cli.label import label
from sinkshot.cli.methods import methods
from sinkshot.cli.reproduce import reproduce
from sinkshot.cli.shared_options import Command
from sinkshot.cli.train import train
from sinkshot.cli.tune import tune

app = typer.Typer(
    name="sinkshot",
    help="Few-shot classification on frozen features: label thousands from a handful.",
    epilog="Start with: sinkshot demo",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("eval", cls=Command)(evaluate)
app.command("info", cls=Command, short_help="Describe a feature bank.")(info)
app.command("convert", cls=Command)(convert)
app.command("tune", cls=Command, short_help="Choose hyper-parameters on validation classes.")(tune)
app.command("methods", cls=Command, short_help="List the methods.")(methods)
app.command("demo", cls=Command, short_help="See it work on the bundled features.")(demo)
app.command("reproduce", cls=Command, short_help="Measure the paper's tables and figures, or your study.")(reproduce)
app.command("compare", cls=Command, short_help="Compare two reports, or two methods of one.")(compare)
app.command("train", cls=Command, short_help="Train a backbone on base classes.")(train)
app.command("extract", cls=Command)(extract)
app.command("label", cls=Command, short_help="Label your own images, texts or embeddings.")(label)


@app.callback(invoke_without_command=True)
def _common(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"sinkshot {__version__}")
        raise typer.Exit
