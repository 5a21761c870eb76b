"""``latency-model explore``: a local page with a control for every choice."""

from __future__ import annotations

import click

from latency_model.cli.options import Command
from latency_model.errors import InputError


@click.command(cls=Command, short_help="A local page with a control for every choice.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address of this machine to listen on.")
@click.option("--port", type=int, default=8050, show_default=True, help="Port to listen on; 0 takes any free one.")
@click.option("--open", "show", is_flag=True, help="Open the page in a browser.")
def explore(*, host: str, port: int, show: bool) -> None:
    """Open a page that answers as you choose: model, device, drafter, acceptance, routing, layout (needs Dash).

    Unless --host says otherwise only this machine reaches it.  It loads nothing from a network and keeps nothing;
    the address in the browser holds the whole choice.

    \b
    Examples:
      latency-model explore
      latency-model explore --port 0 --open
    """  # noqa: D301 - \b keeps click from joining the lines
    from latency_model.cli.render import note

    try:
        from latency_model.views.explorer.app import serve
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("latency_model"):
            raise
        raise InputError("the explorer needs Dash: pip install 'latency-model[explore]'") from None

    def ready(address: str) -> None:
        click.echo(address)
        note("Press Ctrl-C to stop.")
        if show:
            click.launch(address)

    serve(host, port, ready=ready)
