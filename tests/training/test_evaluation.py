import functools
import json
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from support import TEXT, assert_arrays, call, lines, refused, run, sentences, succeeded, train_args, without_speed
from support.beir import write_beir
from support.senteval import write_similarity

from simcse_jax.config.checks import validate
from simcse_jax.config.fields import default_config
from simcse_jax.config.flags import parse
from simcse_jax.devices.mesh import replicate
from simcse_jax.encoding.embedder import make_hidden_states
from simcse_jax.errors import UserError
from simcse_jax.evaluation import beir, postprocess, retrieval, sts, transfer, transfer_files
from simcse_jax.evaluation.analysis.inputs import read_data
from simcse_jax.evaluation.analysis.last_layer import Sample
from simcse_jax.evaluation.analysis.spectrum import NUMBERS
from simcse_jax.evaluation.evaluator import by_task
from simcse_jax.huggingface.tokenizer import Tokenizer
from simcse_jax.models.sentence_encoder import build
from simcse_jax.runs.exporting import export
from simcse_jax.runs.loading import load_model
from simcse_jax.simcse import SimCSE
from simcse_jax.training.evaluation import Evaluation, read_analysis, read_evaluation
from simcse_jax.training.run import read_inputs
from simcse_jax.training.scoring import ProgressEncoder
from simcse_jax.training.setup import (
    analysis_spec,
    evaluation_spec,
    make_recipe,
    make_settings,
    make_setup,
)

TARGET = ("postprocess_data=target",)
CHOSEN = ("development=retrieval", "retrieval.measures=mrr@5,recall@10", "retrieval.documents=30")
NAMES = {"anisotropy", "self_similarity", "intra_sentence_similarity", "l2_norm", "alignment", "uniformity"}
NAMES |= {"adjusted_self_similarity", "adjusted_intra_sentence_similarity", *NUMBERS}
OF_DROPOUT = {"dropout_alignment_term", "dropout_uniformity_term"}  # where a sentence is its own positive


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
    evaluation = read_evaluation(evaluation_spec(config_of(corpus["dev"], *fields)))
    result = evaluation.final_scores(encode, 42)
    tasks = {"dev": sts.read_graded_pairs(corpus["dev"])}
    fit_on = postprocess.read(method, "target", 6 if method == "whitening" else 0)
    expected = by_task(sts.evaluate, postprocess.transformed(encode, fit_on, 42), tasks)["dev"]["spearman"]
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
def sent_eval(corpus, tmp_path_factory):
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


def test_transfer_tasks_are_scored_at_the_end_where_asked_for(encode, sent_eval, corpus, capsys):
    fields = ("transfer=True", "tasks=STSBenchmark", "postprocess=whitening", f"postprocess_data={corpus['csv']}")
    evaluation = read_evaluation(evaluation_spec(config_of(sent_eval, *fields, "transfer_protocol=pytorch")))
    assert "MR, SUBJ, MPQA, SST2, TREC, MRPC not found, and left out" in capsys.readouterr().out
    result = evaluation.final_scores(encode, 42)
    assert set(result) == {"STSBenchmark", "average", "development", "transfer", "transfer_protocol"}
    assert result["transfer_protocol"] == "pytorch"  # and no average, as six tasks are missing
    begins = "transfer after whitening (accuracy, protocol py"
    assert any(table.startswith(begins) for table in evaluation.tables(result))
    embed = postprocess.transformed(encode, postprocess.read("whitening", str(corpus["csv"])))
    tasks, _ = transfer_files.read(str(sent_eval), ["CR"])
    accuracy = by_task(functools.partial(transfer.evaluate, protocol="pytorch"), embed, tasks)["CR"]["accuracy"]
    assert result["transfer"]["CR"]["accuracy"] == pytest.approx(accuracy, abs=5.1)  # two of forty sentences
    development = sts.read(str(sent_eval), ["STSBenchmark"], "dev")[0]
    expected = by_task(sts.evaluate, embed, development)["STSBenchmark"]["spearman"]
    assert result["development"] == pytest.approx(expected, abs=2)


def test_mistakes_of_scoring_are_refused(tiny_bert, sent_eval, corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "few.txt").write_text("a cat\na dog\n")
    write_beir(tmp_path / "one")
    folders = {"dev": corpus["dev"], "senteval": sent_eval, "similar": write_similarity(tmp_path / "s", corpus["dev"])}
    nothing = ["train.max_steps=0", "train.epochs=0"]
    for data, fields, named in (
        ("dev", ["postprocess=whitening", "postprocess_data=no/such.txt"], "eval.postprocess_data: no/such.txt"),
        ("dev", ["postprocess=whitening", "postprocess_data=few.txt"], "whitening of 32 dimensions needs 33 or more"),
        ("dev", ["postprocess=whitening", *TARGET, "postprocess_dimensions=33"], "33 dimensions cannot be kept of"),
        ("dev", ["transfer=True"], "dev.tsv is a file, but eval.transfer needs SentEval's"),
        ("similar", ["transfer=True"], "no MR, CR, SUBJ, MPQA, SST2, TREC, MRPC there"),
        ("dev", ["extra=sickr_dev"], "dev.tsv is a file, but eval.extra=sickr_dev needs SentEval's"),
        ("", ["retrieval.data=no/such"], "config.eval.retrieval.data: no/such: no corpus.jsonl there"),
        ("", ["retrieval.data=one,./one"], "is named twice"),
        ("", [*CHOSEN, "retrieval.data=one", "retrieval.development=train"], "train.tsv: .* there are dev, test"),
    ):
        with pytest.raises(UserError, match=named):
            read_inputs(config_of(folders.get(data, ""), *fields, *nothing, model=tiny_bert))


def test_a_sent_eval_folder_chooses_on_sts_b_dev_and_ends_with_the_paper_s_table(encode, sent_eval, capsys):
    evaluation = read_evaluation(evaluation_spec(config_of(sent_eval, "tasks=STS12,STSBenchmark")))
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
    done = succeeded(call("train", *args, *(f"--config.{field}" for field in fields)))
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
    assert SimCSE(str(tmp_path / "export")).pooler == "avg_top2"
    card = (tmp_path / "export" / "README.md").read_text()
    assert "Pooler in training: `avg`; of this model and its scores: `avg_top2`" in card


def test_the_space_is_measured_on_stsb_also_where_sickr_or_retrieval_chooses(corpus, tmp_path):
    folder, retrieved = write_similarity(tmp_path / "senteval", corpus["dev"]), write_beir(tmp_path / "one")

    def read(data, *fields):
        config = config_of(data, "tasks=", "analysis.every=1", *fields)
        evaluation = read_evaluation(evaluation_spec(config))
        return evaluation, analysed(config, evaluation)

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
    done = succeeded(call("train", *args))
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
    (folders[1] / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq7\td3\t1\n")
    refused(call("train", *args), "the contents of eval.retrieval.data=", "have changed since")


def test_retrieval_is_scored_at_the_end_needs_no_other_data_and_is_judged_alike_everywhere(encode, corpus, tmp_path):
    folders = [write_beir(tmp_path / name) for name in ("one", "two")]
    both = (*CHOSEN, f"retrieval.data={folders[0]},{folders[1]}")
    prompts = {"query": "the man ", "document": "a dog "}
    evaluation = read_evaluation(evaluation_spec(config_of(corpus["dev"], *both))).with_prompts(prompts)
    result = evaluation.final_scores(encode, 42)
    assert set(result) == {"dev", "average", "retrieval", "retrieval_average"}
    assert set(result["retrieval_average"]) == {"mrr@5", "recall@10"} and set(result["retrieval"]) == {"one", "two"}
    tables = "\n".join(evaluation.tables(result))
    assert "two: 6 queries, 30 of 40 documents" in tables and "development scores" not in tables
    collections = [beir.read(str(folder), "test", 30) for folder in folders]
    sides = retrieval.sides(encode, prompts)
    values = [retrieval.score(sides, each, ["mrr@5"])["mrr@5"].mean() for each in collections]
    assert result["retrieval_average"]["mrr@5"] == pytest.approx(100 * np.mean(values), abs=1e-3)
    seen = []
    read_evaluation(evaluation_spec(config_of(corpus["dev"]))).with_prompts(prompts, "the cat ").final_scores(
        lambda texts: seen.extend(texts) or encode(texts), 42
    )
    assert seen and all(text.startswith("the cat ") for text in seen)  # as `encode` puts the model's default
    alone = read_evaluation(evaluation_spec(config_of("", *both)))
    assert alone.development.name == "eval/retrieval_mrr@5" and len(alone.final) == 1 and alone.has_tests
    config = config_of(corpus["dev"], f"retrieval.data={folders[0]}")
    before, file = read_evaluation(evaluation_spec(config)), folders[0] / "qrels" / "test.tsv"
    file.write_text(file.read_text().replace("q0\td0\t2", "q0\td0\t1"))
    after = read_evaluation(evaluation_spec(config))
    assert before.final_fingerprint != after.final_fingerprint and before.fingerprints == after.fingerprints


def test_sizes_are_compiled_and_weights_are_numbers_of_the_step():
    config = default_config()
    assert make_recipe(config, 1).sizes == () and "size_weights" not in make_settings(config, 1)
    config.matryoshka.dimensions, config.matryoshka.weights = ("8", "32"), ("0.5", "1")
    config.model.mlp = "none"
    validate(config)
    assert make_recipe(config, 1).sizes == (32, 8)
    assert make_settings(config, 1)["size_weights"].tolist() == [1.0, 0.5]


@pytest.mark.slow
def test_a_run_is_scored_at_each_size_and_its_export_says_its_own(tiny_bert, corpus, tmp_path):
    workdir, output = tmp_path / "run", tmp_path / "scores.json"
    fields = ["matryoshka.dimensions=32,8", "matryoshka.weights=1,0.5", "train.max_steps=1", "model.num_layers=1"]
    arguments = train_args(tiny_bert, corpus["txt"], corpus["dev"], workdir, "--config.model.mlp=none")
    done = succeeded(call("train", *arguments, *(f"--config.{field}" for field in fields)))
    result = json.loads((workdir / "result.json").read_text())
    assert "the first 8 elements: development scores" in done.stdout and set(result["truncated"]) == {"8"}
    chosen = ["--model", workdir, "--data", corpus["dev"], "--dimensions", "32,8"]
    done = call("evaluate", *chosen, "--output", output)
    assert done.returncode == 0 and "\n8 elements: Spearman" in done.stdout, done.stderr
    found = json.loads(output.read_text())["truncated"]
    (task,) = (name for name, value in result.items() if isinstance(value, dict) and "spearman" in value)
    whole, short = (found[size][task]["spearman"] for size in ("32", "8"))
    assert whole == pytest.approx(result[task]["spearman"], abs=1e-3) and short != whole
    assert short == pytest.approx(result["truncated"]["8"][task]["spearman"], abs=1e-3)
    export(workdir, tmp_path / "model", truncate_dim=8)
    sentences, ours = ["a cat sat", "the small dog"], SimCSE(tmp_path / "model")
    assert ours.dimension == 8
    np.testing.assert_array_equal(ours.encode(sentences), SimCSE(workdir, truncate_dim=8).encode(sentences))
    card = (tmp_path / "model" / "README.md").read_text()
    assert "8 numbers a sentence" in card and "Its first 32 or 8 numbers were trained" in card
    assert "| elements |" in card
    fields = json.loads((tmp_path / "model" / "config_sentence_transformers.json").read_text())
    assert fields["truncate_dim"] == 8


@pytest.mark.slow
def test_sizes_of_embeddings_that_do_not_fit_are_refused(trained, tiny_bert, corpus, tmp_path):
    args = train_args(tiny_bert, corpus["txt"], corpus["dev"], tmp_path / "run", "--config.model.mlp=none")
    with pytest.raises(UserError, match="33 is more than the embedding's 32 elements"):
        read_inputs(parse([*args, "--config.matryoshka.dimensions=33"])[0])
    with pytest.raises(UserError, match="33: must be a whole number from 1 to 32"):
        export(trained, tmp_path / "model", truncate_dim=33)
    chosen = ["--model", tiny_bert, "--data", corpus["dev"]]
    refused(call("evaluate", *chosen, "--dimensions", "33"), "--dimensions 33")


@pytest.mark.slow
def test_a_run_is_measured_at_the_start_each_nth_step_and_the_end_and_is_the_same(trained, tiny_bert, corpus, tmp_path):
    args = train_args(tiny_bert, corpus["csv"], corpus["dev"], tmp_path / "run", "--config.model.mlp=always")
    done = run("train", *args, "--config.analysis.every=3")  # as `trained` was: another process, another rounding
    assert done.returncode == 0, done.stderr
    written = lines(tmp_path / "run")
    assert without_speed([line for line in written if "analysis" not in line]) == without_speed(lines(trained))
    ours, theirs = load_model(str(tmp_path / "run")).params, load_model(str(trained)).params
    assert ours.keys() == theirs.keys()
    assert_arrays(ours, theirs)
    measured = {line["step"]: line for line in written if "analysis" in line}
    assert list(measured) == [0, 3, 6, 8]
    for line in measured.values():
        assert set(line["analysis"]) == NAMES - OF_DROPOUT
        assert_section_5(line, 20)
    assert len({line["analysis"]["anisotropy"] for line in measured.values()}) == 4
    steps = [line["step"] for line in written]
    assert steps == sorted(steps)  # an analysis stands before the score whose checkpoint it belongs to


def test_a_run_measures_the_last_layer_and_compiles_once(tiny_bert):
    model, sample = load_model(str(tiny_bert)), Sample([*sentences(20), " ".join(sentences(9))], [sentences(2)])
    given = SimpleNamespace(model=model, tokenizer=Tokenizer(model.folder, model.config), analysis=sample)
    vars(given).update(devices=jax.devices()[:2], evaluation=None, num_columns=1, total_steps=9)
    vars(given).update(language_model=None, generator=None, corpus=None, template=None, positive_template=None)
    setup = make_setup(measuring(model__mlp="none"), given)
    (evaluator,) = setup.measuring
    programs, found = [], []
    for factor in (1.0, 0.5):
        scaled = {name: factor * value for name, value in model.params.items()}
        embed = ProgressEncoder(setup.embed.with_params(replicate(scaled, setup.replicated)), setup.pairs)
        found.append(evaluator(embed))
        graph, _ = build(model.config, with_head=False)
        function = make_hidden_states(graph, setup.by_example, True, setup.embed.by_rows)
        programs.append(function._cache_size())
    assert programs == [1, 1]
    assert found[0]["analysis"]["anisotropy"] != found[1]["analysis"]["anisotropy"]
    for measured in found:
        assert set(measured["analysis"]) == NAMES
        assert_section_5(measured, 21)


def assert_section_5(measured, count):
    numbers, spectrum = measured["analysis"], np.array(measured["singular_values"])
    lowest = max(numbers["uniformity_bound"], numbers["uniformity_floor"])
    assert numbers["uniformity_with_self"] >= lowest  # equation 7
    assert numbers["alignment_term"] == pytest.approx((numbers["alignment"] / 2 - 1) / 0.05, abs=1e-4)
    trace = numbers["top_eigenvalue"] * np.sum(spectrum**2)  # of W Wᵀ, the number of sentences
    assert trace == pytest.approx(count, abs=1e-2)
    assert 0.05 * count * numbers["uniformity_bound"] <= numbers["top_eigenvalue"]  # Sum / m


def measuring(**fields):
    made = default_config()
    made.update_from_flattened_dict({"analysis.every": 5} | {k.replace("__", "."): v for k, v in fields.items()})
    return made


def analysed(config, evaluation):
    return read_analysis(analysis_spec(config), evaluation_spec(config), evaluation)


def rated(count=40, top=5.0):
    pairs = sts.Pairs(sentences(count, 1), sentences(count, 2), np.linspace(0, top, count), {})
    return SimpleNamespace(pairs=pairs)


def test_the_sentences_that_are_measured(tmp_path, capsys):
    sample = analysed(measuring(analysis__sentences=12), rated())
    assert len(sample.sentences) == 12 and sample.sentences[-1] == sentences(40, 1)[-1]
    assert len(sample.positives) == 6 and sample.positives[-1][1] == sentences(40, 2)[-1]
    file = tmp_path / "own.txt"
    file.write_text("\n".join([*sentences(11), "", *sentences(3)]) + "\n")
    sample = analysed(measuring(analysis__data=str(file)), None)
    assert (sample.sentences, sample.positives) == (sentences(11), [])  # each once, and no blank one
    assert capsys.readouterr().out == ""
    sample = analysed(measuring(analysis__data=str(file), eval__data="dev.tsv"), rated(top=3.0))
    assert sample.positives == []
    assert capsys.readouterr().out == "dev.tsv: no pair is rated above 4 of 5, so no alignment is measured\n"


def test_the_papers_data_are_the_first_sentences_of_the_test_pairs(senteval):
    """As `configs/ablations/isotropy_*.py` have them: repeated ones are kept, and 1,359 of 1,379 are taken."""
    paper = {"eval__data": str(senteval), "analysis__split": "test"}
    sample = analysed(measuring(**paper, analysis__sentences=1359, analysis__repeated_sentences="keep"), rated())
    whole = analysed(measuring(**paper, analysis__sentences=1379, analysis__repeated_sentences="keep"), rated())
    once = analysed(measuring(**paper, analysis__sentences=1379), rated())
    assert [len(each.sentences) for each in (sample, whole, once)] == [1359, 1379, 1256]
    assert whole.sentences == read_data(str(senteval)).sentences and set(once.sentences) == set(whole.sentences)
    assert len(whole.positives) == 231  # of the test pairs, too
    own = analysed(measuring(analysis__data=str(senteval), analysis__split="test", analysis__sentences=1379), None)
    assert own == once


def test_data_that_cannot_be_measured_on(tmp_path):
    few = tmp_path / "few.txt"
    few.write_text("one\n" * 30)
    for given, fields, named in (
        (None, {"analysis__data": "none.txt"}, "config.analysis.data: none.txt"),
        (None, {"analysis__data": str(few)}, f"config.analysis.data={few}: has 1 distinct sentences to analyse, 10"),
        (rated(9), {"eval__data": "dev.tsv"}, "config.eval.data=dev.tsv: has 9 distinct sentences"),
    ):
        with pytest.raises(UserError, match=named):
            analysed(measuring(**fields), given)
