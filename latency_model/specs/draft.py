"""Drafters: what proposes tokens, what it is made of, how many passes it takes."""

from __future__ import annotations

import math

from attrs import evolve, field, frozen

from latency_model.errors import InputError, Problems, nearest, shorten
from latency_model.specs.acceptance import Acceptance
from latency_model.specs.model import (
    Attention,
    DenseMLP,
    LatentAttention,
    Layer,
    Matrix,
    Mixer,
    ModelArchitecture,
    MoE,
    Projection,
)
from latency_model.specs.parallelism import Parallelism
from latency_model.specs.workload import is_integer, is_number

__all__ = ["KINDS", "Draft"]

#: Spellings of the command line and of the engines, each with the constructor it names.
KINDS: dict[str, str] = {
    "eagle": "eagle",
    "eagle3": "eagle3",
    "eagle-3": "eagle3",
    "mtp": "mtp",
    "nextn": "mtp",
    "deepseek_mtp": "mtp",
    "ngram": "ngram",
    "n-gram": "ngram",
    "prompt-lookup": "ngram",
    "suffix": "ngram",
    "parallel": "parallel",
    "medusa": "parallel",
    "p-eagle": "parallel",
    "dflash": "parallel",
    "self": "self_speculation",
    "self-speculation": "self_speculation",
}

#: What acceptance to assume when none is given, with its source.
PUBLISHED_ACCEPTANCE: dict[str, tuple[tuple[float, ...], str]] = {
    "eagle": (
        (0.71, 0.66, 0.66, 0.66, 0.64),
        "LLaMA2-Chat-7B at temperature 1, EAGLE arXiv 2401.15077 Table 2",
    ),
    "eagle3": (
        (0.6937, 0.6633, 0.6905, 0.7252),
        "an EAGLE-3 head for Llama-3.1-8B on ShareGPT, SpecDecode-Bench arXiv 2601.11580",
    ),
    "mtp": (
        (0.897, 0.802, 0.662),
        "stock MTP of Qwen3-Next-80B-A3B, from survivals .897 .719 .476 in a public report on its tuning",
    ),
    "ngram": (
        (0.348, 0.843, 0.871, 0.895),
        "n-gram proposals on ShareGPT, SpecDecode-Bench arXiv 2601.11580",
    ),
    "parallel": (
        (0.6937, 0.6633),
        "taken from an EAGLE-3 head on ShareGPT, SpecDecode-Bench arXiv 2601.11580",
    ),
    "model": ((0.73,), "T5-base drafting for T5-XXL on CNN/DM, Leviathan arXiv 2211.17192 Table 2"),
    "self_speculation": (
        (0.845,),
        "solved from 2.56 tokens a round at 2 drafts, MagicDec arXiv 2408.11049 Table 3",
    ),
}

#: 0.005875 of a 5.9 ms target pass: SpecDecode-Bench simulator, arXiv 2601.11580, Llama-3.1-8B on H100.
NGRAM_HOST_TIME = 35e-6
EAGLE3_VOCABULARY = 32000
#: A draft as large as this share of the target's active parameters is worth a warning: mlx-lm pull request 1132
#: reports a 35 % loss for a draft too big for a mixture's active size; the threshold itself is assumed.
LARGE_DRAFT = 0.15
HEAD_DIM = 128
SIZES = {
    "layers": (1, 1000),
    "intermediate_size": (1, 10**8),
    "vocabulary": (1, 10**8),
    "features": (0, 1000),
    "kv_budget": (1, 10**9),
}
KV_HEADS = 8


@frozen(kw_only=True)
class Draft:
    """A drafter; build it with :meth:`model`, :meth:`eagle`, :meth:`mtp`, :meth:`ngram`, :meth:`parallel`
    or :meth:`self_speculation`.

    Parameters
    ----------
    kind : str
        ``model``, ``eagle``, ``eagle3``, ``mtp``, ``ngram``, ``parallel`` or ``self_speculation``.
    architecture : ModelArchitecture or None
        The drafter's own network where it is known; heads are built from the target by :meth:`network`.
    layers : int
        Decoder layers of a head [1].
    intermediate_size : int or None
        MLP width of a head [1]; None takes the target's dense width, or that of the experts one token visits.
    vocabulary : int or None
        Rows of the head's own LM head [1]; None shares the target's vocabulary.
    features : int
        Target layers whose hidden states a head fuses, once a round [1].
    parallelism : Parallelism or None
        Ranks the drafter runs on; None is one device for a draft model, the target's layout for heads.
    kv_budget : int or None
        Cached tokens self-speculation reads at most [token].
    host_time : float
        Host seconds per round of proposers without a network [s].
    hit_rate : float
        Share of rounds in which a sequence is proposed anything [1]; without a match there is nothing to verify.

    Examples
    --------
    >>> Draft.eagle().assumptions[0]
    'EAGLE head of 1 layer, as wide as the target'
    >>> Draft.self_speculation(kv_budget=512).kv_budget
    512
    """

    kind: str
    architecture: ModelArchitecture | None = None
    layers: int = 1
    intermediate_size: int | None = None
    vocabulary: int | None = None
    features: int = 0
    parallelism: Parallelism | None = None
    kv_budget: int | None = None
    host_time: float = 0.0
    hit_rate: float = 1.0
    assumptions: tuple[str, ...] = field(default=(), eq=False)

    def __attrs_post_init__(self) -> None:
        if self.kind not in PUBLISHED_ACCEPTANCE:
            raise InputError(f"draft kind {shorten(self.kind)} is not known; {nearest(self.kind, KINDS)}")
        problems = Problems(f"draft {self.kind}")
        for name, (lowest, highest) in SIZES.items():
            value = getattr(self, name)
            if value is not None and not (is_integer(value) and lowest <= value <= highest):
                problems.add(name, f"must be an integer from {lowest} to {highest}", value)
        if not (is_number(self.host_time) and 0.0 <= self.host_time < 60.0):
            problems.add("host_time", "must be seconds from 0 to 60", self.host_time)
        if not (is_number(self.hit_rate) and 0.0 <= self.hit_rate <= 1.0):
            problems.add("hit_rate", "must be a share from 0 to 1", self.hit_rate)
        if self.parallelism is not None and not isinstance(self.parallelism, Parallelism):
            problems.add("parallelism", "must be a Parallelism", self.parallelism)
        if (self.kind == "model") != isinstance(self.architecture, ModelArchitecture):
            problems.add(
                "architecture", "must be a ModelArchitecture for a draft model and nothing else", self.architecture
            )
        problems.raise_if_any()

    @classmethod
    def model(cls, architecture: ModelArchitecture, *, parallelism: Parallelism | None = None) -> Draft:
        """A separate, smaller language model that runs one step per drafted token."""
        if not isinstance(architecture, ModelArchitecture):
            raise InputError(
                f"draft model must be a ModelArchitecture, got {shorten(architecture)}; load_model reads one"
            )
        ranks = parallelism.describe() if isinstance(parallelism, Parallelism) else "one device"
        return cls(
            kind="model",
            architecture=architecture,
            parallelism=parallelism,
            assumptions=(f"draft model {architecture.name} on {ranks}",),
        )

    @classmethod
    def eagle(
        cls,
        *,
        version: int = 3,
        layers: int = 1,
        intermediate_size: int | None = None,
        vocabulary: int | None = None,
        parallelism: Parallelism | None = None,
    ) -> Draft:
        """An EAGLE head: a decoder layer on the target's features.  Version 3 (default) fuses three target layers
        and has its own LM head over 32,000 frequent tokens; version 1 and 2 use the target's LM head.
        """
        if version not in (1, 2, 3):
            raise InputError(f"draft eagle: version must be 1, 2 or 3, got {shorten(version)}")
        newest = version == 3
        if newest and vocabulary is None:
            vocabulary = EAGLE3_VOCABULARY
        assumptions = [f"EAGLE head of {_layers(layers)}, as wide as the target"]
        if newest:
            assumptions.append(f"its LM head has {vocabulary} rows")
        return cls(
            kind="eagle3" if newest else "eagle",
            layers=layers,
            intermediate_size=intermediate_size,
            vocabulary=vocabulary,
            features=3 if newest else 0,
            parallelism=parallelism,
            assumptions=tuple(assumptions),
        )

    @classmethod
    def mtp(cls, *, parallelism: Parallelism | None = None) -> Draft:
        """The target's own multi-token-prediction layer, run once per drafted token."""
        note = "MTP layer built like the target's last layer, LM head shared, reused for every drafted token"
        return cls(kind="mtp", parallelism=parallelism, assumptions=(note,))

    @classmethod
    def ngram(cls, *, host_time: float = NGRAM_HOST_TIME, hit_rate: float = 1.0) -> Draft:
        """Prompt lookup or suffix matching: no network, only host time per round [s].

        A sequence whose last tokens occur nowhere before gets no proposal: that happens in 1 − ``hit_rate`` of the
        rounds [1].  Acceptance counts every round, with a proposal or without, so its first entry is at most
        ``hit_rate``.  Where that is not known every round is taken to verify a proposal, which costs most.
        """
        built = cls(kind="ngram", host_time=host_time, hit_rate=hit_rate)
        notes = (f"proposals take {host_time * 1e6:.0f} µs a round", f"{hit_rate:.0%} of rounds have a proposal")
        return evolve(built, assumptions=notes)

    @classmethod
    def parallel(
        cls,
        *,
        layers: int = 1,
        intermediate_size: int | None = None,
        vocabulary: int | None = None,
        parallelism: Parallelism | None = None,
    ) -> Draft:
        """A block drafter (Medusa, P-EAGLE, DFlash): all tokens of a round in one pass."""
        return cls(
            kind="parallel",
            layers=layers,
            intermediate_size=intermediate_size,
            vocabulary=vocabulary,
            parallelism=parallelism,
            assumptions=(f"block drafter of {_layers(layers)}, one pass a round",),
        )

    @classmethod
    def self_speculation(cls, *, kv_budget: int = 512) -> Draft:
        """The target drafts for itself while reading at most ``kv_budget`` cached tokens [token]."""
        return cls(
            kind="self_speculation",
            kv_budget=kv_budget,
            assumptions=(f"the target drafts with {kv_budget} cached tokens",),
        )

    @classmethod
    def of(cls, value: Draft | ModelArchitecture | str | None) -> Draft:
        """The drafter a caller means: given, named, a draft model, or an EAGLE-3 head for None.

        >>> Draft.of("ngram") == Draft.ngram()
        True
        """
        if value is None:
            return cls.eagle()
        if isinstance(value, Draft):
            return value
        if isinstance(value, ModelArchitecture):
            return cls.model(value)
        if isinstance(value, str):
            return cls.parse(value)
        raise InputError(f"draft must be a Draft, a name or a ModelArchitecture, got {shorten(value)}")

    @classmethod
    def parse(cls, text: str, *, architecture: ModelArchitecture | None = None) -> Draft:
        """Read a name such as ``eagle3`` or ``nextn``; an architecture makes it a draft model."""
        if architecture is not None:
            return cls.model(architecture)
        name = KINDS.get(str(text).strip().lower())
        if name is None:
            raise InputError(
                f"draft {shorten(text)} is not known; {nearest(text, KINDS)} (or give a draft model's config)"
            )
        if name in ("eagle", "eagle3"):
            return cls.eagle(version=3 if name == "eagle3" else 1)
        built: Draft = getattr(cls, name)()
        return built

    @property
    def default_acceptance(self) -> Acceptance:
        """Published acceptance of this kind, for when none is given; it says so in its assumptions."""
        values, source = PUBLISHED_ACCEPTANCE[self.kind]
        shown = ", ".join(f"{value:.2f}" for value in values)
        return Acceptance(conditionals=values, assumptions=(f"acceptance {shown}: {source}",))

    def assumptions_for(self, target: ModelArchitecture) -> tuple[str, ...]:
        """What is taken for granted when this drafter serves ``target``; warnings of poor matches included."""
        notes = list(self.assumptions)
        if self.kind == "mtp" and target.mtp_layers == 0:
            notes.append(f"the config of {target.name} brings no MTP layer; one is assumed to exist")
        if self.architecture is not None:
            if self.architecture.vocab_size != target.vocab_size:
                notes.append(
                    f"draft vocabulary {self.architecture.vocab_size} differs from the target's {target.vocab_size}: "
                    "most engines need the same tokenizer"
                )
            share = self.architecture.active_parameters / target.active_parameters
            if share > LARGE_DRAFT:
                notes.append(f"the draft model has {share:.0%} of the target's active parameters: expect little gain")
        return tuple(notes)

    def network(self, target: ModelArchitecture) -> ModelArchitecture | None:
        """The network that drafts for ``target``, or None where there is none (n-gram)."""
        if self.kind == "ngram":
            return None
        if self.architecture is not None:
            return self.architecture
        if self.kind == "self_speculation":
            return target
        layer = _mtp_layer(target) if self.kind == "mtp" else _head_layer(target, self.intermediate_size)
        rows = self.vocabulary or target.vocab_size
        return evolve(
            target,
            name=f"{self.kind} head for {target.name}",
            layers=(layer,) * self.layers,
            vocab_size=rows,
            head=evolve(target.head, outputs=rows) if self.vocabulary else target.head,
            tied=self.vocabulary is None,
            assumptions=(),
        )

    def feature_fusion(self, target: ModelArchitecture) -> Projection | None:
        """The map from several target layers' features to one, applied once a round (EAGLE-3)."""
        if not self.features:
            return None
        width = target.hidden_size
        return Projection(
            name="feature_fusion", matrices=(Matrix(name="fc", inputs=self.features * width, outputs=width),)
        )


def _layers(number: int) -> str:
    return "1 layer" if number == 1 else f"{shorten(number)} layers"


def _mtp_layer(target: ModelArchitecture) -> Layer:
    """A layer like the target's last, with full attention, behind the map that joins embedding and state (2h → h)."""
    width = target.hidden_size
    join = Matrix(name="eh_proj", inputs=2 * width, outputs=width)
    joined = DenseMLP(projections=(Projection(name="join", matrices=(join,)),), vectors=2 * width)
    last = target.layers[-1]
    mixer = next((layer.mixer for layer in reversed(target.layers) if _sees_everything(layer.mixer)), last.mixer)
    blocks = next((layer.feed_forward for layer in reversed(target.layers) if layer.feed_forward), ())
    return evolve(last, mixer=mixer, feed_forward=(joined, *blocks))


def _sees_everything(mixer: Mixer | None) -> bool:
    return isinstance(mixer, LatentAttention) or (isinstance(mixer, Attention) and mixer.window is None)


def _head_layer(target: ModelArchitecture, intermediate_size: int | None) -> Layer:
    """One Llama-like decoder layer whose attention reads embedding and feature together (2h)."""
    width = target.hidden_size
    mixers = [layer.mixer for layer in target.layers]
    like = next((mixer for mixer in mixers if isinstance(mixer, Attention)), None)
    if like is not None:
        heads, kv_heads, dim = like.heads, like.kv_heads, like.key_dim
    else:
        heads = next((mixer.heads for mixer in mixers if mixer is not None), 1)
        kv_heads, dim = math.gcd(KV_HEADS, heads), HEAD_DIM
    middle = intermediate_size or _mlp_width(target)
    qkv = (
        Matrix(name="self_attn.q_proj", inputs=2 * width, outputs=heads * dim, split="outputs"),
        Matrix(name="self_attn.k_proj", inputs=2 * width, outputs=kv_heads * dim, split="kv_heads"),
        Matrix(name="self_attn.v_proj", inputs=2 * width, outputs=kv_heads * dim, split="kv_heads"),
    )
    output = Matrix(name="self_attn.o_proj", inputs=heads * dim, outputs=width, split="inputs")
    gate_up = (
        Matrix(name="mlp.gate_proj", inputs=width, outputs=middle, split="outputs"),
        Matrix(name="mlp.up_proj", inputs=width, outputs=middle, split="outputs"),
    )
    down = Matrix(name="mlp.down_proj", inputs=middle, outputs=width, split="inputs")
    return Layer(
        mixer=Attention(
            projections=(
                Projection(name="qkv", matrices=qkv),
                Projection(name="output", matrices=(output,)),
            ),
            heads=heads,
            kv_heads=kv_heads,
            key_dim=dim,
            value_dim=dim,
        ),
        feed_forward=(
            DenseMLP(
                projections=(
                    Projection(name="gate_up", matrices=gate_up),
                    Projection(name="down", matrices=(down,)),
                )
            ),
        ),
        vectors=4 * width,
    )


def _mlp_width(target: ModelArchitecture) -> int:
    """Width of the target's dense MLP, or of the experts one token visits where it has none."""
    widths = [_dense_width(layer) for layer in target.layers]
    return max(widths, default=0) or 4 * target.hidden_size


def _dense_width(layer: Layer) -> int:
    width = 0
    for block in layer.feed_forward:
        if isinstance(block, MoE):
            width = max(width, block.top_k * block.expert[-1].matrices[0].inputs)
        else:
            width = max(width, block.projections[-1].matrices[0].inputs)
    return width
