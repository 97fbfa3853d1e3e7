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
app.command("eval")(evaluate)
app.command("info")(info)
app.command("convert")(convert)
app.command("tune")(tune)
app.command("methods")(methods)
app.command("demo")(demo)
app.command("reproduce")(reproduce)
app.command("compare")(compare)
app.command("train")(train)
app.command("extract")(extract)
app.command("label")(label)


@app.callback(invoke_without_command=True)
def _common(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"sinkshot {__version__}")
        raise typer.Exit
