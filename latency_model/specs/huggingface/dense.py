"""Dense families: one attention block and one gated MLP in every layer."""

from __future__ import annotations

from latency_model.specs.huggingface.parts import Decoder, attention, dense_mlp, read_shape, stack
from latency_model.specs.huggingface.reader import Config
from latency_model.specs.model import Layer

__all__ = ["llama", "mistral", "phi3", "qwen2", "qwen3", "qwen_windows", "read_window"]


def llama(config: Config) -> Decoder:
    """Read Llama 1 to 3: two norms; biases in attention and MLP only where the config says so."""
    shape = read_shape(config, kv_heads=False)
    width = config.integer("intermediate_size")
    bias = config.flag("attention_bias", False)
    mlp_bias = config.flag("mlp_bias", False)
    config.check()
    layer = Layer(
        mixer=attention(shape, qkv_bias=bias, output_bias=bias),
        feed_forward=(dense_mlp(shape.hidden, width, bias=mlp_bias),),
        vectors=2 * shape.hidden,
    )
    return shape.decoder((layer,) * shape.layers)


def mistral(config: Config) -> Decoder:
    """Read Mistral: Llama without biases, all layers windowed where ``sliding_window`` is a number."""
    shape = read_shape(config)
    width = config.integer("intermediate_size")
    window = read_window(config)
    config.check()
    layer = Layer(
        mixer=attention(shape, window=window),
        feed_forward=(dense_mlp(shape.hidden, width),),
        vectors=2 * shape.hidden,
    )
    return shape.decoder((layer,) * shape.layers)


def phi3(config: Config) -> Decoder:
    """Read Phi-3: QKV and gate-up stored fused, window on all layers where it is a number."""
    shape = read_shape(config, free_head_dim=False)
    width = config.integer("intermediate_size")
    window = read_window(config)
    config.check()
    layer = Layer(
        mixer=attention(shape, window=window, fused="qkv_proj"),
        feed_forward=(dense_mlp(shape.hidden, width, names=("gate_up_proj", "gate_up_proj", "down_proj")),),
        vectors=2 * shape.hidden,
    )
    return shape.decoder((layer,) * shape.layers)


def qwen2(config: Config) -> Decoder:
    """Read Qwen2 and Qwen2.5: biases on Q, K and V, none on the output."""
    shape = read_shape(config)
    width = config.integer("intermediate_size")
    windows = qwen_windows(config, shape.layers)
    config.check()
    return shape.decoder(
        stack(
            shape.layers,
            lambda index: Layer(
                mixer=attention(shape, qkv_bias=True, window=windows[index]),
                feed_forward=(dense_mlp(shape.hidden, width),),
                vectors=2 * shape.hidden,
            ),
        )
    )


def qwen3(config: Config) -> Decoder:
    """Read Qwen3 dense: a norm per head on queries and keys, free head size."""
    shape = read_shape(config)
    width = config.integer("intermediate_size")
    bias = config.flag("attention_bias", False)
    windows = qwen_windows(config, shape.layers)
    config.check()
    return shape.decoder(
        stack(
            shape.layers,
            lambda index: Layer(
                mixer=attention(
                    shape, qkv_bias=bias, output_bias=bias, window=windows[index], vectors=2 * shape.head_dim
                ),
                feed_forward=(dense_mlp(shape.hidden, width),),
                vectors=2 * shape.hidden,
            ),
        )
    )


def read_window(config: Config) -> int | None:
    """Read the sliding window of every layer; null means full attention."""
    return config.optional_integer("sliding_window")


def qwen_windows(config: Config, layers: int) -> tuple[int | None, ...]:
    """Read windows per layer: none unless ``use_sliding_window``, else as listed or from the stated layer."""
    used = config.flag("use_sliding_window", False)
    window = config.optional_integer("sliding_window")
    first = config.integer("max_window_layers", default=layers, low=0)
    kinds = config.layer_list("layer_types", ("full_attention", "sliding_attention"), layers)
    if not used:
        return (None,) * layers
    if window is None:
        config.wrong("sliding_window", "is missing; use_sliding_window is true")
    windowed = [kind == "sliding_attention" for kind in kinds] if kinds else [i >= first for i in range(layers)]
    return tuple(window if flag else None for flag in windowed)
