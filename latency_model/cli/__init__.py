"""The command ``latency-model``: one small file per command, imported when it is called.

Exit codes: 0 when it worked, 1 when a model, a profile or a value cannot be used (one sentence on standard
error), 2 when the command line itself is wrong.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from latency_model.errors import InputError

__all__ = ["main"]

COMMANDS = (
    "optimize",
    "explain",
    "experts",
    "sweep",
    "serve",
    "validate",
    "gallery",
    "calibrate",
    "measure",
    "hardware",
    "models",
    "explore",
)


class LazyGroup(click.Group):
    """Commands are modules of this package; mistakes of a user end in one sentence."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, in the order a newcomer meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a command and take the function of its name."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"latency_model.cli.{cmd_name}"), cmd_name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; a value that cannot be used is exit code 1, whoever noticed it."""
        try:
            return super().invoke(ctx)
        except InputError as error:
            raise click.ClickException(str(error)) from None
        except click.MissingParameter:
            raise
        except click.BadParameter as error:
            raise click.ClickException(error.format_message()) from None


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="latency-model", prog_name="latency-model")
def main() -> None:
    """How much to speculate, what experts cost to load, and where that flips.

    Closed-form latency models for LLM serving: no GPU, no profiling run.  `latency-model optimize` without
    options shows an example.
    """
