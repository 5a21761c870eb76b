"""SGLang server log: ``Decode batch`` lines with running requests, cached tokens, throughput and accept length."""

from __future__ import annotations

import re

from latency_model.errors import InputError
from latency_model.evidence.calibrate.observations import AcceptanceCounts, Reading, Timings
from latency_model.evidence.calibrate.readers.fields import decimal

NAME = "SGLang server log"
LINE = re.compile(
    r"Decode batch.*?#running-req: (?P<running>\d+).*?#(?:full )?token: (?P<cached>\d+)"
    r"(?:.*?accept len: (?P<length>[\d.]+), accept rate: (?P<rate>[\d.]+))?"
    r".*?gen throughput \(token/s\): (?P<throughput>[\d.]+)"
)


def recognises(text: str) -> bool:
    """Whether a decode line is there."""
    return LINE.search(text) is not None


def read(text: str, source: str) -> Reading:
    """One timing a line, B·Ω/throughput; the accept rate printed is Ω over verified tokens, so it gives γ."""
    batch, tokens, context, time = [], [], [], []
    counts = None
    for match in LINE.finditer(text):
        running, throughput = decimal(match["running"], "running requests"), decimal(match["throughput"], "throughput")
        if running == 0.0 or throughput == 0.0:
            continue
        length = decimal(match["length"] or "1", "accept len")
        rate = decimal(match["rate"] or "0", "accept rate")
        verified = max(round(length / rate), 1) if rate > 0.0 else 1
        batch.append(running)
        tokens.append(float(verified))
        context.append(decimal(match["cached"], "cached tokens") / running)
        time.append(running * length / throughput)
        if verified > 1:
            own = AcceptanceCounts(rounds=1.0, accepted=length - 1.0, drafted=verified - 1.0)
            counts = own if counts is None else counts + own
    if not time:
        raise InputError("holds no decode line with running requests")
    return Reading(
        source=source,
        format=NAME,
        timings=Timings(
            batch=batch,
            tokens_per_sequence=tokens,
            context=context,
            time=time,
            drafting=[n > 1 for n in tokens],
        ),
        counts=counts,
        notes=("throughput of a log interval also holds prefills that ran in it",),
    )
