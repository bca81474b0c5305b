import json
import re
import shutil

import pytest
from support import call
from support.beir import write_beir
from support.senteval import write_all

from simcse_jax.commands.evaluate import after_prefix, parse, unlike
from simcse_jax.errors import UserError
from simcse_jax.evaluation import beir, retrieval, sts
from simcse_jax.evaluation.tasks import TASKS, TRANSFER
from simcse_jax.simcse import SimCSE

MINILM_SCORES = {"STS12": 72.37, "STS13": 80.60, "STS14": 75.60, "STS16": 78.99, "STSBenchmark": 82.03}  # pooler avg
MINILM_DEV = 86.72


def scored(tmp_path, model, data, *more) -> tuple[str, dict]:
    """What the command prints, and the result file that it writes."""
    output = tmp_path / "scores.json"
    done = call("evaluate", "--model", model, "--data", data, "--output", output, *more)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout, json.loads(output.read_text())


def test_graded_pairs_are_scored_printed_and_written(tmp_path, tiny_bert, corpus):
    printed, results = scored(tmp_path, tiny_bert, corpus["dev"])
    pairs = sts.read_graded_pairs(corpus["dev"])
    encode = SimCSE(str(tiny_bert)).encode
    expected = sts.spearman(sts.cosine(encode(pairs.first), encode(pairs.second)), pairs.gold)
    assert set(results) == {"dev", "average", "averages"}
    assert (results["dev"]["spearman"], results["dev"]["pairs"]) == (pytest.approx(expected, abs=1e-3), 20)
    assert results["dev"]["subsets"] == {}
    assert results["average"] == results["dev"]["spearman"]
    assert f"{tiny_bert}: pooler cls" in printed
    assert printed.splitlines()[-1].strip() == f"{expected:.2f}"


def test_the_pooler_can_be_chosen(tmp_path, tiny_bert, corpus):
    printed, results = scored(tmp_path, f"{tiny_bert}=mine", corpus["dev"], "--pooler", "avg")
    encode = {pooler: SimCSE(str(tiny_bert), pooler=pooler).encode for pooler in ("avg", "cls")}
    pairs = {"dev": sts.read_graded_pairs(corpus["dev"])}
    expected, other = (sts.evaluate(encode[pooler], pairs)["dev"]["spearman"] for pooler in ("avg", "cls"))
    assert abs(expected - other) > 0.1
    assert results["dev"]["spearman"] == pytest.approx(expected, abs=1e-3)
    assert printed.startswith("mine: pooler avg")


def test_the_prompt_and_the_size_can_be_chosen(tmp_path, prompted, corpus):
    printed, results = scored(tmp_path, prompted, corpus["dev"], "--prompt-name", "query", "--truncate-dim", 5)
    pairs = {"dev": sts.read_graded_pairs(corpus["dev"])}
    expected = sts.evaluate(SimCSE(prompted, truncate_dim=5).encode_query, pairs)["dev"]["spearman"]
    assert results["dev"]["spearman"] == pytest.approx(expected, abs=1e-3)
    assert "pooler avg, prompt 'the man ', 5 elements" in printed
    assert "prompt 'a cat '" in scored(tmp_path, prompted, corpus["dev"])[0]  # the default one of the files


def test_the_dtype_of_the_products_can_be_chosen(tmp_path, tiny_bert, corpus):
    _, results = scored(tmp_path, tiny_bert, corpus["dev"], "--dtype", "bfloat16", "--metric", "pearson")
    pairs = {"dev": sts.read_graded_pairs(corpus["dev"])}
    encode = {dtype: SimCSE(str(tiny_bert), dtype=dtype).encode for dtype in ("bfloat16", "float32")}
    expected, other = (sts.evaluate(encode[dtype], pairs)["dev"]["pearson"] for dtype in ("bfloat16", "float32"))
    assert results["dev"]["pearson"] == pytest.approx(expected, abs=1e-3) and abs(expected - other) > 1e-2


def test_the_earlier_name_of_the_dtype_works_with_a_warning(tmp_path, tiny_bert, corpus):
    done = call("evaluate", "--model", tiny_bert, "--data", corpus["dev"], "--compute-dtype", "bfloat16")
    assert (done.returncode, done.stderr.count("\n")) == (0, 1) and "--compute-dtype is now --dtype" in done.stderr


def write_sts13(folder, scores: str) -> None:
    """Three pairs in each subset, with these scores."""
    year = folder / "STS" / "STS13-en-test"
    year.mkdir(parents=True)
    for subset in sts.SUBSETS["STS13"]:
        (year / f"STS.input.{subset}.txt").write_text("the cat\ta dog\nhe ran\tshe sings\nred bird\tthe old tree\n")
        (year / f"STS.gs.{subset}.txt").write_text(scores)


def test_a_sent_eval_folder_gives_subsets_and_names_what_is_missing(tmp_path, tiny_bert):
    write_sts13(tmp_path, "1\n5\n\n")
    printed, results = scored(tmp_path, tiny_bert, tmp_path, "--tasks", "STS13,STS12")
    assert list(results) == ["STS13"]
    assert (results["STS13"]["pairs"], list(results["STS13"]["subsets"])) == (6, ["FNWN", "headlines", "OnWN"])
    assert {subset["pairs"] for subset in results["STS13"]["subsets"].values()} == {2}
    assert "STS12 not found; left out, so no average is given" in printed
    assert printed.splitlines()[-3].split(" | ")[0].strip() == "STS12"


def test_every_protocol_that_is_asked_for_is_a_row_and_transfer_a_table(tmp_path, tiny_bert, monkeypatch):
    write_sts13(tmp_path, "1\n5\n2\n")
    (tmp_path / "SICK").mkdir()
    for name in ("train", "trial", "test_annotated"):
        rows = "".join(f"{n}\tthe cat\t{text}\t{n}\tNEUTRAL\n" for n, text in enumerate(["dog", "he ran", "cat"], 1))
        (tmp_path / f"SICK/SICK_{name}.txt").write_text("header\n" + rows)
    (tmp_path / "SST" / "binary").mkdir(parents=True)
    for split in ("train", "dev", "test"):
        (tmp_path / f"SST/binary/sentiment-{split}").write_text("the cat\t1\na dog sings\t0\nshe ran\t1\nold\t0\n")
    chosen = ["--tasks", "STS13,SICKRelatedness,SST2", "--metric", "spearman,pearson", "--aggregation", "all,wmean"]
    printed, results = scored(tmp_path, tiny_bert, tmp_path, *chosen, "--regressor")
    monkeypatch.setattr("simcse_jax.host.progress.LINE_SECONDS", 0)
    done = call("evaluate", "--model", tiny_bert, "--data", tmp_path, *chosen)
    titles = list(dict.fromkeys(line.split(":")[0] for line in done.stderr.splitlines()))
    assert titles == ["STS13 … SICKRelatedness", "SST2"]  # progress by task, and by sentence
    assert all(re.search(r": \d+ of \d+ sentences, ", line) for line in done.stderr.splitlines())
    labels = [f"{metric}, {how}" for metric in ("Spearman", "Pearson") for how in ("all", "wmean", "regressor")]
    assert [
        line.split("|")[0].strip() for line in printed.splitlines() if ", " in line.split("|")[0] and "|" in line
    ] == labels
    assert {"spearman", "pearson", "mse"} <= set(results["SICKRelatedness"]["regressor"])
    assert set(results["averages"]) == {"spearman", "pearson"}
    assert set(results["averages"]["pearson"]) == {"all", "mean", "wmean"}
    assert results["SST2"]["examples"] == 4
    assert results["transfer_average"] == results["SST2"]["accuracy"]
    assert results["transfer_protocol"] == "sklearn" and "accuracy × 100, protocol sklearn" in printed
    assert printed.splitlines()[-1].strip() == f"{results['SST2']['accuracy']:.2f}"


def test_the_earlier_name_of_the_transfer_protocol_works_with_a_warning(tmp_path, tiny_bert):
    write_all(tmp_path)
    args = ("--model", tiny_bert, "--data", tmp_path, "--tasks", "SST2", "--output", tmp_path / "scores.json")
    done = call("evaluate", *args, "--grid", "pytorch")
    assert (done.returncode, done.stderr.count("\n")) == (0, 1) and "--grid is now --transfer-protocol" in done.stderr
    result = json.loads((tmp_path / "scores.json").read_text())
    assert result["transfer_protocol"] == "pytorch" and "protocol pytorch (a softmax" in done.stdout
    call("evaluate", *args, "--transfer-protocol", "pytorch")
    assert json.loads((tmp_path / "scores.json").read_text()) == result
    call("evaluate", *args)
    assert json.loads((tmp_path / "scores.json").read_text())["SST2"] != result["SST2"]


@pytest.fixture(scope="module")
def minilm_avg(minilm):
    return SimCSE(minilm, pooler="avg")


@pytest.mark.optimized
@pytest.mark.slow
def test_minilm_has_its_score_on_the_development_set_of_sts_b(minilm_avg, senteval):
    pairs, missing = sts.read(str(senteval), ["STSBenchmark"], "dev")
    assert missing == []
    assert sts.evaluate(minilm_avg.encode, pairs)["STSBenchmark"]["spearman"] == pytest.approx(MINILM_DEV, abs=0.03)


@pytest.mark.optimized
@pytest.mark.slow
def test_minilm_has_its_scores_on_the_real_tasks(minilm_avg, senteval):
    pairs, missing = sts.read(str(senteval), list(MINILM_SCORES))
    assert missing == []
    results = sts.evaluate(minilm_avg.encode, pairs)
    assert {task: result["spearman"] for task, result in results.items()} == pytest.approx(MINILM_SCORES, abs=0.03)


@pytest.fixture
def broken(tiny_bert, tmp_path):
    """Breaks a copy of the tiny model."""

    def broken(how: str):
        folder = shutil.copytree(tiny_bert, tmp_path / "broken")
        weights, config = folder / "model.safetensors", folder / "config.json"
        if how == "no weights":
            weights.unlink()
        elif how == "truncated":
            weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
        else:
            config.write_text(json.dumps(json.loads(config.read_text()) | {how: 64}))
        return folder

    return broken


def refused(*args, parts: tuple) -> None:
    """The command ends with exit code 2 and one line that has all the parts."""
    done = call("evaluate", *args)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("error: ")
    assert [part for part in parts if str(part) not in done.stderr] == [], done.stderr


@pytest.mark.parametrize(
    ("how", "parts"),
    [
        ("no weights", ["broken: no weights", "model.safetensors"]),
        ("truncated", ["broken/model.safetensors", "truncated or damaged"]),
        ("hidden_size", ["broken/model.safetensors", "has shape (40, 32)", "config.json asks for (40, 64)"]),
        ("intermediate_size", ["broken/model.safetensors", "intermediate.dense", "has shape (48,)", "asks for (64,)"]),
    ],
)
def test_a_broken_model_is_refused_in_one_line(broken, corpus, how, parts):
    refused("--model", broken(how), "--data", corpus["dev"], parts=parts)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"--tasks": "STS12,STSBenchmrk"}, ["--tasks", "'STSBenchmrk'", "nearest", "STSBenchmark"]),
        ({"--tasks": ","}, ["--tasks is empty", "SICKRelatedness"]),
        ({"--tasks": "sts,TREK"}, ["--tasks", "'TREK'", "nearest", "TREC"]),
        ({"--tasks": "MR"}, ["no such folder", "data/downstream"]),
        ({"--tasks": "transfer", "--data": "tests"}, ["tests: no MR, CR", "data/downstream"]),
        ({"--tasks": "MR", "--split": "dev"}, ["--split dev", "--tasks MR"]),
        ({"--metric": "kendall"}, ["--metric", "'kendall'", "nearest"]),
        ({"--aggregation": "median"}, ["--aggregation", "'median'", "mean"]),
        ({"--model": "no/such/folder"}, ["no/such/folder: no such folder"]),
        ({"--model": "no-one/no-model"}, ["no-one/no-model: no such folder, and the download from the hub failed"]),
        ({"--model": __file__}, ["test_evaluate.py: is a file", "config.json"]),
        ({"--data": "no/such/data"}, ["no/such/data: no such folder or file"]),
        ({"--data": "tests"}, ["tests: no STS12", "data/downstream"]),
        ({"--data": __file__}, ["test_evaluate.py: line 1 must name the columns"]),
        ({"--output": "tests"}, ["--output tests: a folder; name a .json file in it"]),
        (
            {"--output": "README.md/scores.json"},
            ["--output README.md/scores.json: ", "Not a directory"],
        ),
        ({"--batch-size": "0"}, ["--batch-size 0", "1 or more"]),
        ({"--num-layers": "9"}, ["9", "the model has 2 layers"]),
        ({"--pooler": "min"}, ["--pooler", "'min'", "avg_top2"]),
        ({"--transfer-protocol": "random"}, ["--transfer-protocol", "'random'", "pytorch"]),
        ({"--dtype": "int8"}, ["--dtype", "'int8'", "bfloat16"]),
        ({"--prompt-name": "x"}, ["prompt_name='x'", "query, document"]),
        ({"--truncate-dim": "33"}, ["truncate_dim 33", "from 1 to 32"]),
        ({"--colour": "red"}, ["unrecognized arguments: --colour red", "--help"]),
    ],
    ids=lambda value: " ".join(f"{option} {text}" for option, text in value.items()) if isinstance(value, dict) else "",
)
def test_a_bad_argument_is_refused_in_one_line(tiny_bert, corpus, changes, parts):
    args = {"--model": tiny_bert, "--data": corpus["dev"]} | changes
    refused(*(part for pair in args.items() for part in pair), parts=parts)


def test_a_file_s_task_has_the_file_s_name(tiny_bert, corpus, tmp_path):
    data = shutil.copy(corpus["dev"], tmp_path / "transfer.tsv")
    done = call("evaluate", "--model", tiny_bert, "--data", data, "--output", tmp_path / "result.json")
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert set(result) == {"transfer.tsv", "average", "averages"} and "spearman" in result["transfer.tsv"]


def test_retrieval_is_scored_with_the_models_prompts_and_compared(tmp_path, tiny_bert, prompted):
    folder = write_beir(tmp_path / "tiny")
    model = SimCSE(prompted)
    tasks = ("--tasks", f"retrieval:{folder}", "--metric", "ndcg@10,recall@20", "--documents", 30)
    first = tmp_path / "first.json"
    assert call("evaluate", "--model", tiny_bert, *tasks, "--output", first).returncode == 0
    output = tmp_path / "second.json"
    done = call("evaluate", "--model", prompted, *tasks, "--output", output, "--baseline", first)
    assert done.returncode == 0, done.stderr
    results = json.loads(output.read_text())
    collection = beir.read(str(folder), documents=30)
    scores = retrieval.score(retrieval.sides(model), collection, ["ndcg@10", "recall@20"])
    found = results["retrieval"]["tiny"]
    for name, values in scores.items():
        assert list(found["per_query"][name].values()) == pytest.approx((100 * values).tolist(), abs=1e-9)
        assert found[name] == results["retrieval_average"][name] == pytest.approx(100 * values.mean(), abs=1e-4)
    assert set(found["compared"]) == set(scores) and "queries with prompt 'the man '" in done.stdout
    assert "tiny: 6 queries, 30 of 40 documents" in done.stdout and "difference | " in done.stdout
    assert f"--baseline {first}: was scored with query_prompt '' instead of 'the man '" in done.stdout
    settings = json.loads(first.read_text())["retrieval_settings"]
    assert settings == {"storage": "float32", "query_prompt": "", "document_prompt": ""}
    assert unlike({"retrieval_settings": settings}, settings) == ""
    assert "unknown settings" in unlike({"retrieval": {}}, settings)
    done = call("evaluate", "--model", prompted, *tasks, "--prompt", "", "--split", "dev", "--storage", "bfloat16")
    assert done.returncode == 0 and "prompt '" not in done.stdout and "3 queries" in done.stdout
    assert "documents' embeddings in bfloat16" in done.stdout


def test_similarity_and_retrieval_stand_next_to_each_other(tmp_path, tiny_bert, corpus):
    tasks = f"sts,retrieval:{write_beir(tmp_path / 'tiny')}"
    printed, results = scored(tmp_path, tiny_bert, corpus["dev"], "--tasks", tasks, "--metric", "pearson,mrr@5")
    assert set(results) == {"dev", "average", "averages", "retrieval", "retrieval_average", "retrieval_settings"}
    assert "Pearson × 100" in printed and "MRR@5, × 100" in printed


@pytest.mark.parametrize(
    "changes, parts",
    [
        ({"--data": "tests"}, ["--data: is for similarity and transfer tasks"]),
        ({"--tasks": "STS12"}, ["--data is missing; STS12 needs SentEval's data/downstream"]),
        ({"--tasks": "retrieval"}, ["no task 'retrieval'; the nearest one is retrieval:FOLDER"]),
        ({"--tasks": "retrieval:"}, ["--tasks retrieval:FOLDER: name a folder"]),
        ({"--tasks": "retrieval:tests"}, ["tests: no corpus.jsonl there"]),
        ({"--metric": "ndcg@11"}, ["no metric 'ndcg@11'; the nearest one is ndcg@1"]),
        ({"--documents": "0"}, ["--documents 0: must be 1 or more"]),
        ({"--documents-seed": "1"}, ["--documents-seed: is for --documents, which is not given"]),
        ({"--documents": "9", "--documents-seed": "-1"}, ["--documents-seed -1: must be 0 or more"]),
        ({"--baseline": "no/such.json"}, ["no/such.json: cannot be read"]),
        ({"--postprocess": "whitening", "--postprocess-data": "target"}, ["--postprocess: is for similarity"]),
    ],
)
def test_a_bad_argument_of_retrieval_is_refused(tiny_bert, changes, parts):
    args = {"--model": tiny_bert, "--tasks": "retrieval:none"} | changes
    refused(*(part for pair in args.items() for part in pair), parts=parts)


@pytest.fixture
def parsed():
    """The options of a command line."""

    def parsed(*arguments: str):
        return parse(["--model", "none", *arguments])

    return parsed


def not_parsed(parsed, message, *arguments):
    with pytest.raises(UserError) as error:
        parsed(*arguments)
    assert str(error.value) == message


def test_tasks_of_all_kinds_stand_in_one_list(parsed):
    tasks = "mteb:STS12, transfer,retrieval:a/b,STS13,mteb:NFCorpus,STS12,sts,mteb:STS12,retrieval:a/b:c"
    options = parsed("--data", "d", "--tasks", tasks)
    assert sorted(options.sts_tasks) == sorted(TASKS) and options.sts_tasks[:2] == ["STS13", "STS12"]
    assert options.transfer_tasks == list(TRANSFER)
    assert (options.folders, options.benchmarks) == (["a/b", "a/b:c"], ["STS12", "NFCorpus"])
    assert parsed("--tasks", "mteb:STS12").sts_tasks == []
    assert after_prefix([" x:1", "y", "x:1"], "x", "N", "a number") == (["y"], ["1"])


def test_a_regressor_without_its_tasks_is_refused(parsed):
    message = "--regressor is for STSBenchmark and SICKRelatedness; --tasks has neither"
    not_parsed(parsed, message, "--data", "d", "--regressor", "--tasks", "STS12")


@pytest.mark.parametrize(
    ("tasks", "option", "value", "kind"),
    [
        ("TREC", "--metric", "pearson", "similarity"),
        ("TREC", "--aggregation", "wmean", "similarity"),
        ("STS12", "--transfer-protocol", "pytorch", "transfer"),
        ("TREC", "--metric", "ndcg@10", "retrieval"),
        ("STS12", "--documents", "10", "retrieval"),
        ("STS12", "--storage", "float16", "retrieval"),
        ("STS12", "--baseline", "none.json", "retrieval"),
    ],
)
def test_an_option_of_the_other_kind_of_task_is_refused(parsed, tasks, option, value, kind):
    shown = f"{option} {value}" if option == "--metric" else option
    message = f"{shown}: is for {kind} tasks, and --tasks has none"
    not_parsed(parsed, message, "--data", "none", "--tasks", tasks, option, value)
    if kind != "transfer":  # tasks of mteb take none of them
        not_parsed(parsed, message, "--tasks", "mteb:STS12", option, value)


def test_a_file_is_no_task_of_a_name(parsed, tmp_path):
    (tmp_path / "mine.tsv").write_text("sentence1\tsentence2\tscore\n")
    file = str(tmp_path / "mine.tsv")
    message = f"--tasks STS12: {file} is a file, scored under its own name; leave the task out, or give "
    not_parsed(parsed, message + "SentEval's folder", "--data", file, "--tasks", "sts,STS12")
    assert parsed("--data", file).sts_tasks


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "d"], "--data: is for similarity and transfer tasks, and --tasks has none"),
        (["--tasks", "mteb:"], "--tasks mteb:NAME: name a task of mteb"),
        (["--tasks", "mteb"], "--tasks: no task 'mteb'; the nearest one is mteb:NAME"),
        (
            ["--split", "dev"],
            "--split dev is for similarity and retrieval; --tasks mteb:STS12 makes its own use of development data",
        ),
        (
            ["--postprocess", "whitening", "--postprocess-data", "target"],
            "--postprocess: is for similarity and transfer; leave it out, or the tasks of retrieval and mteb",
        ),
    ],
)
def test_what_tasks_of_mteb_do_not_go_with_is_refused(parsed, arguments, message):
    not_parsed(parsed, message, "--tasks", "mteb:STS12", *arguments)


def test_a_file_of_pairs_has_no_splits(parsed):
    message = f"--split dev: is for SentEval's folder, and {__file__} is a file; leave it out"
    not_parsed(parsed, message, "--data", __file__, "--split", "dev")
    assert parsed("--data", __file__).args.split == "test"
    assert parsed("--data", "folder", "--split", "dev").args.split == "dev"
