import json
import re
import shutil

import pytest
from support import call, refused
from support.beir import write_beir

from simcse_jax.choices import TASKS, TRANSFER
from simcse_jax.commands import verbs
from simcse_jax.commands.evaluate import describe_differences, read_tasks
from simcse_jax.evaluation import beir, retrieval, sts
from simcse_jax.simcse import SimCSE


def scored(tmp_path, model, data, *more) -> tuple[str, dict]:
    output = tmp_path / "scores.json"
    done = call("evaluate", "--model", model, "--data", data, "--output", output, *more)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout, json.loads(output.read_text())


def test_graded_pairs_are_scored_printed_and_written_also_with_chosen_options(tmp_path, tiny_bert, corpus, prompted):
    data = shutil.copy(corpus["dev"], tmp_path / "transfer.tsv")  # the name of tasks, which it is not
    printed, results = scored(tmp_path, tiny_bert, data)
    pairs, encode = sts.read_graded_pairs(corpus["dev"]), SimCSE(str(tiny_bert)).encode
    expected = sts.spearman(sts.cosine(encode(pairs.first), encode(pairs.second)), pairs.gold)
    assert set(results) == {"transfer.tsv", "average", "averages"}
    found = results["transfer.tsv"]
    assert (found["spearman"], found["pairs"]) == (pytest.approx(expected, abs=1e-3), 20)
    assert found["subsets"] == {} and results["average"] == found["spearman"]
    assert f"{tiny_bert}: pooler cls" in printed and printed.splitlines()[-1].strip() == f"{expected:.2f}"
    given = ("--pooler", "max", "--dtype", "bfloat16", "--prompt-name", "query", "--truncate-dim", 5)
    printed, results = scored(tmp_path, f"{prompted}=mine", corpus["dev"], *given, "--metric", "pearson")
    pairs, options = {"dev": sts.read_graded_pairs(corpus["dev"])}, {"pooler": "max", "truncate_dim": 5}

    def score(**options):
        return sts.evaluate(SimCSE(prompted, **options).encode_query, pairs)["dev"]["pearson"]

    expected = score(**options, dtype="bfloat16")
    assert results["dev"]["pearson"] == pytest.approx(expected, abs=1e-3) != score(**options)
    assert printed.startswith("mine: pooler max, prompt 'the man ', 5 elements")
    assert "prompt 'a cat '" in scored(tmp_path, prompted, corpus["dev"])[0]  # the default one of the files


def test_every_protocol_that_is_asked_for_is_a_row_and_transfer_a_table(tmp_path, tiny_bert, monkeypatch):
    year = tmp_path / "STS" / "STS13-en-test"
    year.mkdir(parents=True)
    for subset in sts.SUBSETS["STS13"]:
        (year / f"STS.input.{subset}.txt").write_text("the cat\ta dog\nhe ran\tshe sings\nred bird\tthe old tree\n")
        (year / f"STS.gs.{subset}.txt").write_text("1\n5\n2\n")
    (tmp_path / "SICK").mkdir()
    for name in ("train", "trial", "test_annotated"):
        rows = "".join(f"{n}\tthe cat\t{text}\t{n}\tNEUTRAL\n" for n, text in enumerate(["dog", "he ran", "cat"], 1))
        (tmp_path / f"SICK/SICK_{name}.txt").write_text("header\n" + rows)
    (tmp_path / "SST" / "binary").mkdir(parents=True)
    for split in ("train", "dev", "test"):
        (tmp_path / f"SST/binary/sentiment-{split}").write_text("the cat\t1\na dog sings\t0\nshe ran\t1\nold\t0\n")
    chosen = ["--metric", "spearman,pearson", "--aggregation", "all,wmean", "--tasks", "STS13,SICKRelatedness,SST2"]
    printed, results = scored(tmp_path, tiny_bert, tmp_path, *chosen, "--regressor")
    monkeypatch.setattr("simcse_jax.host.progress.LINE_SECONDS", 0)
    done = call("evaluate", "--model", tiny_bert, "--data", tmp_path, *chosen[:-1], f"STS12,{chosen[-1]}")
    assert "STS12 not found; left out, so no average is given" in done.stdout
    titles = list(dict.fromkeys(line.split(":")[0] for line in done.stderr.splitlines()))
    assert titles == ["STS13 … SICKRelatedness", "SST2"]  # progress by task, and by sentence
    assert all(re.search(r": \d+ of \d+ sentences, ", line) for line in done.stderr.splitlines())
    labels = [f"{metric}, {how}" for metric in ("Spearman", "Pearson") for how in ("all", "wmean", "regressor")]
    rows = [line.split("|")[0].strip() for line in printed.splitlines() if "|" in line]
    assert [row for row in rows if ", " in row] == labels
    assert (results["STS13"]["pairs"], list(results["STS13"]["subsets"])) == (9, ["FNWN", "headlines", "OnWN"])
    assert {subset["pairs"] for subset in results["STS13"]["subsets"].values()} == {3}
    assert {"spearman", "pearson", "mse"} <= set(results["SICKRelatedness"]["regressor"])
    assert set(results["averages"]) == {"spearman", "pearson"}
    assert set(results["averages"]["pearson"]) == {"all", "mean", "wmean"}
    assert results["SST2"]["examples"] == 4 and results["transfer_average"] == results["SST2"]["accuracy"]
    assert results["transfer_protocol"] == "sklearn" and "accuracy × 100, protocol sklearn" in printed
    done = call(
        "evaluate", "--model", tiny_bert, "--data", tmp_path, "--tasks", "SST2", "--transfer-protocol", "pytorch"
    )
    assert "protocol pytorch (a softmax" in done.stdout
    assert printed.splitlines()[-1].strip() == f"{results['SST2']['accuracy']:.2f}"


@pytest.mark.optimized
@pytest.mark.slow
def test_minilm_has_its_score_on_a_real_task(minilm, senteval):
    """With the pooler avg; STS-B is scored with the geometry."""
    pairs, missing = sts.read(str(senteval), ["STS16"])
    found = sts.evaluate(SimCSE(minilm, pooler="avg").encode, pairs)
    assert missing == [] and found["STS16"]["spearman"] == pytest.approx(78.99, abs=0.03)


MISTAKES = [
    ("--data none --tasks STS12,STSBenchmrk", ["--tasks", "'STSBenchmrk'", "nearest", "STSBenchmark"]),
    ("--data none --tasks ,", ["--tasks is empty", "SICKRelatedness"]),
    ("--data none --metric kendall", ["--metric", "no metric 'kendall'; there are spearman, pearson, ndcg@1"]),
    ("--data none --dimensions 8,x", ["--dimensions '8,x': must be a whole number"]),
    ("--tasks STS12", ["--data is missing; STS12 needs"]),
    ("--tasks retrieval", ["no task 'retrieval'; the nearest one is retrieval:FOLDER"]),
    ("--tasks retrieval:", ["no task 'retrieval:'; the nearest one is retrieval:FOLDER"]),
    ("--tasks retrieval:a --baseline no.json", ["no.json: cannot be read"]),
    ("--tasks mteb:", ["no task 'mteb:'; the nearest one is mteb:NAME"]),
    (f"--data {__file__}", ["line 1 must name the columns"]),
]


def test_wrong_options_are_named_before_a_model_is_loaded(tmp_path, tiny_bert, corpus):
    for options, parts in MISTAKES:
        refused(call("evaluate", "--model", "no/such/model", *options.split()), *parts)
    output = ("--output", tmp_path / "out.json")
    done = call("evaluate", "--model", tiny_bert, "--data", corpus["dev"], "--truncate-dim", 33, *output)
    refused(done, "truncate_dim 33", "from 1 to 32")
    assert list(tmp_path.iterdir()) == []


def test_tasks_of_all_kinds_stand_in_one_list_with_spaces_or_commas():
    listed = ["mteb:STS12", "transfer,retrieval:a/b,STS13", "mteb:NFCorpus", "STS12,sts,mteb:STS12", "retrieval:a/b:c"]
    tasks = read_tasks(verbs.parse("evaluate", ["--model", "m", "--tasks", *listed])[1].arguments["tasks"])
    assert sorted(tasks.sts) == sorted(TASKS) and tasks.sts[:2] == ["STS13", "STS12"]
    assert tasks.transfer == list(TRANSFER)
    assert (tasks.folders, tasks.benchmarks) == (["a/b", "a/b:c"], ["STS12", "NFCorpus"])
    assert read_tasks(["mteb:STS12"]).sts == []


def test_retrieval_is_scored_with_the_models_prompts_and_compared(tmp_path, tiny_bert, prompted):
    folder, model = write_beir(tmp_path / "tiny"), SimCSE(prompted)
    tasks = ("--tasks", f"retrieval:{folder}", "--metric", "ndcg@10,recall@20", "--documents", 30)
    first = tmp_path / "first.json"
    assert call("evaluate", "--model", tiny_bert, *tasks, "--output", first).returncode == 0
    output = tmp_path / "second.json"
    done = call("evaluate", "--model", prompted, *tasks, "--output", output, "--baseline", first)
    assert done.returncode == 0, done.stderr
    results, collection = json.loads(output.read_text()), beir.read(str(folder), documents=30)
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
    assert describe_differences({"retrieval_settings": settings}, settings) == ""
    assert "unknown settings" in describe_differences({"retrieval": {}}, settings)
    done = call("evaluate", "--model", prompted, *tasks, "--prompt", "", "--split", "dev", "--storage", "bfloat16")
    assert done.returncode == 0 and "prompt '" not in done.stdout and "3 queries" in done.stdout
    assert "documents' embeddings in bfloat16" in done.stdout
