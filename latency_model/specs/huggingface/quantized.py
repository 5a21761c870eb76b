"""Which format each matrix of a checkpoint is stored in, from its quantisation config.

Sources: the configs that AutoAWQ, GPTQModel, bitsandbytes, compressed-tensors, ModelOpt and the DeepSeek and
OpenAI checkpoints write.  Routers, embeddings and anything that is not a matrix keep the checkpoint's dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

from attrs import evolve, field, frozen

from latency_model.errors import nearest
from latency_model.specs.huggingface.patterns import ModulePatterns, read_pattern_fields, read_patterns
from latency_model.specs.huggingface.reader import Config
from latency_model.specs.model import (
    DenseMLP,
    FeedForward,
    LatentAttention,
    Layer,
    Matrix,
    Mixer,
    Projection,
)
from latency_model.specs.quantization import WeightFormat, weight_format

__all__ = ["StoredFormats", "read_formats"]

#: Fields under which tools list what they leave alone.
KEPT_FIELDS = (
    "modules_to_not_convert",
    "ignored_layers",
    "ignore",
    "exclude_modules",
    "llm_int8_skip_modules",
    "modules_to_not_quantize",
)
#: Maps with few outputs that every tool we read leaves in 16 bits although they are linear layers.
SMALL_MAPS = ("weights_proj", "shared_expert_gate")

Rule = tuple[ModulePatterns | None, WeightFormat]


@frozen(kw_only=True)
class StoredFormats:
    """What each matrix of a checkpoint is stored as.

    Parameters
    ----------
    base : WeightFormat
        Format of what is not quantised.
    rules : tuple of (ModulePatterns or None, WeightFormat)
        First match wins; None matches every linear layer.
    kept : ModulePatterns
        Modules left in the base format.
    head : bool
        True where the LM head is quantised like any linear layer unless it is kept.
    experts_only : bool
        True where only routed experts are quantised.
    kv_dtype : str or None
        Format of the cache, where the config sets it.
    assumptions : tuple of str
        What had to be assumed.
    """

    base: WeightFormat
    rules: tuple[Rule, ...] = ()
    kept: ModulePatterns = field(factory=ModulePatterns)
    head: bool = False
    experts_only: bool = False
    kv_dtype: str | None = None
    assumptions: tuple[str, ...] = ()

    def of(self, path: str) -> WeightFormat:
        """Look up the format of the matrix at a path such as ``layers.0.mlp.down_proj`` or ``lm_head``."""
        if path == "lm_head" and not self.head:
            return self.base
        if path.endswith(SMALL_MAPS) or (self.experts_only and ".experts" not in path) or self.kept.match(path):
            return self.base
        return next((form for patterns, form in self.rules if patterns is None or patterns.match(path)), self.base)

    def applied(self, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
        """Give every matrix of every layer its format."""
        if not self.rules and self.base == Matrix(name="", inputs=1, outputs=1).format:
            return layers
        done: dict[tuple[Layer, tuple[WeightFormat, ...]], Layer] = {}
        result = []
        for index, layer in enumerate(layers):
            names = [matrix.name for projection, _ in layer.projections() for matrix in projection.matrices]
            formats = {name: self.of(f"layers.{index}.{name}") for name in names}
            key = (layer, tuple(formats.values()))
            if key not in done:
                done[key] = _with_formats(layer, formats, self.base)
            result.append(done[key])
        return tuple(result)


def _with_formats(layer: Layer, formats: Mapping[str, WeightFormat], base: WeightFormat) -> Layer:
    """Rebuild a layer with the format of each matrix looked up by its name; routers keep the base format."""

    def all_of(projections: tuple[Projection, ...]) -> tuple[Projection, ...]:
        return tuple(
            evolve(p, matrices=tuple(evolve(matrix, format=formats[matrix.name]) for matrix in p.matrices))
            for p in projections
        )

    def mixer_of(mixer: Mixer) -> Mixer:
        if isinstance(mixer, LatentAttention) and mixer.indexer is not None:
            indexer = evolve(mixer.indexer, projections=all_of(mixer.indexer.projections))
            return evolve(mixer, projections=all_of(mixer.projections), indexer=indexer)
        return evolve(mixer, projections=all_of(mixer.projections))

    def block_of(block: FeedForward) -> FeedForward:
        if isinstance(block, DenseMLP):
            return evolve(block, projections=all_of(block.projections))
        router = tuple(evolve(matrix, format=base) for matrix in block.router.matrices)
        return evolve(
            block,
            router=evolve(block.router, matrices=router),
            expert=all_of(block.expert),
            shared=all_of(block.shared),
        )

    return evolve(
        layer,
        mixer=None if layer.mixer is None else mixer_of(layer.mixer),
        feed_forward=tuple(block_of(block) for block in layer.feed_forward),
        embedding=None if layer.embedding is None else evolve(layer.embedding, format=base),
    )


def read_formats(config: Config, dtype: str, beside: Mapping[str, object] | None) -> StoredFormats:
    """Read how the weights are stored.

    Parameters
    ----------
    config : Config
        The model's config, which may hold ``quantization_config``.
    dtype : str
        Format of weights that are not quantised.
    beside : mapping or None
        Parsed ``hf_quant_config.json`` (ModelOpt).
    """
    base = weight_format(dtype)
    section = config.section("quantization_config") or config.section("compression_config")
    if beside is not None:
        section = _from_modelopt_file(config, section, beside)
    if section is None:
        return StoredFormats(base=base)
    fallback = "modelopt" if section.has("quant_algo") else ""
    method = section.text("quant_method", fallback).lower().replace("_", "-")
    reader = METHODS.get(method)
    if reader is None:
        known = ", ".join(sorted(METHODS))
        section.wrong(
            "quant_method",
            f"must be one of {known}",
            section.values.get("quant_method"),
            nearest(method, METHODS) if method else "",
        )
        return StoredFormats(base=base)
    section = section.section("quantization") or section  # older ModelOpt configs nest what newer ones spread
    formats = reader(section, StoredFormats(base=base))
    kept = read_pattern_fields(section, *KEPT_FIELDS)
    notes = (*formats.assumptions, *_about_single_experts(kept), *section.describe_defaults())
    return evolve(formats, kept=_joined(formats.kept, kept), assumptions=notes)


def _from_modelopt_file(config: Config, section: Config | None, beside: Mapping[str, object]) -> Config | None:
    """Take the ModelOpt file's block, which must not contradict the config's own."""
    outer = Config(beside, config.problems, "hf_quant_config.json: ")
    inner = outer.section("quantization")
    if inner is None:
        outer.wrong("quantization", "is missing; ModelOpt states its algorithm there")
        return section
    if section is None:
        return Config({"quant_method": "modelopt", **inner.values}, config.problems, inner.path)
    stated, here = inner.values.get("quant_algo"), section.values.get("quant_algo")
    if here is not None and stated != here:
        inner.wrong("quant_algo", f"contradicts quantization_config.quant_algo = {here!r}", stated)
    return section


def _joined(one: ModulePatterns, other: ModulePatterns) -> ModulePatterns:
    """Unite two sets of patterns."""
    return ModulePatterns(names=one.names | other.names, wildcards=one.wildcards + other.wildcards)


def _about_single_experts(kept: ModulePatterns) -> tuple[str, ...]:
    """Say so where single experts are left alone: expert 0 stands for all of its layer."""
    single = any(part == "experts" and following.isdigit() for name in kept.names for part, following in pairwise(name))
    return ("experts that are quantised differently from expert 0 of their layer are read like it",) if single else ()


def scaled(
    name: str, bits: int, compute: str, group: int, scale_bytes: float, *, tensor_bytes: float = 0.0
) -> WeightFormat:
    """Build a format with one scale per ``group`` inputs of each output; group -1 or 0 is one per output."""
    block = (group if group > 0 else 0, 1)
    return WeightFormat(
        name=name, bits=bits, compute=compute, block=block, scale_bytes=scale_bytes, tensor_bytes=tensor_bytes
    )


def read_block(config: Config, name: str) -> tuple[int, int] | None:
    """Read a [outputs, inputs] block of shared scales."""
    block = config.integers(name, low=1)
    if block is not None and len(block) != 2:
        config.wrong(name, "must be two whole numbers", list(block))
        return None
    return None if block is None else (block[1], block[0])


def read_group(config: Config, *names: str, default: int | None = None) -> int:
    """Read how many inputs share a scale; -1 is all of them."""
    return config.integer(*names, default=default, low=-1, high=65_536)


def _fp8(config: Config, formats: StoredFormats) -> StoredFormats:
    block = read_block(config, "weight_block_size")
    form = weight_format("fp8") if block is None else evolve(weight_format("fp8_block"), block=block)
    return evolve(formats, rules=((None, form),))


def _fbgemm_fp8(config: Config, formats: StoredFormats) -> StoredFormats:
    return evolve(formats, rules=((None, weight_format("fp8_channel")),))


def _mxfp4(config: Config, formats: StoredFormats) -> StoredFormats:
    return evolve(formats, rules=((None, weight_format("mxfp4")),), experts_only=True)


def _awq(config: Config, formats: StoredFormats) -> StoredFormats:
    bits = config.integer("bits", "w_bit", low=2, high=8)
    group = read_group(config, "group_size", "q_group_size")
    zero_point = config.flag("zero_point", True)
    scale = 2.0 + (bits / 8 if zero_point else 0.0)
    return evolve(formats, rules=((None, scaled(f"int{bits}", bits, "bf16", group, scale)),))


def _gptq(config: Config, formats: StoredFormats) -> StoredFormats:
    """Read GPTQ: zero points are stored even where they are all equal; the order of inputs is not counted."""
    bits = config.integer("bits", low=2, high=8)
    group = read_group(config, "group_size")
    only = config.get("modules_in_block_to_quantize")
    dynamic = config.section("dynamic")
    kept = formats.kept
    patterns: ModulePatterns | None = None
    if dynamic is not None:
        kept = read_patterns(
            [f"re:{name.removeprefix('-:')}" for name in dynamic.values if name.startswith("-:")],
            lambda text: config.wrong("dynamic", "holds a pattern that is not understood", text),
        )
        if any(not name.startswith("-:") for name in dynamic.values):
            config.wrong("dynamic", "may only exclude modules ('-:pattern') here", list(dynamic.values))
    if only is not None:
        patterns = read_patterns(_nested_names(config, only), lambda text: None)
    form = scaled(f"int{bits}", bits, "bf16", group, 2.0 + bits / 8)
    return evolve(formats, rules=((patterns, form),), kept=kept, head=config.get("lm_head") is True)


def _nested_names(config: Config, value: object) -> list[str]:
    """Flatten GPTQ's list of lists of module names."""
    groups = value if isinstance(value, list) else [None]
    names = [name for group in groups if isinstance(group, list) for name in group if isinstance(name, str)]
    if not names or len(names) != sum(len(group) for group in groups if isinstance(group, list)):
        config.wrong("modules_in_block_to_quantize", "must be a list of lists of module names", value)
    return names


def _bitsandbytes(config: Config, formats: StoredFormats) -> StoredFormats:
    """Read bitsandbytes: 4-bit has an fp32 scale per 64 weights, itself one byte with double quantisation."""
    four, eight = config.get("load_in_4bit") is True, config.get("load_in_8bit") is True
    if four == eight:
        config.wrong("load_in_4bit", "or load_in_8bit must be true, not both", [four, eight])
    if eight:
        return evolve(formats, rules=((None, weight_format("int8")),))
    kind = config.text("bnb_4bit_quant_type", "fp4")
    scale = 1.0 + 4.0 / 256 if config.get("bnb_4bit_use_double_quant") is True else 4.0
    return evolve(formats, rules=((None, scaled(kind if kind == "nf4" else "bnb_fp4", 4, "bf16", 64, scale)),))


#: ModelOpt's ``quant_algo``, and the group size of those that have one.
MODELOPT: dict[str, tuple[WeightFormat, int]] = {
    "FP8": (weight_format("fp8"), 0),
    "FP8_PER_CHANNEL_PER_TOKEN": (weight_format("fp8_channel"), 0),
    "FP8_PB_WO": (weight_format("fp8_block"), 0),
    "NVFP4": (weight_format("nvfp4"), 16),
    "NVFP4_AWQ": (weight_format("nvfp4"), 16),
    "W4A16_NVFP4": (evolve(weight_format("nvfp4"), compute="bf16"), 16),
    "W4A16_AWQ": (weight_format("int4"), 128),
    "W4A8_AWQ": (evolve(weight_format("int4"), compute="fp8"), 128),
    "W8A8_SQ_PER_CHANNEL": (weight_format("int8"), 0),
}


def _modelopt(config: Config, formats: StoredFormats) -> StoredFormats:
    kv = config.text("kv_cache_quant_algo").upper()
    if kv not in ("", "NONE", "FP8", "INT8", "NVFP4"):
        config.wrong("kv_cache_quant_algo", "must be FP8, INT8 or NVFP4", kv)
    kv_dtype = {"FP8": "fp8", "INT8": "int8", "NVFP4": "fp4"}.get(kv) or read_kv_scheme(config)
    algorithm = config.text("quant_algo").upper()
    listed = config.section("quantized_layers")
    if algorithm == "MIXED_PRECISION":
        rules = _mixed_precision(config, listed)
    elif algorithm in ("", "NONE"):
        rules = ()
    else:
        form = modelopt_format(config, algorithm)
        rules = ((None, form),)
    return evolve(formats, rules=rules, kv_dtype=kv_dtype)


def modelopt_format(config: Config, algorithm: str) -> WeightFormat:
    """Look up ModelOpt's format, with the group size the config states."""
    if algorithm not in MODELOPT:
        config.wrong("quant_algo", f"must be one of {', '.join(MODELOPT)}", algorithm)
        return weight_format("bf16")
    form, group = MODELOPT[algorithm]
    stated = config.optional_integer("group_size", high=65_536)
    return evolve(form, block=(stated or group, 1)) if group else form


def _mixed_precision(config: Config, listed: Config | None) -> tuple[Rule, ...]:
    """Read one rule per algorithm from the list of quantised layers."""
    if listed is None:
        config.wrong("quantized_layers", "is missing; MIXED_PRECISION states each layer's algorithm there")
        return ()
    names: dict[str, list[str]] = {}
    for name in listed.values:
        layer = listed.section(name)
        if layer is not None:
            names.setdefault(layer.text("quant_algo").upper(), []).append(name)
    return tuple(
        (read_patterns(group, lambda text: None), modelopt_format(config, algorithm))
        for algorithm, group in names.items()
    )


def read_kv_scheme(config: Config) -> str | None:
    """Read ``kv_cache_scheme`` of compressed-tensors and newer ModelOpt configs."""
    scheme = config.section("kv_cache_scheme")
    if scheme is None:
        return None
    bits, kind = scheme.integer("num_bits", low=4, high=16), scheme.text("type", "float")
    name = {(8, "float"): "fp8", (8, "int"): "int8", (4, "float"): "fp4"}.get((bits, kind))
    if name is None:
        scheme.wrong("num_bits", f"must be 8 (or 4 for float) for a cache of type {kind}", bits)
    return name


def _compressed_tensors(config: Config, formats: StoredFormats) -> StoredFormats:
    groups = config.section("config_groups")
    rules: list[Rule] = []
    if groups is None:
        config.wrong("config_groups", "is missing; compressed-tensors states its formats there")
    else:
        for name in groups.values:
            group = groups.section(name)
            if group is not None:
                rules.append((read_targets(group), compressed_format(group)))
    rules.sort(key=lambda rule: rule[0] is None)  # groups that name modules go before those for all linear layers
    return evolve(formats, rules=tuple(rules), head=True, kv_dtype=read_kv_scheme(config))


def read_targets(group: Config) -> ModulePatterns | None:
    """Read what a group applies to; the class name ``Linear`` is every linear layer."""
    targets = group.strings("targets") or ()
    if not targets:
        group.wrong("targets", "is missing; it names the modules of the group")
    if "Linear" in targets:
        return None
    return read_patterns(targets, lambda text: group.wrong("targets", "holds a pattern that is not understood", text))


def compressed_format(group: Config) -> WeightFormat:
    """Read the format of one compressed-tensors group: bits, type, and what shares a scale."""
    weights, inputs = group.section("weights"), group.section("input_activations")
    if weights is None:
        group.wrong("weights", "is missing; it states the format of the group")
        return weight_format("bf16")
    bits, kind = weights.integer("num_bits", low=2, high=8), weights.text("type", "int")
    strategy = weights.text("strategy", "channel")
    input_bits = 16 if inputs is None else inputs.integer("num_bits", low=4, high=16)
    input_kind = "float" if inputs is None else inputs.text("type", "int")
    compute = {(8, "float"): "fp8", (8, "int"): "int8", (4, "float"): "fp4"}.get((input_bits, input_kind), "bf16")
    group_size = read_group(weights, "group_size") if "group" in strategy else -1
    if kind == "float" and bits == 4:
        return evolve(weight_format("mxfp4" if group_size == 32 else "nvfp4"), block=(group_size, 1), compute=compute)
    if kind == "float" and bits == 8:
        if strategy == "block":
            block = read_block(weights, "block_structure") or (128, 128)
            return evolve(weight_format("fp8_block"), block=block, compute=compute)
        form = weight_format("fp8" if strategy == "tensor" else "fp8_channel")
        return evolve(form, compute=compute, block=(max(group_size, 0), form.block[1]))
    if kind != "int":
        weights.wrong("type", "must be int, or float with 4 or 8 bits", kind)
    zero_point = 0.0 if weights.flag("symmetric", True) else bits / 8
    return scaled(f"int{bits}", bits, compute, group_size, 2.0 + zero_point)


METHODS: dict[str, Callable[[Config, StoredFormats], StoredFormats]] = {
    "awq": _awq,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed_tensors,
    "fbgemm-fp8": _fbgemm_fp8,
    "fp8": _fp8,
    "gptq": _gptq,
    "modelopt": _modelopt,
    "mxfp4": _mxfp4,
}
