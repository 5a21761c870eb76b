"""Files in the true formats of engines and load generators, and every way they can be broken."""

from __future__ import annotations

import json
import re
import tempfile
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latency_model.errors import InputError
from latency_model.evidence.calibrate import calibrate
from latency_model.evidence.calibrate.observations import AcceptanceCounts, Reading
from latency_model.evidence.calibrate.readers import FORMATS, read_file

# https://github.com/ggml-org/llama.cpp/pull/24536: a server log of 2026-06-15.
LLAMA_CPP = """\
0.06.895.980 I slot print_timing: id  1 | task 0 | prompt eval time =     300.11 ms /    20 tokens (   15.01 ms per token,    66.64 tokens per second)
0.06.895.998 I slot print_timing: id  1 | task 0 |        eval time =    2296.72 ms /   256 tokens (    8.97 ms per token,   111.46 tokens per second)
0.06.895.999 I slot print_timing: id  1 | task 0 |       total time =    2596.83 ms /   276 tokens
0.06.896.009 I slot print_timing: id  1 | task 0 |    graphs reused =         85
0.06.896.015 I slot print_timing: id  1 | task 0 | draft acceptance = 0.64479 (  167 accepted /   259 generated), mean acceptance length =  2.92, acceptance rate per position = (0.805, 0.632, 0.483)
0.06.896.057 I statistics     draft-eagle3: #calls(b,g,a) =    1     87     87, #gen drafts =     87, #acc drafts =    70, #gen tokens =    259, #acc tokens =   167, #mean acc len = 2.92, #acc rate/pos = (0.805, 0.632, 0.483), dur(b,g,a) = 0.005, 325.555, 0.114 ms
"""  # noqa: E501

# https://github.com/ggml-org/llama.cpp/pull/2926: the speculative example of 2023 (n_drafted 132, accept 35.606 %).
LLAMA_CPP_2023 = """\
generated 129 tokens in 248.340 seconds, speed: 0.519 t/s

n_draft   = 8
n_predict = 129
n_drafted = 132
n_accept  = 47
accept    = 35.606%
"""

VLLM_LOG = """\
INFO 03-11 10:00:00 [metrics.py:101] SpecDecoding metrics: Mean acceptance length: 2.50, Accepted throughput: 76.61 tokens/s, Drafted throughput: 153.2 tokens/s, Accepted: 300 tokens, Drafted: 600 tokens, Per-position acceptance rate: 0.750, 0.450, 0.300, Avg Draft acceptance rate: 50.0%
INFO 03-11 10:00:10 [metrics.py:101] SpecDecoding metrics: Mean acceptance length: 2.00, Current speculative depth: 3, Accepted throughput: 50.0 tokens/s, Drafted throughput: 150.0 tokens/s, Accepted: 100 tokens, Drafted: 300 tokens, Per-position acceptance rate: 0.600, 0.300, 0.100, Avg Draft acceptance rate: 33.3%
"""  # noqa: E501


def prometheus(drafts: int, drafted: int, accepted: list[int], prefix: str = "vllm", total: str = "_total") -> str:
    labels = 'engine="0",model_name="m"'
    name = f"{prefix}:spec_decode_num"
    lines = [
        f"# HELP {name}_drafts{total} Number of spec decoding drafts.",
        f"# TYPE {name}_drafts{total} counter",
        f"{name}_drafts{total}{{{labels}}} {drafts}.0",
        f"{name}_draft_tokens{total}{{{labels}}} {drafted}.0",
        f"{name}_accepted_tokens{total}{{{labels}}} {sum(accepted)}.0",
        *(
            f'{name}_accepted_tokens_per_pos{total}{{{labels},position="{i}"}} {count}.0'
            for i, count in enumerate(accepted)
        ),
        f"{name.split(':')[0]}:num_requests_running{{{labels}}} 2.0",
    ]
    return "\n".join(lines) + "\n"


SGLANG_BENCH = "\n".join(
    json.dumps(record)
    for record in (
        {"batch_size": 1, "steps": 0, "topk": 0, "num_draft_tokens": 0, "acc_length": 1.0, "step_time": 0.0062,
         "speed": 161.0, "completion_tokens": 512.0},
        {"batch_size": 1, "steps": 3, "topk": 1, "num_draft_tokens": 4, "acc_length": 2.56, "step_time": 0.0089,
         "speed": 287.6, "completion_tokens": 512.0},
        {"batch_size": 1, "steps": 3, "topk": 4, "num_draft_tokens": 16, "acc_length": 2.9, "step_time": 0.0121,
         "speed": 239.7, "completion_tokens": 512.0},
    )
)  # fmt: skip

SGLANG_LOG = (
    "[2026-03-01 12:00:00 TP0] Decode batch, #running-req: 8, #token: 8192, token usage: 0.02, accept len: 2.40, "
    "accept rate: 0.60, cuda graph: True, gen throughput (token/s): 960.00, #queue-req: 0\n"
    "[2026-03-01 12:00:09 TP0] Decode batch, #running-req: 0, #token: 0, token usage: 0.00, accept len: 1.00, "
    "accept rate: 0.25, cuda graph: True, gen throughput (token/s): 0.00, #queue-req: 0\n"
)

VLLM_BENCH = {
    "date": "20260301-120000", "backend": "vllm", "label": None, "model_id": "m", "tokenizer_id": "m",
    "num_prompts": 100, "request_rate": "inf", "burstiness": 1.0, "max_concurrency": 8, "duration": 40.0,
    "completed": 100, "total_input_tokens": 51200, "total_output_tokens": 12800, "request_throughput": 2.5,
    "output_throughput": 320.0, "total_token_throughput": 1600.0, "mean_ttft_ms": 60.0, "mean_tpot_ms": 20.0,
    "median_tpot_ms": 19.8, "mean_itl_ms": 49.0,
}  # fmt: skip
VLLM_BENCH_SPECULATIVE = VLLM_BENCH | {
    "spec_decode_acceptance_rate": 50.0, "spec_decode_acceptance_length": 2.5, "spec_decode_num_drafts": 5000,
    "spec_decode_draft_tokens": 15000, "spec_decode_accepted_tokens": 7500,
    "spec_decode_per_position_acceptance_rates": [0.75, 0.45, 0.3],
}  # fmt: skip


def guidellm(data: str = "prompts.txt") -> str:
    def summary(mean: float) -> dict[str, object]:
        stats = {"mean": mean, "median": mean, "std_dev": 0.0, "count": 10, "percentiles": {"p99": mean}}
        return {"total": stats, "successful": stats, "errored": stats | {"mean": 0.0}, "incomplete": stats}

    def benchmark(concurrency: float, itl: float) -> dict[str, object]:
        metrics = {
            "requests_per_second": summary(1.0),
            "request_concurrency": summary(concurrency),
            "prompt_token_count": summary(256.0),
            "output_token_count": summary(128.0),
            "time_to_first_token_ms": summary(80.0),
            "time_per_output_token_ms": summary(itl + 1.0),  # holds the first token
            "inter_token_latency_ms": summary(itl),
        }
        return {"type_": "generative_benchmark", "metrics": metrics}

    return json.dumps({"args": {"data": data}, "benchmarks": [benchmark(1.0, 9.0), benchmark(16.0, 14.0)]})


TRTLLM = json.dumps(
    {
        "id": "cmpl-1",
        "object": "text_completion",
        "choices": [{"index": 0, "text": "...", "finish_reason": "length", "avg_decoded_tokens_per_iter": 2.5}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 1000, "total_tokens": 1100},
    }
)
CSV = "batch,tokens_per_sequence,context,time_ms\n1,1,1024,6.5\n8,4,1024,11\n"


def read(tmp_path: Path, text: str | bytes, name: str = "file") -> Reading:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_file(path)


def test_the_published_llama_cpp_log_gives_its_own_mean_length(tmp_path: Path) -> None:
    reading = read(tmp_path, LLAMA_CPP)
    assert reading.counts is not None
    assert (reading.counts.rounds, reading.counts.drafted, reading.counts.accepted) == (87, 259, 167)
    assert reading.counts.mean_length == pytest.approx(2.92, abs=0.005)
    acceptance = reading.counts.acceptance()
    np.testing.assert_allclose(acceptance.survivals(3), [0.805, 0.632, 0.483], rtol=1e-12)
    assert float(acceptance.tokens_per_round(3)) == pytest.approx(2.92, abs=0.005)
    # One request: 2296.72 ms over 87 rounds at batch 1, prompt 20 and half of 256 tokens cached.
    timings = reading.timings
    assert timings is not None
    assert timings.time.tolist() == [pytest.approx(2.29672 / 87)]
    assert timings.context.tolist() == [20 + 128]
    assert timings.drafting.tolist() == [True]


def test_llama_cpp_statistics_alone_count_the_same(tmp_path: Path) -> None:
    whole, statistics = (read(tmp_path, text).counts for text in (LLAMA_CPP, LLAMA_CPP.splitlines()[-1]))
    assert whole == statistics


def test_llama_cpp_of_2023(tmp_path: Path) -> None:
    counts = read(tmp_path, LLAMA_CPP_2023).counts
    assert counts is not None
    assert counts.accepted / (counts.drafted or 0) == pytest.approx(0.35606, abs=5e-6)
    assert counts.rounds == 129 - 1 - 47


def test_llama_cpp_server_responses(tmp_path: Path) -> None:
    timings = {"prompt_n": 20, "predicted_n": 256, "predicted_ms": 2300.0, "draft_n": 259, "draft_n_accepted": 167}
    reading = read(tmp_path, json.dumps({"content": "...", "timings": timings}))
    assert reading.counts is not None
    assert reading.counts.rounds == 256 - 1 - 167
    plain = read(tmp_path, json.dumps({"timings": {"prompt_n": 20, "predicted_n": 100, "predicted_ms": 1000.0}}))
    assert plain.counts is None
    assert plain.timings is not None
    assert plain.timings.time.tolist() == [0.01]
    assert plain.timings.drafting.tolist() == [False]


def test_vllm_log_intervals_add_up(tmp_path: Path) -> None:
    counts = read(tmp_path, VLLM_LOG).counts
    assert counts is not None
    assert counts.rounds == pytest.approx(200 + 100)
    assert (counts.accepted, counts.drafted) == (400, 900)
    np.testing.assert_allclose(counts.per_position, [0.75 * 200 + 60, 0.45 * 200 + 30, 0.3 * 200 + 10])
    assert float(counts.acceptance().tokens_per_round(3)) == pytest.approx(1 + 400 / 300)


def test_vllm_log_that_contradicts_itself_says_so(tmp_path: Path) -> None:
    reading = read(tmp_path, VLLM_LOG.replace("0.750, 0.450, 0.300", "1.000, 0.795, 0.614"))
    assert any("disagree" in note for note in reading.notes)


@pytest.mark.parametrize(("prefix", "total"), [("vllm", "_total"), ("vllm", ""), ("llamacpp", "_total")])
def test_prometheus_counters(tmp_path: Path, prefix: str, total: str) -> None:
    reading = read(tmp_path, prometheus(1000, 3000, [800, 600, 400], prefix, total))
    assert reading.cumulative
    assert reading.counts == AcceptanceCounts(
        rounds=1000, drafted=3000, accepted=1800, per_position=(800.0, 600.0, 400.0)
    )


def test_two_snapshots_in_one_file_are_subtracted(tmp_path: Path) -> None:
    text = prometheus(1000, 3000, [800, 600, 400]) + prometheus(1100, 3300, [890, 650, 430])
    reading = read(tmp_path, text)
    assert not reading.cumulative
    assert reading.counts == AcceptanceCounts(rounds=100, drafted=300, accepted=170, per_position=(90.0, 50.0, 30.0))


def test_sglang_bench_times_chains_and_leaves_trees_out(tmp_path: Path) -> None:
    reading = read(tmp_path, SGLANG_BENCH)
    assert reading.timings is not None
    assert reading.timings.time.tolist() == [0.0062, 0.0089]
    assert reading.timings.tokens_per_sequence.tolist() == [1, 4]
    assert reading.timings.drafting.tolist() == [False, True]
    assert np.isnan(reading.timings.context).all()
    assert reading.counts is not None
    assert reading.counts.mean_length == pytest.approx(2.56)
    assert any("trees" in note for note in reading.notes)


def test_sglang_log(tmp_path: Path) -> None:
    reading = read(tmp_path, SGLANG_LOG)
    assert reading.timings is not None
    assert reading.timings.time.tolist() == [pytest.approx(8 * 2.4 / 960)]
    assert reading.timings.tokens_per_sequence.tolist() == [4]  # 2.40 of 4 verified tokens is a rate of .60
    assert reading.timings.context.tolist() == [1024]
    assert reading.counts is not None
    assert reading.counts.drafted == 3


def test_vllm_bench(tmp_path: Path) -> None:
    timings = read(tmp_path, json.dumps(VLLM_BENCH)).timings
    assert timings is not None
    assert timings.batch.tolist() == [pytest.approx(320 * 0.02)]  # Little's law
    assert timings.context.tolist() == [512 + 64]
    assert timings.time.tolist() == [pytest.approx(0.02)]


def test_vllm_bench_with_speculation_times_rounds(tmp_path: Path) -> None:
    reading = read(tmp_path, json.dumps(VLLM_BENCH_SPECULATIVE))
    assert reading.timings is not None
    assert reading.timings.time.tolist() == [pytest.approx(0.02 * 2.5)]
    assert reading.timings.tokens_per_sequence.tolist() == [4]
    assert reading.counts is not None
    assert float(reading.counts.acceptance().tokens_per_round(3)) == pytest.approx(2.5)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(VLLM_BENCH | {"dataset_name": "random"}),
        json.dumps([VLLM_BENCH, VLLM_BENCH | {"dataset_name": "random-ids"}]),
        guidellm("prompt_tokens=256,output_tokens=128"),
    ],
)
def test_random_tokens_are_warned_of(tmp_path: Path, text: str) -> None:
    assert any("random tokens" in note for note in read(tmp_path, text).notes)


def test_guidellm_uses_the_latency_between_tokens(tmp_path: Path) -> None:
    reading = read(tmp_path, guidellm())
    assert reading.timings is not None
    assert reading.timings.time.tolist() == [pytest.approx(0.009), pytest.approx(0.014)]
    assert reading.timings.batch.tolist() == [1, 16]
    assert reading.timings.context.tolist() == [320, 320]
    assert not any("random tokens" in note for note in reading.notes)


def test_trtllm_weighs_requests_by_iterations(tmp_path: Path) -> None:
    other = json.loads(TRTLLM)
    other["choices"][0]["avg_decoded_tokens_per_iter"] = 1.25
    counts = read(tmp_path, json.dumps([json.loads(TRTLLM), other])).counts
    assert counts is not None
    assert counts.mean_length == pytest.approx(2000 / (400 + 800))
    with pytest.raises(InputError, match="--draft-length"):
        counts.acceptance()
    assert float(counts.acceptance(3).tokens_per_round(3)) == pytest.approx(2000 / 1200)


IDS = np.random.default_rng(1).random((2, 3, 8, 6)).argsort(axis=-1)[..., :2]  # 2 layers, 3 sequences, 8 tokens


def routing_table() -> str:
    rows = [
        f"{layer},{sequence},{token},{','.join(map(str, IDS[layer, sequence, token]))}"
        for sequence in range(3)
        for token in range(8)
        for layer in range(2)
    ]
    return "\n".join(["layer,sequence,token,expert_0,expert_1", *rows])


def test_routing_traces_of_every_kind_hold_the_same(tmp_path: Path) -> None:
    path = tmp_path / "trace.npz"
    np.savez_compressed(path, expert_ids=IDS.astype(np.uint8), num_experts=6)
    for reading in (read_file(path), read(tmp_path, routing_table())):
        assert reading.routing is not None
        assert reading.routing.num_experts == 6
        np.testing.assert_array_equal(reading.routing.expert_ids, IDS)


@pytest.mark.silicon  # the environment that has pyarrow
def test_parquet_traces(tmp_path: Path) -> None:
    pandas = import_module("pandas")
    path = tmp_path / "trace.parquet"
    (tmp_path / "trace.csv").write_text(routing_table())
    pandas.read_csv(tmp_path / "trace.csv").to_parquet(path)
    reading = read_file(path)
    assert reading.routing is not None
    np.testing.assert_array_equal(reading.routing.expert_ids, IDS)


def test_long_tables_of_routing(tmp_path: Path) -> None:
    long = ["layer,token,expert", *(f"0,{token},{expert}" for token in range(8) for expert in IDS[0, 0, token])]
    reading = read(tmp_path, "\n".join(long))
    assert reading.routing is not None
    np.testing.assert_array_equal(reading.routing.expert_ids, IDS[:1, :1])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty"),
        ("hello", "no known format"),
        ("batch,tokens_per_sequence,context,time_ms\n", "no rows"),
        ("batch,tokens_per_sequence,context,time\n1,1,1,1", "must name its unit"),
        ("batch,tokens_per_sequence,context,time_ms,time_s\n1,1,1,1,1", "one time column"),
        ("batch,tokens_per_sequence,context,time_ms\n1,1,1,12 ms", "unit belongs into the header"),
        ("batch,tokens_per_sequence,context,time_ms\n1,1,1,nan", "time_ms must be finite, got nan"),
        ("batch,tokens_per_sequence,context,time_ms\n1,1,1,0", "time_ms must be above 0"),
        ("batch,tokens_per_sequence,context,time_ms\n1,1,1,-3", "time_ms must be above 0"),
        ("batch,tokens_per_sequence,context,time_ms\n0,1,1,3", "batch must be at least 1"),
        ("batch,tokens_per_sequence,context,time_ms\n1,1,1024,5\n1,1", "line 3 has 2 cells"),
        ("batch,tokens_per_sequence,kontext,time_ms\n1,1,1,1", "did you mean 'context'"),
        ("batch,context,time_ms\n1,1,1", "'tokens_per_sequence' is missing"),
        ("batch,batch,tokens_per_sequence,context,time_ms\n1,1,1,1,1", "twice"),
        (SGLANG_BENCH[:-40], "cut off"),
        (
            json.dumps({"acc_length": 1.0, "step_time": float("nan"), "steps": 0, "topk": 0}),
            "step_time must be a finite",
        ),
        (json.dumps({"acc_length": 1.0, "step_time": 1.0, "topk": 0}), "steps is missing"),
        (json.dumps(VLLM_BENCH)[:-30], "cut off"),
        (json.dumps({"mean_tpot_ms": 20.0}), "completed is missing"),
        (json.dumps(VLLM_BENCH | {"mean_tpot_ms": "20"}), "must be a finite number"),
        (guidellm()[:-50], "cut off"),
        (json.dumps({"benchmarks": []}), "at least one entry"),
        (json.dumps({"benchmarks": [{"metrics": {}}]}), "is missing"),
        (TRTLLM.replace('"usage"', '"use"'), "usage.completion_tokens is missing"),
        (prometheus(1, 3, [1]).replace("num_drafts_total", "num_dropped_total"), "spec_decode_num_drafts is missing"),
        (VLLM_LOG.splitlines()[0][:140], "no complete line"),
        ("draft acceptance rate = 0.57576 (  171 accepted /   297 generated)", "needs the 'eval time' line"),
        ("layer,token,expert_0\n0,0,1\n0,1", "cut off"),
        ("layer,token,expert_0\n0,0,1\n0,1,2\n1,0,3", "do not fill"),
        ("layer,token,expert_0\n0,0,1.5\n0,1,2", "whole numbers"),
        ("layer,token,expert_0,num_experts\n0,0,1,2\n0,1,2,2", "expert ids must be from 0 to 1"),
        ("layer,token,expert_0,colour\n0,0,1,2\n0,1,2,2", "'colour' is not known"),
        (b"PK\x03\x04 cut", "cut off"),
        (b"\xff\xfe\x00", "neither text nor"),
    ],
)
def test_what_is_wrong_is_one_sentence_with_the_file(tmp_path: Path, text: str | bytes, sentence: str) -> None:
    with pytest.raises(InputError) as raised:
        read(tmp_path, text, "bad.file")
    message = str(raised.value)
    assert sentence in message
    assert "bad.file" in message
    assert "\n" not in message


SAMPLES = {
    "llama_cpp": LLAMA_CPP,
    "llama_cpp_2023": LLAMA_CPP_2023,
    "vllm_log": VLLM_LOG,
    "prometheus": prometheus(10, 30, [8, 5, 2]),
    "sglang_bench": SGLANG_BENCH,
    "sglang_log": SGLANG_LOG,
    "vllm_bench": json.dumps(VLLM_BENCH_SPECULATIVE),
    "guidellm": guidellm(),
    "trtllm": TRTLLM,
    "timings": json.dumps(
        {"timings": {"prompt_n": 9, "predicted_n": 8, "predicted_ms": 7.5, "draft_n": 6, "draft_n_accepted": 5}}
    ),
    "routing": routing_table(),
    "points": CSV,
}  # fmt: skip
JUNK = ["", "-1", "nan", "1e400", "null", "[]", "{}", '"x"', "true", "0", "9" * 400, "-1e-300"]


@pytest.mark.parametrize("text", SAMPLES.values(), ids=SAMPLES)
@given(data=st.data())
def test_broken_files_are_read_or_refused_but_never_crash(text: str, data: st.DataObject) -> None:
    numbers = list(re.finditer(r"-?\d+(?:\.\d+)?", text))
    number = data.draw(st.sampled_from(numbers))
    junk = data.draw(st.sampled_from(JUNK))
    broken = text[: number.start()] + junk + text[number.end() :]
    broken = broken[: data.draw(st.integers(0, len(broken)) | st.just(len(broken)))]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_text(broken)
        with suppress(InputError):
            assert len(calibrate([path], draft_length=3).readings) == 1


def test_a_missing_file_is_a_sentence(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", tmp_path, Path("a\0b")):
        with pytest.raises(InputError):
            read_file(path)


@pytest.mark.parametrize(
    ("text", "format"),
    [
        (LLAMA_CPP, "llama_cpp"),
        (LLAMA_CPP_2023, "llama_cpp"),
        (VLLM_LOG, "vllm_log"),
        (prometheus(1, 3, [1]), "prometheus"),
        (SGLANG_BENCH, "sglang_bench"),
        (SGLANG_LOG, "sglang_log"),
        (json.dumps(VLLM_BENCH), "vllm_bench"),
        (guidellm(), "guidellm"),
        (TRTLLM, "trtllm"),
        (routing_table(), "routing_file"),
        (CSV, "points_csv"),
    ],
)
def test_each_format_is_recognised_by_itself_alone(text: str, format: str) -> None:
    from importlib import import_module

    modules = {name: import_module(f"latency_model.evidence.calibrate.readers.{name}") for name in FORMATS}
    assert [name for name, module in modules.items() if module.recognises(text)] == [format]


def test_counts_that_rise_along_positions_are_refused() -> None:
    with pytest.raises(InputError, match="rise"):
        AcceptanceCounts(rounds=10, accepted=9, per_position=(4.0, 5.0)).acceptance()
    with pytest.raises(InputError, match="at least one round"):
        AcceptanceCounts(rounds=0, accepted=0).acceptance()


def test_standard_error_of_acceptance_covers_the_truth() -> None:
    # Drawn rounds of 3 drafts: the estimate lies within two standard errors in about 95 % of draws.
    rng = np.random.default_rng(0)
    truth = np.array([0.8, 0.7, 0.6])
    inside = 0
    for _ in range(200):
        alive = np.cumprod(rng.random((400, 3)) < truth, axis=1)
        counts = AcceptanceCounts(rounds=400, accepted=float(alive.sum()), per_position=tuple(alive.sum(axis=0)))
        acceptance = counts.acceptance()
        off = np.sqrt(np.mean((np.array(acceptance.conditionals) - truth) ** 2))
        inside += off < 2 * acceptance.uncertainty
    assert inside >= 180
