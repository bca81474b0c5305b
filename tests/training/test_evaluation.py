import functools
import json

import numpy as np
import pytest
from support import TEXT, call, lines, refused, train_args
from support.beir import write_beir
from support.senteval import write_similarity

from simcse_jax.config.flags import parse
from simcse_jax.errors import UserError
from simcse_jax.evaluation import beir, postprocess, retrieval, sts, transfer, transfer_files
from simcse_jax.evaluation.evaluator import by_task
from simcse_jax.runs.exporting import export
from simcse_jax.simcse import SimCSE
from simcse_jax.training.evaluation import Evaluation, read_analysis, read_evaluation
from simcse_jax.training.inputs import read_inputs

CHOSEN = ("development=retrieval", "retrieval.measures=mrr@5,recall@10", "retrieval.documents=30")


def config_of(data, *fields, model=""):
    """`fields` are those of `eval`, or have the names of their sections."""
    named = (field if field.startswith(("analysis.", "train.")) else f"eval.{field}" for field in fields)
    return parse([*train_args(model, "no.txt", data, "w"), *(f"--config.{field}" for field in named)])[0]


@pytest.fixture(scope="module")
def encode(tiny_bert):
    return SimCSE(str(tiny_bert), pooler="cls").encode


@pytest.mark.parametrize("method", ["whitening", pytest.param("flow", marks=pytest.mark.slow)])
def test_post_processing_stands_before_the_final_scores_alone(method, encode, corpus):
    fields = [f"postprocess={method}", "postprocess_data=target", *["postprocess_dimensions=6"] * (method != "flow")]
    evaluation = read_evaluation(config_of(corpus["dev"], *fields))
    result = evaluation.final_scores(encode, 42)
    tasks = {"dev": sts.read_graded_pairs(corpus["dev"])}
    fit_on = postprocess.read(method, "target", 6 if method == "whitening" else 0)
    expected = by_task(sts.evaluate, postprocess.applied(encode, fit_on, 42), tasks)["dev"]["spearman"]
    raw = sts.evaluate(encode, tasks)["dev"]["spearman"]
    assert result["dev"]["spearman"] == pytest.approx(expected, abs=0.5) and abs(expected - raw) > 1
    assert evaluation.development(encode)["eval/dev"] == pytest.approx(raw, abs=1e-2)
    assert next(evaluation.tables(result)).startswith(f"development scores after {method} ")


def test_pairs_that_have_the_name_of_an_extra_score_are_shown_as_a_task(corpus):
    pairs = {"stsb_dev": sts.read_graded_pairs(corpus["dev"])}
    evaluation = Evaluation(sts.Correlation("eval/stsb_dev", pairs), [sts.Similarity(pairs)], False, None)
    (table,) = evaluation.tables({"stsb_dev": {"spearman": 12.5, "pairs": 20}})
    assert "stsb_dev" in table and "12.50" in table


@pytest.fixture(scope="module")
def senteval(corpus, tmp_path_factory):
    """A SentEval folder with STS-B of the little corpus, ten pairs each for development and test, and with CR."""
    folder = tmp_path_factory.mktemp("senteval")
    benchmark, reviews = folder / "STS" / "STSBenchmark", folder / "CR"
    for made in (benchmark, reviews):
        made.mkdir(parents=True)
    rows = [line.split("\t") for line in corpus["dev"].read_text().splitlines()[1:]]
    for split, part in (("dev", rows[:10]), ("test", rows[10:])):
        content = "".join(f"main\tfile\t2012\t{i}\t{s}\t{a}\t{b}\n" for i, (a, b, s) in enumerate(part))
        (benchmark / f"sts-{split}.csv").write_text(content)
    words = corpus["txt"].read_text().splitlines()
    for name, part in (("pos", words[:20]), ("neg", words[20:])):
        (reviews / f"custrev.{name}").write_text("\n".join(part) + "\n")
    return folder


def test_transfer_tasks_are_scored_at_the_end_where_asked_for(encode, senteval, corpus, capsys):
    fields = ("transfer=True", "tasks=STSBenchmark", "postprocess=whitening", f"postprocess_data={corpus['csv']}")
    evaluation = read_evaluation(config_of(senteval, *fields, "transfer_protocol=pytorch"))
    assert "MR, SUBJ, MPQA, SST2, TREC, MRPC not found, and left out" in capsys.readouterr().out
    result = evaluation.final_scores(encode, 42)
    assert set(result) == {"STSBenchmark", "average", "development", "transfer", "transfer_protocol"}
    assert result["transfer_protocol"] == "pytorch"  # and no average, as six tasks are missing
    assert any(
        table.startswith("transfer after whitening (accuracy, protocol py") for table in evaluation.tables(result)
    )
    embed = postprocess.applied(encode, postprocess.read("whitening", str(corpus["csv"])))
    tasks, _ = transfer_files.read(str(senteval), ["CR"])
    accuracy = by_task(functools.partial(transfer.evaluate, protocol="pytorch"), embed, tasks)["CR"]["accuracy"]
    assert result["transfer"]["CR"]["accuracy"] == pytest.approx(accuracy, abs=5.1)  # two of forty sentences
    development = sts.read(str(senteval), ["STSBenchmark"], "dev")[0]
    expected = by_task(sts.evaluate, embed, development)["STSBenchmark"]["spearman"]
    assert result["development"] == pytest.approx(expected, abs=2)


@pytest.mark.parametrize(
    ("data", "fields", "named"),
    [
        ("dev", ["postprocess=whitening", "postprocess_data=no/such.txt"], "eval.postprocess_data: no/such.txt"),
        ("dev", ["postprocess=whitening", "postprocess_data=few.txt"], "whitening of 32 dimensions needs 33 or more"),
        (
            *("dev", ["postprocess=whitening", "postprocess_data=target", "postprocess_dimensions=33"]),
            "33 dimensions cannot be kept of the 32",
        ),
        ("dev", ["transfer=True"], "dev.tsv is a file, but eval.transfer needs SentEval's"),
        ("similar", ["transfer=True"], "no MR, CR, SUBJ, MPQA, SST2, TREC, MRPC there"),
        ("dev", ["extra=sickr_dev"], "dev.tsv is a file, but eval.extra=sickr_dev needs SentEval's"),
        ("senteval", ["extra=sickr_dev"], "config.eval.data: "),
        ("", ["extra=geometry"], "config.eval.extra=.'geometry',.: eval.data is empty"),
        ("", ["transfer=True"], "config.eval.transfer=True: eval.data is empty"),
        ("", ["retrieval.data=no/such"], "config.eval.retrieval.data: no/such: no corpus.jsonl there"),
        ("", ["retrieval.data=one,./one"], "is named twice"),
        ("", [*CHOSEN, "retrieval.data=one", "retrieval.development=train"], "train.tsv: .* there are dev, test"),
    ],
)
def test_mistakes_of_scoring_are_refused(data, fields, named, tiny_bert, senteval, corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "few.txt").write_text("a cat\na dog\n")
    write_beir(tmp_path / "one")
    folders = {"dev": corpus["dev"], "senteval": senteval, "similar": write_similarity(tmp_path / "s", corpus["dev"])}
    nothing = ["train.max_steps=0", "train.epochs=0"]
    with pytest.raises(UserError, match=named):
        read_inputs(config_of(folders.get(data, ""), *fields, *nothing, model=tiny_bert))


def test_a_sent_eval_folder_chooses_on_sts_b_dev_and_ends_with_the_paper_s_table(encode, senteval, capsys):
    evaluation = read_evaluation(config_of(senteval, "tasks=STS12,STSBenchmark"))
    assert "STS12 not found, and left out" in capsys.readouterr().out
    assert set(evaluation.development(encode)) == {"eval/stsb_dev"}
    result = evaluation.final_scores(encode, 42)
    assert set(result) == {"STSBenchmark"} and result["STSBenchmark"]["pairs"] == 10  # no average: STS12 is missing
    (table,) = evaluation.tables(result)
    header, _, row = table.splitlines()[-3:]
    assert [cell.strip() for cell in header.split("|")] == ["STS12", "STS-B", "Avg."]
    assert [cell.strip() for cell in row.split("|")] == ["-", f"{result['STSBenchmark']['spearman']:.2f}", "-"]


@pytest.mark.slow
def test_a_run_may_be_chosen_by_sickr_and_by_another_pooler_than_it_is_scored_with(tiny_bert, corpus, tmp_path):
    folder = write_similarity(tmp_path / "senteval", corpus["dev"])
    args = train_args(tiny_bert, corpus["txt"], folder, tmp_path / "run")
    fields = ("eval.development=sickr", "eval.pooler=avg_top2", "eval.tasks=STSBenchmark", "eval.extra=stsb_dev")
    fields += ("model.pooler=avg", "eval.development_pooler=avg", "train.max_steps=2", "eval.every=1")
    done = call("train", *args, *(f"--config.{field}" for field in fields))
    assert done.returncode == 0, done.stderr
    scored = {line["step"]: line["eval/sickr_dev"] for line in lines(tmp_path / "run") if "eval/sickr_dev" in line}
    best = max((1, 2), key=lambda step: (scored[step], step))
    assert set(scored) == {0, 1, 2} and f"best checkpoint: step {best}\n" in done.stdout
    result = json.loads((tmp_path / "run" / "result.json").read_text())

    model = SimCSE(str(tmp_path / "run"))
    assert (model.pooler, model.use_head) == ("avg_top2", False)
    sick, _ = sts.read(str(folder), ["SICKRelatedness"], "dev")
    benchmark, _ = sts.read(str(folder), ["STSBenchmark"], "dev")
    tests, _ = sts.read(str(folder), ["STSBenchmark"])
    chosen = functools.partial(model.encode, pooler="avg")
    at_end = ((result["stsb_dev"], benchmark, model.encode), (result["STSBenchmark"], tests, model.encode))
    for found, pairs, encode in ((scored[best], sick, chosen), *at_end):
        expected = next(iter(sts.evaluate(encode, pairs).values()))["spearman"]
        found = found["spearman"] if isinstance(found, dict) else found
        assert found == pytest.approx(expected, abs=1e-2)
    assert not np.allclose(model.encode(TEXT), model.encode(TEXT, pooler="avg"), atol=1e-3)
    export(tmp_path / "run", tmp_path / "export")
    again = SimCSE(str(tmp_path / "export"))
    assert again.pooler == "avg_top2"
    np.testing.assert_allclose(again.encode(TEXT), model.encode(TEXT), atol=1e-5)
    card = (tmp_path / "export" / "README.md").read_text()
    assert "Pooler in training: `avg`; of this model and its scores: `avg_top2`" in card
    assert "chosen on the development set of SICK-R" in card


def test_the_space_is_measured_on_stsb_also_where_sickr_or_retrieval_chooses(corpus, tmp_path):
    folder, retrieved = write_similarity(tmp_path / "senteval", corpus["dev"]), write_beir(tmp_path / "one")

    def read(data, *fields):
        config = config_of(data, "tasks=", "analysis.every=1", *fields)
        evaluation = read_evaluation(config)
        return evaluation, read_analysis(config, evaluation)

    _, expected = read(folder)
    assert read(folder, "development=sickr")[1] == expected
    evaluation, sample = read(folder, "development=retrieval", f"retrieval.data={retrieved}")
    assert sample == expected and evaluation.pairs is None
    assert read(corpus["dev"], "development=retrieval", f"retrieval.data={retrieved}")[1].sentences


@pytest.mark.slow
def test_retrieval_may_choose_the_checkpoint(tiny_bert, corpus, tmp_path):
    folders = [write_beir(tmp_path / name) for name in ("one", "two")]
    fields = [*(f"eval.{field}" for field in CHOSEN), f"eval.retrieval.data={folders[0]},{folders[1]}"]
    fields += ["data.prompts.anchor=the man ", "data.prompts.positive=a dog ", "eval.every=1", "train.max_steps=2"]
    args = train_args(tiny_bert, corpus["csv"], corpus["dev"], tmp_path / "run", *(f"--config.{x}" for x in fields))
    done = call("train", *args)
    assert done.returncode == 0, done.stderr
    name = "eval/retrieval_mrr@5"
    scored = {line["step"]: line[name] for line in lines(tmp_path / "run") if name in line}
    best = max((1, 2), key=lambda step: (scored[step], step))
    assert set(scored) == {0, 1, 2} and f"best checkpoint: step {best}\n" in done.stdout
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    model = SimCSE(str(tmp_path / "run"))
    assert model.prompts == {"query": "the man ", "document": "a dog "}
    for split, found in (("dev", scored[best]), ("test", result["retrieval_average"]["mrr@5"])):
        both = [beir.read(str(folder), split, 30) for folder in folders]
        values = [retrieval.score(retrieval.sides(model), each, ["mrr@5"])["mrr@5"].mean() for each in both]
        assert found == pytest.approx(100 * np.mean(values), abs=1e-3)
    again = call("train", *args)
    assert again.returncode == 0 and json.loads((tmp_path / "run" / "result.json").read_text()) == result
    (folders[1] / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq7\td3\t1\n")
    refused(call("train", *args), "the contents of eval.retrieval.data=", "have changed since")


def test_retrieval_is_scored_at_the_end_and_needs_no_other_data(encode, corpus, tmp_path):
    folders = [write_beir(tmp_path / name) for name in ("one", "two")]
    both = (*CHOSEN, f"retrieval.data={folders[0]},{folders[1]}")
    prompts = {"query": "the man ", "document": "a dog "}
    evaluation = read_evaluation(config_of(corpus["dev"], *both)).with_prompts(prompts)
    result = evaluation.final_scores(encode, 42)
    assert set(result) == {"dev", "average", "retrieval", "retrieval_average"}
    assert set(result["retrieval_average"]) == {"mrr@5", "recall@10"} and set(result["retrieval"]) == {"one", "two"}
    tables = "\n".join(evaluation.tables(result))
    assert "two: 6 queries, 30 of 40 documents" in tables and "development scores" not in tables
    collections = [beir.read(str(folder), "test", 30) for folder in folders]
    sides = retrieval.sides(encode, prompts)
    values = [retrieval.score(sides, each, ["mrr@5"])["mrr@5"].mean() for each in collections]
    assert result["retrieval_average"]["mrr@5"] == pytest.approx(100 * np.mean(values), abs=1e-3)
    alone = read_evaluation(config_of("", *both))
    assert alone.development.name == "eval/retrieval_mrr@5" and len(alone.final) == 1 and alone.has_tests


def test_all_processes_must_have_the_same_judgements_at_the_end(corpus, tmp_path):
    folder = write_beir(tmp_path / "one")
    config = config_of(corpus["dev"], f"retrieval.data={folder}")
    before = read_evaluation(config)
    file = folder / "qrels" / "test.tsv"
    file.write_text(file.read_text().replace("q0\td0\t2", "q0\td0\t1"))
    after = read_evaluation(config)
    assert before.final_fingerprint != after.final_fingerprint and before.fingerprints == after.fingerprints
