"""Inputs that laws of the formulas are tried on: every value a formula claims to accept, ends included."""

from __future__ import annotations

from hypothesis import strategies as st

# Probabilities, with the ends and the neighbourhood of 1 where naive formulas lose their digits.
probabilities = st.one_of(
    st.floats(0.0, 1.0, allow_subnormal=False), st.sampled_from([0.0, 1e-12, 0.5, 1.0 - 1e-12, 1.0])
)
inner_probabilities = st.floats(0.001, 0.999)
draft_lengths = st.integers(0, 64)
cost_ratios = st.floats(0.001, 0.999)
token_counts = st.integers(1, 64)
batches = st.integers(1, 4096)

# Work, rates and times from a tiny copy to a whole prefill.
work = st.floats(0.0, 1e18, allow_subnormal=False)
rates = st.floats(1e9, 1e17)
times = st.floats(0.0, 1e3, allow_subnormal=False)
sharpnesses = st.one_of(st.floats(1.0, 64.0), st.just(float("inf")))


@st.composite
def expert_layouts(draw: st.DrawFn, max_experts: int = 512) -> tuple[int, int]:
    """Routed experts and how many of them a token uses."""
    experts = draw(st.integers(1, max_experts))
    return experts, draw(st.integers(1, experts))
