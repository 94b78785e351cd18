"""``lucid-yolo``: looks at the first argument only and imports no more than that command needs."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from lucid_yolo import __version__
from lucid_yolo.cli.errors import USER_ERROR, run_command

TRAINER_COMMANDS = ("fit", "validate", "test")
COMMANDS = (*TRAINER_COMMANDS, "predict", "sizes")

HELP = """\
usage: lucid-yolo COMMAND [arguments]

Train, evaluate and run NMS-free detectors.

runs, each in its folder runs/<recipe>/<n>:
  fit         train: lucid-yolo fit --config detect --data.data_root my_dataset
  validate    score a checkpoint on the validation split
  test        score a checkpoint on the test split
  predict     draw what a checkpoint finds in pictures

figures:
  sizes       parameters and operations of every scale

options:
  --help      this text; lucid-yolo COMMAND --help lists the arguments of a command
  --version   the version

other commands: lucid-eval, lucid-predict, lucid-data, lucid-export, lucid-bench
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: Arguments after the program's name; None takes those of the process.

    Returns:
        The exit code.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = arguments[0] if arguments else ""
    if command in ("-h", "--help"):
        print(HELP, end="")
        return 0
    if command == "--version":
        print(f"lucid-yolo {__version__}")
        return 0
    if command in TRAINER_COMMANDS:
        from lucid_yolo.data.worker_server import start_worker_server, wants_workers

        if wants_workers(arguments[1:]):
            start_worker_server()
        from lucid_yolo.cli import trainer

        return run_command(lambda: trainer.run(arguments))
    if command == "predict":
        from lucid_yolo.cli import predict

        return predict.main(arguments[1:], prog="lucid-yolo predict")
    if command == "sizes":
        from lucid_yolo.cli import sizes

        return sizes.main(arguments[1:])
    found = f"unknown command {command!r}" if command else "no command"
    print(f"error: {found}; expected one of {', '.join(COMMANDS)}, or --help", file=sys.stderr)
    return USER_ERROR


if __name__ == "__main__":
    sys.exit(main())
