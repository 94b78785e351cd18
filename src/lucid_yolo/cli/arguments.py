"""Arguments that more than one command takes."""

from __future__ import annotations

from typing import Any, Literal

from jsonargparse import ArgumentParser, Namespace

from lucid_yolo.cli.errors import suggestions
from lucid_yolo.cli.help import CompactHelp

Precision = Literal["auto", "fp32", "bf16", "fp16"]


class CommandParser(ArgumentParser):
    """Raises ``ArgumentError`` instead of exiting, suggests what an unknown flag should have been, has short help."""

    def __init__(self, prog: str | None = None, description: str | None = None, **options: Any) -> None:
        options = {"exit_on_error": False, "formatter_class": CompactHelp, **options}
        super().__init__(prog=prog, description=description, **options)

    def parse_args(self, *args: Any, **kwargs: Any) -> Namespace:  # type: ignore[override]
        """Parse, with suggestions."""
        with suggestions(self):
            return super().parse_args(*args, **kwargs)


def make_parser(prog: str, description: str) -> ArgumentParser:
    """Return a parser with ``--config`` and ``--print_config`` that raises ``ArgumentError`` instead of exiting.

    Args:
        prog: The command as users type it.
        description: One sentence.
    """
    parser = CommandParser(prog, description)
    parser.add_argument("--config", action="config", help="YAML file with values for the arguments below")
    return parser


def add_run_arguments(parser: ArgumentParser) -> None:
    """Add how a detector is run: device, precision, batch size."""
    group = parser.add_argument_group("run")
    group.add_argument("--device", type=str, default="auto", help="auto (a GPU where there is one), cpu, cuda, cuda:1")
    group.add_argument("--precision", type=Precision, default="auto", help="of the network; auto is bf16 on a GPU")
    group.add_argument("--batch_size", type=int, default=16, help="images per batch")
