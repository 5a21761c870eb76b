"""What a choice means: the recommendation in a sentence, figures, settings of engines, a table to keep."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Iterable
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import evolve, frozen

from latency_model.costs.round import Round, speculate
from latency_model.decisions.optimize import PLATEAU, Plan, optimize
from latency_model.decisions.reasons import reasons
from latency_model.errors import InputError
from latency_model.specs.hardware import HardwareProfile, load_hardware, parse_hardware
from latency_model.specs.loader import load_model, parse_json
from latency_model.specs.model import ModelArchitecture
from latency_model.specs.parallelism import Parallelism
from latency_model.specs.precision import DTypes
from latency_model.specs.routing import Routing
from latency_model.units import format_quantity
from latency_model.views import emit, figures
from latency_model.views.explorer.state import DRAFTERS, UPLOADED, State
from latency_model.views.report import page, plain_figure
from latency_model.views.sweep import sweep

if TYPE_CHECKING:
    from latency_model.views.sweep import Dataset

__all__ = ["FIGURES", "Answer", "heading", "machine", "model"]

#: Figures of the page in their order.
FIGURES = ("map", "batch", "length", "waterfall", "memory")
BATCHES = tuple(2**power for power in range(13))
#: Batches the curves and the map show at least.
SHOWN_BATCH = 256
SHORTEST, LONGEST = 512, 131_072  # contexts of the map, unless the model or the choice goes further
LENGTHS = range(17)
FEWEST = 3
CURVE = ("speedup", "tpot", "held_back_by", "held_back_share", "fits", "speedup_low", "speedup_high")
MAP = CURVE[:5]


@lru_cache(maxsize=64)
def machine(name: str, text: str = "") -> HardwareProfile:
    """A bundled device by name, or the one an uploaded profile describes."""
    if name != UPLOADED:
        return load_hardware(name)
    if not text:
        raise InputError("the uploaded profile is not part of this address; upload it again, or choose a device")
    return parse_hardware(text.encode("utf-8"), where="the uploaded profile")


@lru_cache(maxsize=64)
def model(name: str, text: str = "") -> ModelArchitecture:
    """A bundled model by name, or the one an uploaded config describes."""
    if name != UPLOADED:
        return load_model(name)
    if not text:
        raise InputError("the uploaded config is not part of this address; upload it again, or choose a model")
    return load_model(parse_json(text.encode("utf-8"), "the uploaded config"))


@frozen(kw_only=True, slots=False)
class Answer:
    """Everything the page shows of one choice; raises :class:`InputError` where the choice cannot be.

    Examples
    --------
    >>> Answer.of(State(batch=1)).sentence.startswith("Draft ")
    True
    """

    state: State
    plan: Plan

    @classmethod
    def of(cls, state: State) -> Answer:
        """Evaluate a choice over the batches that are shown."""
        plan = optimize(**_arguments(state), batch=_batches(state), context=state.context)
        return cls(state=state, plan=plan)

    @property
    def title(self) -> str:
        """Model and device."""
        setting = self.plan.best.setting
        return f"{setting.model.name} on {setting.hardware.title}"

    @property
    def subject(self) -> str:
        """What the answer is about, in a line."""
        setting, state = self.plan.best.setting, self.state
        layout = "" if setting.parallelism.devices == 1 else f" × {setting.parallelism.devices}"
        return f"{self.title}{layout}, {DRAFTERS[state.draft]}, batch {state.batch:,}, context {state.context:,}"

    @property
    def _place(self) -> int:
        return int(np.flatnonzero(self.plan.batch == self.state.batch)[0])

    @cached_property
    def row(self) -> dict[str, Any]:
        """The plan at the batch chosen."""
        plan, place = self.plan, self._place
        length = int(plan.draft_length[place])
        here = self._by_batch.sel(batch=self.state.batch, draft_length=length)
        return {
            "draft_length": length,
            "speedup": float(plan.speedup[place]),
            "speedup_low": float(here.speedup_low),
            "speedup_high": float(here.speedup_high),
            "tpot_s": float(plan.best.tpot[place]),
            "tokens_per_round": float(plan.best.tokens_per_round[place]),
            "tokens_per_second_per_device": float(plan.best.tokens_per_second_per_device[place]),
            "held_back_by": str(plan.held_back_by[place]),
            "held_back_share": float(plan.held_back_share[place]),
            "plateau": plan.plateau[place].tolist(),
            "break_even_acceptance": float(plan.break_even_acceptance[place]),
            "fits": bool(plan.memory.fits[place]),
            "largest_batch": int(plan.memory.largest_batch[place]),
        }

    @cached_property
    def point(self) -> Round:
        """The round at the batch chosen, with the draft length chosen or else the best."""
        length = self.state.draft_length
        best = int(self.plan.draft_length[self._place])
        setting = self.plan.best.setting
        return speculate(
            setting.model,
            setting.hardware,
            **_arguments(self.state, without=("model", "hardware")),
            batch=self.state.batch,
            context=self.state.context,
            draft_length=best if length is None else length,
        )

    @property
    def sentence(self) -> str:
        """What to do here, and what it buys."""
        row = self.row
        if not row["fits"]:
            most = row["largest_batch"]
            room = f"there is room for {most:,} sequences" if most else "there is no room for a single sequence"
            return f"Batch {self.state.batch:,} at this context does not fit the memory: beside the weights {room}."
        if row["draft_length"] == 0:
            needed = row["break_even_acceptance"]
            hope = (
                "no acceptance would change that" if np.isnan(needed) else f"it would pay above acceptance {needed:.2f}"
            )
            return f"Do not speculate here: plain decoding is fastest, and {hope}."
        tokens = "token" if row["draft_length"] == 1 else "tokens"
        return (
            f"Draft {row['draft_length']} {tokens} a round: {row['speedup']:.2f} times the speed of plain decoding "
            f"(80 % interval {row['speedup_low']:.2f} to {row['speedup_high']:.2f})."
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences that follow the recommendation: the length chosen instead, then why."""
        chosen = self.state.draft_length
        if chosen is None or chosen == self.row["draft_length"]:
            return reasons(self.plan)
        speedup = float(self.plan.curve[self._place, chosen])
        return (f"With the {chosen} drafted tokens chosen, the speedup is {speedup:.2f}.", *reasons(self.plan))

    @property
    def facts(self) -> dict[str, str]:
        """A few numbers of the best length, with what each is."""
        row = self.row
        low, high = row["plateau"]
        needed = row["break_even_acceptance"]
        return {
            "Draft length": str(row["draft_length"]),
            "Speedup": f"{row['speedup']:.2f}×",
            "Time per output token": format_quantity(row["tpot_s"], "time"),
            "Tokens per round": f"{row['tokens_per_round']:.2f}",
            "Tokens/s of a device": f"{row['tokens_per_second_per_device']:,.0f}",
            f"Held back by {row['held_back_by']}": f"{row['held_back_share']:.0%}",
            "Within 1 %": str(low) if low == high else f"{low} to {high}",
            "Pays above acceptance": "-" if np.isnan(needed) else f"{needed:.2f}",
        }

    @cached_property
    def _by_batch(self) -> Dataset:
        return sweep(**_axes(self.state), batch=_batches(self.state), draft_length=LENGTHS, quantity=CURVE)

    def curves(self) -> dict[str, Any]:
        """Every figure of the page but the map."""
        at_batch = self._by_batch.sel(batch=self.state.batch)
        return {
            "batch": figures.speedup(self._by_batch, against="batch"),
            "length": figures.speedup(at_batch, against="draft_length"),
            "waterfall": figures.waterfall(self.point),
            "memory": figures.memory(self.point),
        }

    def drawn(self) -> dict[str, Any]:
        """Every figure as JSON values without title and theme, which the page adds; the choice is marked in them."""
        state = self.state
        drawn = {"map": _drawn_map(_without_point(state))}
        drawn |= {name: plain_figure(figure) for name, figure in self.curves().items()}
        for name, x in (("batch", state.batch), ("length", float(self.point.draft_length))):
            drawn[name]["layout"].setdefault("shapes", []).append(_upright(x))
        return drawn | {"map": drawn["map"] | {"data": [*drawn["map"]["data"], _cross(state.batch, state.context)]}}

    def settings(self, engine: str) -> emit.EngineSettings:
        """What to paste into ``vllm``, ``sglang`` or ``trtllm``; a sentence where it has no such setting."""
        try:
            return emit.engine_settings(self.plan, engine)
        except InputError as error:
            return emit.EngineSettings(text="", values={}, notes=(str(error),))

    def settings_text(self) -> str:
        """Settings of every engine, with what there is to know about each."""
        parts = []
        for engine in emit.ENGINES:
            settings = self.settings(engine)
            parts += [f"# {emit.TITLES[engine]}", *(f"# {note}" for note in settings.notes), settings.text, ""]
        return "\n".join(parts)

    def csv(self) -> str:
        """The curve over batch as comma-separated values, SI units, unit in the name."""
        rows = self.plan.rows()
        for row in rows:
            row["curve"] = " ".join(f"{speedup:.6g}" for speedup in row["curve"])
        return _csv(rows)

    def html(self) -> str:
        """The figures as a page that works on its own."""
        return page(
            self.title, [figures.draft_length_map(_map(self.state)), *self.curves().values()], summary=self.sentence
        )


def _model(state: State) -> ModelArchitecture:
    return model(state.model, state.config if state.model == UPLOADED else "")


def _arguments(state: State, without: Iterable[str] = ()) -> dict[str, Any]:
    """What :func:`optimize` and :func:`speculate` take for a choice."""
    arguments = {
        "model": _model(state),
        "hardware": machine(state.hardware, state.device if state.hardware == UPLOADED else ""),
        "draft": state.drafter,
        "acceptance": state.accepted,
        "parallelism": Parallelism(tp=state.tp, ep=state.ep, pp=state.pp, dp=state.dp),
        "routing": Routing(
            persistence=state.persistence, stickiness=state.stickiness, popularity_cv=state.popularity_cv
        ),
        "dtypes": DTypes(
            weights=state.weights or None,
            kv=state.kv_dtype or None,
            activations=state.activations,
            allow_fallback=bool(state.fallback),
        ),
        "engine": state.engine,
        "kv_reread": state.kv_reread,
    }
    return {name: value for name, value in arguments.items() if name not in without}


def _axes(state: State) -> dict[str, Any]:
    """The same as axes of a sweep."""
    nouns = _arguments(state, without=("parallelism", "routing", "dtypes"))
    numbers = {name: getattr(state, name) for name in ("tp", "ep", "pp", "dp", "persistence", "stickiness")}
    formats = {
        "weights": state.weights or None,
        "kv_dtype": state.kv_dtype or None,
        "activations": state.activations,
        "allow_dtype_fallback": bool(state.fallback),
    }
    return nouns | numbers | formats | {"popularity_cv": state.popularity_cv, "context": state.context}


def _without_point(state: State) -> State:
    """The same choice for every point that the same map shows."""
    return evolve(state, batch=_powers(state)[-1], context=_contexts(state)[-1], draft_length=None)


@lru_cache(maxsize=32)
def _drawn_map(state: State) -> dict[str, Any]:
    """The map as JSON values; moving over it does not change it."""
    return plain_figure(figures.draft_length_map(_map(state)))


def _map(state: State) -> Dataset:
    """Speedup over batch and context, of draft lengths up to the longest that is nearly best somewhere."""
    axes = _axes(state) | {"context": _contexts(state)}
    grid = sweep(**axes, batch=_powers(state), draft_length=LENGTHS, quantity=MAP)
    near = grid.speedup >= (1.0 - PLATEAU) * grid.speedup.max("draft_length")
    longest = int(grid.draft_length.where(near).max())
    return grid.sel(draft_length=slice(max(longest, FEWEST)))  # so that the colours of the rest stay apart


def _powers(state: State) -> list[int]:
    """Batches of powers of two, as far as the one chosen."""
    last = next(batch for batch in BATCHES if batch >= max(state.batch, SHOWN_BATCH))
    return [batch for batch in BATCHES if batch <= last]


def _batches(state: State) -> list[int]:
    """The same with the one chosen."""
    return sorted({state.batch, *_powers(state)})


def _contexts(state: State) -> list[int]:
    """Contexts of powers of two, as far as the model's longest and as the one chosen."""
    longest = _model(state).max_context or LONGEST
    last = max(longest, SHORTEST * 2, state.context)
    return [2**power for power in range(SHORTEST.bit_length() - 1, (last - 1).bit_length() + 1)]


def _upright(x: float) -> dict[str, Any]:
    """A line where the choice stands."""
    line = {"color": "#808080", "width": 1.5, "dash": "dot"}
    return {"type": "line", "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1, "line": line, "layer": "below"}


def _cross(batch: int, context: int) -> dict[str, Any]:
    """A mark on the map where the choice stands."""
    marker = {"symbol": "cross", "size": 16, "color": "#ffffff", "line": {"color": "#1b1f24", "width": 2.5}}
    return {
        "type": "scatter",
        "x": [batch],
        "y": [context],
        "mode": "markers",
        "marker": marker,
        "name": "your choice",
        "hoverinfo": "name",
    }


def _csv(rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def heading(figure: dict[str, Any]) -> str:
    """The title of a drawn figure as plain text."""
    return html.unescape(figure["layout"]["meta"]["title"])
