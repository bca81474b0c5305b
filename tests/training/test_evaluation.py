import functools
import json
import re

import numpy as np
import pytest
from support import TEXT, call, lines, refused, train_args
from support.beir import write_beir
from support.senteval import write_similarity

from simcse_jax.config.fields import default_config
from simcse_jax.evaluation import beir, postprocess, retrieval, sts, transfer, transfer_files
from simcse_jax.evaluation.evaluator import by_task
from simcse_jax.simcse import SimCSE
from simcse_jax.training.evaluation import Evaluation, read_analysis, read_evaluation

CHOSEN = ("eval.development=retrieval", "eval.retrieval.measures=mrr@5,recall@10", "eval.retrieval.documents=30")
NOTHING = ("--config.train.epochs=0", "--config.train.max_steps=0", "--config.model.mlp=none")


@pytest.mark.parametrize("method, data", [("whitening", "target"), ("whitening", "csv"), ("flow", "target")])
def test_post_processing_stands_before_the_final_scores_alone(method, data, tiny_bert, corpus, tmp_path):
    source = str(corpus.get(data, data))
    fields = (f"--config.eval.postprocess={method}", f"--config.eval.postprocess_data={source}")
    fields += ("--config.eval.postprocess_dimensions=6",) if method == "whitening" else ()
    done = call("train", *train_args(tiny_bert, "no/such.txt", corpus["dev"], tmp_path / "run", *NOTHING, *fields))
    assert done.returncode == 0, done.stderr
    assert f"development scores after {method} " in done.stdout
    encode = SimCSE(str(tiny_bert), pooler="cls").encode
    tasks = {"dev": sts.read_graded_pairs(corpus["dev"])}
    fit_on = postprocess.read(method, source, 6 if method == "whitening" else 0)
    expected = by_task(sts.evaluate, postprocess.applied(encode, fit_on, 42), tasks)["dev"]["spearman"]
    raw = sts.evaluate(encode, tasks)["dev"]["spearman"]
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["dev"]["spearman"] == pytest.approx(expected, abs=0.5) and abs(expected - raw) > 1
    assert lines(tmp_path / "run")[0]["eval/dev"] == pytest.approx(raw, abs=1e-2)


def test_pairs_that_have_the_name_of_an_extra_score_are_shown_as_a_task(corpus):
    pairs = {"stsb_dev": sts.read_graded_pairs(corpus["dev"])}
    evaluation = Evaluation(sts.Correlation("eval/stsb_dev", pairs), [sts.Similarity(pairs)], False, None)
    (table,) = evaluation.tables({"stsb_dev": {"spearman": 12.5, "pairs": 20}})
    assert "stsb_dev" in table and "12.50" in table


def write_senteval(folder, corpus):
    """A SentEval folder with STS-B of the little corpus, ten pairs each for development and test."""
    benchmark = folder / "STS" / "STSBenchmark"
    benchmark.mkdir(parents=True)
    rows = [line.split("\t") for line in corpus["dev"].read_text().splitlines()[1:]]
    for split, part in (("dev", rows[:10]), ("test", rows[10:])):
        content = "".join(f"main\tfile\t2012\t{i}\t{s}\t{a}\t{b}\n" for i, (a, b, s) in enumerate(part))
        (benchmark / f"sts-{split}.csv").write_text(content)
    return folder


def test_transfer_tasks_are_scored_at_the_end_where_asked_for(tiny_bert, corpus, tmp_path):
    senteval = write_senteval(tmp_path / "senteval", corpus)
    (senteval / "CR").mkdir()
    words = corpus["txt"].read_text().splitlines()
    (senteval / "CR" / "custrev.pos").write_text("\n".join(words[:20]) + "\n")
    (senteval / "CR" / "custrev.neg").write_text("\n".join(words[20:]) + "\n")
    fields = ("eval.transfer=True", "eval.tasks=STSBenchmark", "eval.postprocess=whitening", "eval.postprocess_data")
    args = train_args(tiny_bert, "no/such.txt", senteval, tmp_path / "run", *NOTHING)
    args += [f"--config.{field}" for field in fields[:3]] + [f"--config.{fields[3]}={corpus['csv']}"]
    args.append("--config.eval.transfer_protocol=pytorch")
    done = call("train", *args)
    assert done.returncode == 0, done.stderr
    assert "MR, SUBJ, MPQA, SST2, TREC, MRPC not found, and left out" in done.stdout
    assert "transfer after whitening (accuracy, protocol pytorch):" in done.stdout
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert set(result) == {"STSBenchmark", "average", "best_step", "development", "transfer", "transfer_protocol"}
    assert result["transfer_protocol"] == "pytorch"  # and no average, as six tasks are missing
    encode = SimCSE(str(tiny_bert), pooler="cls").encode
    embed = postprocess.applied(encode, postprocess.read("whitening", str(corpus["csv"])))
    tasks, _ = transfer_files.read(str(senteval), ["CR"])
    evaluate = functools.partial(transfer.evaluate, protocol="pytorch")
    accuracy = by_task(evaluate, embed, tasks)["CR"]["accuracy"]
    assert result["transfer"]["CR"]["accuracy"] == pytest.approx(accuracy, abs=5.1)  # two of forty sentences
    development = sts.read(str(senteval), ["STSBenchmark"], "dev")[0]
    expected = by_task(sts.evaluate, embed, development)["STSBenchmark"]["spearman"]
    assert result["development"] == pytest.approx(expected, abs=2)


def test_mistakes_of_scoring_are_reported_before_anything_is_compiled(tiny_bert, corpus, tmp_path):
    (tmp_path / "few.txt").write_text("a cat\na dog\n")
    whitening = "--config.eval.postprocess=whitening"
    cases = {
        (whitening, "--config.eval.postprocess_data=no/such.txt"): "eval.postprocess_data: no/such.txt: no such file",
        (whitening, f"--config.eval.postprocess_data={tmp_path}/few.txt"): "the source has 2 different sentences; "
        "whitening of 32 dimensions needs 33 or more",
        (
            whitening,
            "--config.eval.postprocess_data=target",
            "--config.eval.postprocess_dimensions=33",
        ): "33 dimensions cannot be kept of the 32",
        ("--config.eval.transfer=True",): "dev.tsv is a file, but eval.transfer needs SentEval's",
        (
            "--config.eval.transfer=True",
            f"--config.eval.data={write_senteval(tmp_path / 'senteval', corpus)}",
        ): "no MR, CR, SUBJ, MPQA, SST2, TREC, MRPC there",
        ("--config.eval.extra=sickr_dev",): "dev.tsv is a file, but eval.extra=sickr_dev needs SentEval's",
        ("--config.eval.extra=sickr,geometry",): "config.eval.extra: no score 'sickr'; the nearest one is sickr_dev",
        ("--config.eval.extra=geometry", "--config.eval.data="): "config.eval.extra=('geometry',): eval.data is empty",
        (
            "--config.eval.extra=sickr_dev",
            f"--config.eval.data={write_senteval(tmp_path / 'without', corpus)}",
        ): "config.eval.data: ",
        ("--config.eval.transfer=True", "--config.eval.data="): "config.eval.transfer=True: eval.data is empty",
    }
    for fields, message in cases.items():
        done = call("train", *train_args(tiny_bert, corpus["txt"], corpus["dev"], tmp_path / "run", *fields))
        refused(done, message)
        assert not (tmp_path / "run").exists() and "compiled" not in done.stdout


def test_a_sent_eval_folder_chooses_on_sts_b_dev_and_ends_with_the_paper_s_table(tiny_bert, corpus, tmp_path):
    senteval = write_senteval(tmp_path / "senteval", corpus)
    args = train_args(tiny_bert, corpus["txt"], senteval, tmp_path / "run")
    done = call("train", *args, "--config.eval.tasks=STS12,STSBenchmark", "--config.train.max_steps=3")
    assert done.returncode == 0, done.stderr
    assert "STS12 not found, and left out" in done.stdout
    scored = {line["step"]: line["eval/stsb_dev"] for line in lines(tmp_path / "run") if "eval/stsb_dev" in line}
    assert set(scored) == {0, 3}
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (
        set(result) == {"STSBenchmark", "best_step"} and result["STSBenchmark"]["pairs"] == 10
    )  # no average: STS12 is missing
    table = done.stdout.splitlines()[-3:]
    assert [cell.strip() for cell in table[0].split("|")] == ["STS12", "STS-B", "Avg."]
    figures = ["-", f"{result['STSBenchmark']['spearman']:.2f}", "-"]
    assert [cell.strip() for cell in table[2].split("|")] == figures


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
    in_training = model.encode(TEXT, pooler="avg")
    assert not np.allclose(model.encode(TEXT), in_training, atol=1e-3)

    exported = call("export", "--workdir", tmp_path / "run", "--output", tmp_path / "export")
    assert exported.returncode == 0, exported.stderr
    again = SimCSE(str(tmp_path / "export"))
    assert again.pooler == "avg_top2"
    np.testing.assert_allclose(again.encode(TEXT), model.encode(TEXT), atol=1e-5)
    card = (tmp_path / "export" / "README.md").read_text()
    assert "Pooler in training: `avg`; of this model and its scores: `avg_top2`" in card
    assert "chosen on the development set of SICK-R" in card


def test_the_space_is_measured_on_stsb_also_where_sickr_chooses(corpus, tmp_path):
    folder, samples = write_similarity(tmp_path / "senteval", corpus["dev"]), []
    for name in ("stsb", "sickr"):
        config = default_config()
        config.eval.data, config.eval.development, config.analysis.every = str(folder), name, 1
        config.eval.tasks = ()
        samples.append(read_analysis(config, read_evaluation(config)))
    assert samples[0] == samples[1]


def test_retrieval_may_choose_the_checkpoint_and_is_scored_at_the_end(tiny_bert, corpus, tmp_path):
    folders = [write_beir(tmp_path / name) for name in ("one", "two")]
    fields = (*CHOSEN, f"eval.retrieval.data={folders[0]},{folders[1]}", "eval.every=1", "train.max_steps=2")
    fields += ("data.prompts.anchor=the man ", "data.prompts.positive=a dog ")
    args = train_args(tiny_bert, corpus["csv"], corpus["dev"], tmp_path / "run")
    done = call("train", *args, *(f"--config.{field}" for field in fields))
    assert done.returncode == 0, done.stderr
    name = "eval/retrieval_mrr@5"
    scored = {line["step"]: line[name] for line in lines(tmp_path / "run") if name in line}
    best = max((1, 2), key=lambda step: (scored[step], step))
    assert set(scored) == {0, 1, 2} and f"best checkpoint: step {best}\n" in done.stdout
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert set(result) == {"dev", "average", "best_step", "retrieval", "retrieval_average"}
    assert set(result["retrieval_average"]) == {"mrr@5", "recall@10"} and set(result["retrieval"]) == {"one", "two"}
    assert "two: 6 queries, 30 of 40 documents" in done.stdout and "development scores" not in done.stdout
    model = SimCSE(str(tmp_path / "run"))
    assert model.prompts == {"query": "the man ", "document": "a dog "}
    for split, found in (("dev", scored[best]), ("test", result["retrieval_average"]["mrr@5"])):
        both = [beir.read(str(folder), split, 30) for folder in folders]
        values = [retrieval.score(retrieval.sides(model), each, ["mrr@5"])["mrr@5"].mean() for each in both]
        assert found == pytest.approx(100 * np.mean(values), abs=1e-3)
    again = call("train", *args, *(f"--config.{field}" for field in fields))
    assert again.returncode == 0 and json.loads((tmp_path / "run" / "result.json").read_text()) == result
    (folders[1] / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq7\td3\t1\n")
    refused(
        call("train", *args, *(f"--config.{field}" for field in fields)),
        "the contents of eval.retrieval.data=",
        "have changed since",
    )


def test_retrieval_needs_no_other_data_and_reports_its_mistakes(tiny_bert, corpus, tmp_path):
    folder = write_beir(tmp_path / "one")
    args = train_args(tiny_bert, "no/such.txt", "", tmp_path / "run", *NOTHING)
    fields = [f"--config.{field}" for field in (*CHOSEN, f"eval.retrieval.data={folder}")]
    done = call("train", *args, *fields)
    assert done.returncode == 0, done.stderr
    assert set(json.loads((tmp_path / "run" / "result.json").read_text())) == {
        "best_step",
        "retrieval",
        "retrieval_average",
    }
    mistakes = {
        "eval.retrieval.data=no/such": "config.eval.retrieval.data: no/such: no corpus.jsonl there",
        f"eval.retrieval.data={folder},{tmp_path}/other/../one": "is named twice",
        "eval.retrieval.development=train": "config.eval.retrieval.data: .*train.tsv: not found; there are dev, test",
    }
    args = train_args(tiny_bert, "no/such.txt", "", tmp_path / "other", *NOTHING)
    for field, message in mistakes.items():
        done = call("train", *args, *fields, f"--config.{field}")
        assert done.returncode == 2 and re.search(message, done.stderr), done.stderr


def test_the_space_is_measured_on_stsb_also_where_retrieval_chooses(corpus, tmp_path):
    config = default_config()
    config.eval.data = str(write_similarity(tmp_path / "senteval", corpus["dev"]))
    config.eval.tasks, config.analysis.every = (), 1
    expected = read_analysis(config, read_evaluation(config))
    config.eval.development, config.eval.retrieval.data = "retrieval", str(write_beir(tmp_path / "one"))
    evaluation = read_evaluation(config)
    assert read_analysis(config, evaluation) == expected and evaluation.pairs is None
    config.eval.data = str(corpus["dev"])
    assert read_analysis(config, read_evaluation(config)).sentences


def test_all_processes_must_have_the_same_judgements_at_the_end(corpus, tmp_path):
    config = default_config()
    folder = write_beir(tmp_path / "one")
    config.eval.data, config.eval.retrieval.data = str(corpus["dev"]), str(folder)
    before = read_evaluation(config)
    file = folder / "qrels" / "test.tsv"
    file.write_text(file.read_text().replace("q0\td0\t2", "q0\td0\t1"))
    after = read_evaluation(config)
    assert before.final_fingerprint != after.final_fingerprint and before.fingerprints == after.fingerprints
