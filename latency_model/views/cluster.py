"""A cluster of workers: connect to the scheduler of dask.distributed, and hand blocks of a sweep to it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from latency_model.errors import InputError, shorten

if TYPE_CHECKING:
    from distributed import Client as Client

__all__ = ["LOCAL", "connected", "mapped"]

Item = TypeVar("Item")
Result = TypeVar("Result")

#: The address that means a cluster of this machine's own cores, started for one sweep.
LOCAL = "local"
PATIENCE = 20  # seconds a scheduler may take to answer, and its workers to appear


@contextmanager
def connected(cluster: Client | object) -> Iterator[Client]:
    """A client of the cluster meant: its address, ``local`` for the cores of this machine, or a client or cluster.

    What was started here ends here; what came connected stays so.

    Raises
    ------
    InputError
        When dask.distributed is missing, nothing answers at the address, or no worker is there.
    """
    if importlib.util.find_spec("distributed") is None:
        raise InputError("cluster: dask.distributed is missing; pip install 'latency-model[cluster]'")
    import distributed

    if isinstance(cluster, distributed.Client):
        yield cluster
    elif cluster == LOCAL:
        with (
            distributed.LocalCluster(threads_per_worker=1, dashboard_address=":0") as own,  # type: ignore[no-untyped-call]
            distributed.Client(own, set_as_default=False) as client,  # type: ignore[no-untyped-call]
        ):
            yield client
    else:
        with _client(cluster) as client:
            yield client


def _client(cluster: object) -> Client:
    import distributed

    try:
        client = distributed.Client(cluster, timeout=PATIENCE, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, TypeError, ValueError) as error:
        raise InputError(
            f"cluster: no scheduler answers at {shorten(cluster)} ({error}); give the address that "
            f"`dask scheduler` printed, as in tcp://host:8786, or {LOCAL}"
        ) from None
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
    except TimeoutError:
        client.close()  # type: ignore[no-untyped-call]
        raise InputError(f"cluster: {shorten(cluster)} has no workers; start some with `dask worker ADDRESS`") from None
    return client


def mapped(client: Client, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[tuple[Item, Result]]:
    """Apply ``function`` to every item on the workers; items with their results, in the order they get done."""
    from distributed import KilledWorker, as_completed

    asked = list(items)
    running = dict(zip(client.map(function, asked, pure=False), asked, strict=True))
    try:
        for future, result in as_completed(list(running), loop=client.loop, with_results=True):  # type: ignore[no-untyped-call]
            yield running.pop(future), result
    except KilledWorker:
        raise InputError(
            "cluster: a block ended the workers it was given to, most likely for want of memory; take smaller chunks"
        ) from None
    except ImportError as error:
        raise InputError(f"cluster: its workers need the same latency-model as this machine ({error})") from None
    finally:
        client.cancel(list(running))  # type: ignore[no-untyped-call]
