import json
import os
import subprocess
import sys

import numpy as np
import pytest
from support import ROOT, start_process, succeeded

from simcse_jax.errors import UserError

sys.path.insert(0, str(ROOT))
from benchmarks import (
    compile_time,
    decoder_curves,
    encode,
    history,
    host_work,
    scale,
    search,
    search_disk,
    serve,
    side_by_side,
    startup,
    sts,
    systems,
    train_step,
)
from benchmarks import corpus as reading
from benchmarks.side_by_side import Child, Comparison, Contender
from benchmarks.training import Setting

WRONG = [
    (train_step, "--recipe simsce", "--recipe"), (train_step, "--output README.md/x.json", "--output"),
    (train_step, "--with train.rounded=True", "--with train.rounded=True: must be a field"),
    (systems, "--system SimSCE", "--system"), (search, "--queries 1 0", "--queries 0: must be from 1 to"),
    (sts, "--data x --tasks STS99", "STS99"), (startup, "--what lunch", "--what"),
    (host_work, "--layers 1 13", "--layers 13"), (scale, "--largest 8", "--largest 8"),
    (serve, "--texts 1 3000", "--texts 1 3000"),
    (reading, f"--folder {ROOT} --keep", "--folder .*: exists; choose a new one"),
]  # fmt: skip
FEW = ["--rounds", 2, "--steps", 1, "--warmup", 1, "--batch-size", 8]


def test_a_wrong_option_is_reported_in_one_line_and_the_peers_processes_are_without_jax(monkeypatch, tmp_path):
    for module, arguments, message in WRONG:
        monkeypatch.setattr(sys, "argv", ["name", *arguments.split()])
        with pytest.raises(UserError, match=message):
            module.parse()
    command = [sys.executable, "-m", "benchmarks.encode", "--data", str(tmp_path / "none.txt")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "none.txt" in done.stderr
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    code = "import sys; import benchmarks.contender, benchmarks.training, benchmarks.encoders, benchmarks.sts; "
    code += "import benchmarks.peak; print({'jax', 'torch', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr


def test_costs_sentences_loads_slopes_and_axes_are_those_worked_out(tiny_bert, corpus, tmp_path, monkeypatch, capsys):
    setting = Setting(model=str(tiny_bert), data=str(corpus["csv"]))
    recipes = ("unsup", "simcse_plus_plus", "sup")
    unsup, plus_plus, sup = (train_step.need_of(setting, recipe).flops for recipe in recipes)
    assert plus_plus == pytest.approx(1.5 * unsup) and sup > unsup
    seconds = {train_step.OURS: (3.0, 6.0), train_step.OUR_SIMCSE: (2.0, 3.0)}
    answer = {"notes": {}, "memory_mib": 1, "device_memory_mib": None, "work": 6}
    rounds = {name: [{**answer, "seconds": each} for each in those] for name, those in seconds.items()}
    cost = train_step.cost_of(Comparison("", "", train_step.OURS, rounds, {}, {}, {}, {}))
    assert cost["steps"] == 1.75  # of 3 / 2 and 6 / 3
    assert (cost["rows_per_second"], cost["simcse_rows_per_second"]) == (3 * 1.5, 2 * 2.5)
    lines = corpus["txt"].read_text().splitlines()
    assert encode.sentences_of(str(corpus["txt"]), None, 1000) == lines
    assert encode.sentences_of(str(corpus["txt"]), None, 2) == [lines[0], lines[-1]]
    assert len(encode.sentences_of(str(corpus["dev"]), None, 1000)) == 40  # 20 pairs
    assert list(encode.pieces(["a b c", "d e", "f g h i"], 1, 3)) == ["a", "b c", "d e f", "g", "h i"]
    assert scale.long_sentences(["a b c", "d e"], 7)[:2] == ["a b c d e a b", "c d e a b c d"]
    answers = [serve.Answer(seconds / 100, True) for seconds in range(101)] + [serve.Answer(60.0, False)]
    found = serve.figures(answers, texts=4, rate=50.5, seconds=10)
    assert (found["requests"], found["lost"], found["texts_per_second"]) == (102, 1, 40.4)
    assert (found["of_encode"], found["p50_ms"], found["p99_ms"]) == pytest.approx((0.8, 500, 990))
    bodies = serve.requests(["a", "b", ""], 2, "m")
    assert [json.loads(body.partition(b"\r\n\r\n")[2])["input"] for body in bodies] == [["a", "b"], ["a", "a"]]
    ids, lengths = np.array([5, 6, 7, 8, 9, 10, 11]), np.array([4, 3])
    reading.make(tmp_path / "corpus", 100, ids, lengths)
    found = reading.Prepared(tmp_path / "corpus")
    rows, mask = found.gather(found.locate(np.arange(100)))
    drawn = {tuple(row[here > 0].tolist()) for row, here in zip(rows[:, 0], mask[:, 0], strict=True)}
    assert drawn == {(5, 6, 7, 8), (9, 10, 11)} and len(found) == 100
    points = [scale.Point(value, 3.0 * value**2, 7.0) for value in (1, 2, 4)]
    assert scale.slope(points, "seconds") == pytest.approx(2) and scale.slope(points, "memory_mib") == pytest.approx(0)
    assert scale.slope(points[:1], "seconds") is None
    assert set(scale.plot({"batch": points, "layers": points[:1], "length": []})) == {"png", "svg"}
    monkeypatch.setattr(sys, "argv", ["scale", "--model", str(tiny_bert), "--largest", "512", "--steps", "1"])
    args = scale.parse()
    monkeypatch.setattr(scale, "measure", lambda axis, value, *_: scale.Point(value, float(value), 1.0))
    assert [point.value for point in scale.climb("batch", args, None, 1e6)] == [64, 128, 256, 512]
    assert [point.value for point in scale.climb("layers", args, None, 1e6)] == [1, 2]
    assert [point.value for point in scale.climb("length", args, None, 1e6)] == [16, 32, 64]
    # Two steps of 128 examples more than the last time, 128 s each, are expected of the next point.
    assert [point.value for point in scale.climb("batch", args, None, 200.0)] == [64, 128]
    assert "batch 256 and above: left out" in capsys.readouterr().out


@pytest.mark.benchmarks
def test_the_host_s_work_is_that_of_a_run_s_loop(tiny_bert, corpus):
    options = {"model": str(tiny_bert), "data": str(corpus["txt"]), "batch_size": 4, "steps": 30, "warmup": 2}
    with Child(Contender("x", "benchmarks.host_work:steps", {**options, "num_layers": 1})) as child:
        child.wait()
        rounds = [child.round() for _ in range(2)]
    figures = host_work.figures(Comparison("", "steps", "x", {"x": rounds}, {}, {}, {}, {}))["x"]
    assert 0 < figures["processor_ms"]["min"] <= figures["processor_ms"]["max"]
    assert figures["arrays"] > 50 and {each["work"] for each in rounds} == {30}


def start_forked(args, env, **options):
    """A contender, forked from a process that has imported what most of them import; of another Python, started."""
    if args[0] != sys.executable:
        return subprocess.Popen(args, env=env, **options)
    assert env["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
    ours = {name: value for name, value in env.items() if name != "CUDA_VISIBLE_DEVICES" or name in os.environ}
    return start_process(args, ours, **options)


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setattr(side_by_side, "start", start_forked)

    def run(module, output, *arguments):
        monkeypatch.setattr(sys, "argv", [module.__name__, "--output", str(output), *map(str, arguments)])
        monkeypatch.chdir(ROOT)
        module.main()
        content = history.read(output / "scale.json" if module is scale else output)
        if module not in (search_disk, reading):  # which are no part of `make bench`
            assert list(history.rows(content)), "the history has no figure of it"
        return content["results"]

    return run


@pytest.mark.benchmarks
@pytest.mark.parametrize(("recipe", "dtype", "chunk"), [("unsup", "float32", 0), ("sup", "bfloat16", 4)])
def test_a_step_of_all_contenders(recipe, dtype, chunk, tiny_bert, corpus, tmp_path, run):
    pytest.importorskip("accelerate")
    few = [*FEW, "--peers", "pytorch", "sentence-transformers", "--recipe", recipe, "--dtype", dtype, "--chunk", chunk]
    (found,) = run(train_step, tmp_path / "out.json", "--model", tiny_bert, "--data", corpus["csv"], *few)
    assert found["missing"] == {}
    assert list(found["contenders"]) == ["simcse_jax", "pytorch", "sentence-transformers"]
    for figures in found["contenders"].values():
        assert figures["rate"]["min"] > 0 and 0 < figures["share_of_peak"]["median"] < 1


@pytest.mark.benchmarks
def test_representax_trains_and_encodes_the_same(exported, corpus, tmp_path, run):
    python = os.environ.get("REPRESENTAX_PYTHON", str(ROOT / ".venv/representax/bin/python"))
    if not os.path.exists(python):
        pytest.skip("representax is not there: make .venv/representax/done, or its Python in REPRESENTAX_PYTHON")
    few = [*FEW, "--recipe", "pairs", "--data", corpus["csv"], "--representax-python", python]
    for more in (["--dtype", "float32", "--chunk", 0], ["--dtype", "bfloat16", "--chunk", 4]):
        (found,) = run(train_step, tmp_path / "out.json", "--model", exported, *few, *more)
        assert found["missing"] == {} and found["unit"] == "pairs"
        assert list(found["contenders"]) == ["simcse_jax", "representax"]
    few = ["--model", exported, "--rounds", 1, "--dtype", "float32", "--rows", 20, "--alone"]
    few += ["--representax-python", python, "--data", corpus["dev"]]
    (found,) = run(encode, tmp_path / "out.json", *few)
    ours, theirs = encode.OURS["float32"], encode.REPRESENTAX["float32"]
    assert found["agreement"][f"largest difference of {ours} to {theirs}"] < 1e-5


@pytest.mark.benchmarks
def test_a_step_next_to_simcse_s(masked_bert, corpus, tmp_path, run):
    few = ["--model", masked_bert, *FEW, "--data", corpus["txt"]]
    (found,) = run(train_step, tmp_path / "a.json", *few, "--recipe", "simcse_plus_plus", "--dtype", "float32")
    assert found["missing"] == {} and found["cost"]["steps"] > 0
    (found,) = run(systems, tmp_path / "b.json", *few, "--system", "DiffCSE")  # with a generator
    assert found["missing"] == {} and set(found["contenders"]) == {"SimCSE", "DiffCSE"}
    assert found["cost"]["median"] > 0


@pytest.mark.benchmarks
def test_encode_and_sts_agree_with_sentence_transformers(exported, corpus, tmp_path, run):
    few = ["--model", exported, "--rounds", 1, "--dtype", "float32"]
    (found,) = run(encode, tmp_path / "out.json", "--data", corpus["dev"], *few)
    assert {encode.OURS["float32"], encode.THEIRS["float32"]} <= set(found["contenders"])
    assert found["agreement"][f"largest difference of {encode.OURS['float32']} to {encode.THEIRS['float32']}"] < 1e-5
    (single,) = run(encode, tmp_path / "out.json", "--data", corpus["dev"], *few, "--single", "--rows", 20)
    for each in single["contenders"].values():
        assert 0 < each["notes"]["p50_ms"] <= each["notes"]["p99_ms"] < 60_000
    (found,) = run(sts, tmp_path / "out.json", "--data", corpus["dev"], *few)
    ours, theirs = (figures["notes"]["scores"] for figures in found["contenders"].values())
    assert ours == pytest.approx(theirs, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", decoder_curves.KINDS)
def test_a_decoder_learns_as_in_pytorch(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(decoder_curves, "SIZE", decoder_curves.SIZE | {"hidden_size": 32, "intermediate_size": 48})
    monkeypatch.setattr(decoder_curves, "BATCH", 16)
    pairs = [("the cat sat", "a cat sits"), ("dogs run", "a dog runs"), ("it rains", "rain falls"), ("hi", "hello you")]
    (tmp_path / "pairs.csv").write_text("\n".join(["sent0,sent1", *(",".join(pair) for pair in pairs * 8)]) + "\n")
    decoder_curves.write(kind, tmp_path, str(tmp_path / "pairs.csv"))
    losses, batches = decoder_curves.ours(kind, str(tmp_path), str(tmp_path / "pairs.csv"), 4)
    assert losses == pytest.approx(decoder_curves.theirs(kind, str(tmp_path), batches), abs=1e-3)


@pytest.mark.benchmarks
def test_startup_of_a_tiny_model_and_both_servers_answer_every_client(exported, corpus, tmp_path, run):
    (found,) = run(startup, tmp_path / "out.json", "--model", exported, "--rounds", 1, "--what", "embedding")
    assert found["missing"] == {} and len(found["contenders"]) == 3
    few = ["--model", exported, "--data", corpus["txt"], "--clients", 4, "--seconds", 1, "--texts", 3]
    found = run(serve, tmp_path / "out.json", *few)
    assert [each["server"] for each in found] == [serve.OURS, serve.THEIRS]
    assert all(each["lost"] == 0 and each["requests"] > 4 for each in found)


@pytest.mark.benchmarks
def test_scale_and_time_to_compile_of_a_tiny_model(tiny_bert, corpus, tmp_path, monkeypatch, run, capsys):
    few = ["--model", str(tiny_bert), "--data", str(corpus["txt"]), "--steps", "1"]
    (found,) = run(scale, tmp_path / "out", *few, "--axes", "layers", "--seconds", "100000")
    assert [point["value"] for point in found["points"]] == [1, 2]
    assert (tmp_path / "out" / "scale.png").is_file()
    monkeypatch.setattr(sys, "argv", ["scale", *few])
    assert scale.measure("devices", 2, scale.parse(), tmp_path).seconds > 0
    monkeypatch.setattr(compile_time.jax.config, "update", lambda *_: None)  # other tests go on with the cache
    monkeypatch.setattr(sys, "argv", ["compile_time", "--model", str(tiny_bert), "--layers", "1"])
    compile_time.main()
    *_, line = capsys.readouterr().out.splitlines()
    layers, *seconds = [float(cell) for cell in line.strip("|").split("|")]
    assert layers == 1 and len(seconds) == 3


@pytest.mark.benchmarks
def test_search_in_a_few_rows_also_on_disk(tmp_path, run):
    pytest.importorskip("faiss")
    few = ["--rows", "2000", "--dimension", "16", "--rounds", "1", "--queries", "3"]
    command = [sys.executable, "-m", "benchmarks.search", "--output", str(tmp_path / "out.json"), *few]
    succeeded(subprocess.run(command, cwd=ROOT, capture_output=True, text=True))
    found = json.loads((tmp_path / "out.json").read_text())["results"]
    assert [set(each["missing"]) - {"float32 products of torch"} for each in found] == [set(), set()]
    recalls = {name: each["notes"]["recall"] for name, each in found[1]["contenders"].items()}
    assert recalls["simcse_jax, exact"] == recalls["FAISS, flat"] == 1
    for package in ("faiss", "lancedb"):
        pytest.importorskip(package)
    found = run(search_disk, tmp_path / "out.json", "--rows", 2000, "--dimension", 16, "--queries", 5)
    assert [each["title"] for each in found] == list(search_disk.KINDS) and found[0]["recall"] == 1
    assert all(each["private_mb"] > 0 and each["disk"] > 0 for each in found)


@pytest.mark.benchmarks
def test_reading_a_corpus_cold_and_warm(tmp_path, run):
    few = ["--folder", tmp_path / "corpus", "--rows", 2000, "--batch-size", 16, "--batches", 2, "--rounds", 1]
    cold, warm = run(reading, tmp_path / "out.json", *few)
    assert (cold["title"], warm["title"]) == ("cold", "warm") and not (tmp_path / "corpus").exists()
    assert cold["readings"][0]["rows_per_second"] > 0
