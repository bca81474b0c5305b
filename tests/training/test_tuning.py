import csv
import json

import pytest
from support import sentences

from simcse_jax.config.fields import flatten
from simcse_jax.config.flags import SHORT, parse
from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import load
from simcse_jax.training import tuning
from simcse_jax.training.sweeps.over import make_sweep


@pytest.fixture
def complete(tiny_bert, tmp_path, capsys):
    """The fields of the recipe for a file, and what is printed."""

    def of(rows, names=None, kind="csv", *more):
        path = tmp_path / f"data.{kind}"
        with open(path, "w", newline="") as file:
            if kind == "csv":
                csv.writer(file).writerows([names, *rows])
            else:
                file.writelines(row if kind == "txt" else json.dumps(row) + "\n" for row in rows)
        argv = ["--config=tune", f"--data={path}", f"--model={tiny_bert}", *more]
        return parse(argv, needs_workdir=False)[0], capsys.readouterr().out

    return of


PAIRS = [(f"question {row}", f"answer {row}") for row in range(1000)]


def test_pairs_are_trained_with_info_nce_and_some_held_out(complete):
    config, said = complete(PAIRS, ["question", "answer"])
    assert config.objective.info_nce.weight == 1 and config.data.held_out == 100
    assert (config.train.batch_size, config.train.epochs, config.train.learning_rate) == (16, 5, 2e-5)
    assert config.eval.every == 0 and config.data.max_length == 32
    assert "tune: 1,000 pairs (question, answer); objective info_nce, batch size 16" in said


def test_the_model_keeps_its_pooler_and_head(complete, tiny_bert):
    config, _ = complete(PAIRS, ["question", "answer"])
    model = load(str(tiny_bert))
    assert config.model.pooler == model.pooler and (config.model.mlp == "always") == model.has_head


@pytest.mark.parametrize(
    ("names", "row", "expected"),
    [
        (["sentence1", "sentence2", "score"], lambda n: (f"a {n}", f"b {n}", n % 6), ("", "cosent", "score")),
        (["question1", "question2", "label"], lambda n: (f"a {n}", f"b {n}", n % 2), ("", "cosent", "label")),
        (
            ["premise", "hypothesis", "label"],
            lambda n: (f"a {n}", f"b {n}", ("entailment", "neutral", "contradiction")[n % 3]),
            ("entailment", "info_nce", ""),
        ),
        (["premise", "hypothesis", "label"], lambda n: (f"a {n}", f"b {n}", n % 3), ("entailment", "info_nce", "")),
        (["text1", "text2", "label"], lambda n: (f"a {n}", f"b {n}", f"{float(n % 2)}"), ("", "cosent", "label")),
        (["text1", "text2", "is_duplicate"], lambda n: (f"a {n}", f"b {n}", n // 150), ("", "cosent", "is_duplicate")),
        (["text1", "text2", "similarity"], lambda n: (f"a {n}", f"b {n}", n / 300), ("", "cosent", "similarity")),
        (["text1", "text2", "label"], lambda n: (f"a {n}", f"b {n}", n // 100), ("entailment", "info_nce", "")),
        (["sent0", "sent1", "hard_neg"], lambda n: (f"a {n}", f"b {n}", f"c {n}"), ("", "info_nce", "")),
    ],
)
def test_what_data_have_chooses_the_objective(complete, names, row, expected):
    config, _ = complete([row(number) for number in range(300)], names)
    (objective,) = (name for name, term in config.objective.items() if term.weight)
    assert (config.data.positives, objective, config.data.columns.score) == expected


@pytest.mark.parametrize("label", [lambda n: f"topic {n % 7}", lambda n: n % 2 > 0, lambda n: 1, lambda n: n % 4])
def test_labels_of_another_kind_are_not_guessed(complete, label):
    rows = [(f"a {n}", f"b {n}", label(n)) for n in range(300)]
    with pytest.raises(UserError, match=r"the column 'label' holds .*: tune knows 0 and 1"):
        complete(rows, ["question", "answer", "label"])
    columns = ("--config.data.columns.anchor=question", "--config.data.columns.positive=answer")
    config, _ = complete(rows, ["question", "answer", "label"], "csv", *columns)
    assert config.objective.info_nce.weight == 1 and not config.data.positives


def test_bad_values_are_refused_before_they_are_used(complete):
    with pytest.raises(UserError, match=r"config\.train\.batch_size=0: must be 2 or more"):
        complete(PAIRS, ["question", "answer"], "csv", "--config.train.batch_size=0")


@pytest.mark.parametrize(("left_out", "give"), [("model", "model=NAME"), ("data", "data=FILE")])
def test_what_the_fields_of_a_sweep_s_rows_follow_from_must_be_there(left_out, give, tiny_bert):
    given = {"model": f"--model={tiny_bert}", "data": "--data=pairs.csv"}
    del given[left_out]
    over = [f"{SHORT[left_out]}={tiny_bert}"]
    with pytest.raises(UserError, match=f"config.{SHORT[left_out]} is empty, and other fields.*; give {give}$"):
        parse(["--config=tune", *given.values()], False, lambda config: make_sweep(config, over))


def test_a_subsample_is_what_is_divided(complete):
    config, said = complete(PAIRS, ["question", "answer"], "csv", "--config.data.subsample=150")
    assert config.data.held_out == 45 and "tune: 150 pairs" in said


def test_lists_of_negatives_are_counted_by_positives(complete):
    rows = [{"query": f"q {n}", "pos": [f"a {n}", f"b {n}"], "neg": [f"c {n}"] * (n % 3)} for n in range(200)]
    config, said = complete(rows, kind="jsonl")
    assert "tune: 400 triplets (query, pos, neg)" in said and config.data.held_out == 100


def test_sentences_alone_are_not_judged(complete):
    config, said = complete([f"sentence number {n}\n" for n in range(300)], kind="txt")
    assert (config.data.held_out, config.train.batch_size, config.train.learning_rate) == (0, 64, 1e-5)
    assert "sentences alone cannot tell whether training helps; give eval=FILE: pairs" in said  # outside a command


def test_what_is_given_stays(complete):
    given = {
        "train.batch_size": 8,
        "train.epochs": 1,
        "data.held_out": 30,
        "data.max_length": 12,
        "model.pooler": "max",
    }
    config, _ = complete(PAIRS, ["question", "answer"], "csv", *(f"--config.{n}={v}" for n, v in given.items()))
    assert given.items() <= flatten(config).items()
    assert config.eval.every == 0


def test_few_rows_are_all_trained_on(complete):
    config, said = complete(PAIRS[:40], ["question", "answer"])
    assert config.data.held_out == 0 and config.train.batch_size == 16 and not config.eval.against_start
    assert "fewer than 67 rows are too few to tell whether training helps" in said


def test_a_folder_for_retrieval_compares(complete, tmp_path):
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text("{}\n")
    for split in ("test", "dev"):
        (folder / "qrels" / f"{split}.tsv").write_text("")
    config, _ = complete(PAIRS, ["question", "answer"], "csv", f"--eval={folder}")
    assert (config.eval.data, config.eval.retrieval.data) == ("", str(folder)) and not config.data.held_out
    assert config.eval.development == "retrieval" and config.eval.retrieval.development == "dev"
    with pytest.raises(UserError, match=r"config\.eval\.retrieval\.data=other: .* is such a folder too"):
        complete(PAIRS, ["question", "answer"], "csv", f"--eval={folder}", "--config.eval.retrieval.data=other")
    own = ("--config.eval.retrieval.development=train", "--config.eval.development=sickr")
    config, _ = complete(PAIRS, ["question", "answer"], "csv", f"--eval={folder}", *own)
    assert (config.eval.retrieval.development, config.eval.development) == ("train", "sickr")


def test_sources_of_two_kinds_are_refused(tmp_path, tiny_bert):
    (tmp_path / "a.txt").write_text("".join(f"{sentence}\n" for sentence in sentences(20)))
    (tmp_path / "b.csv").write_text("question,answer\n" + "".join(f"q{n},a{n}\n" for n in range(20)))
    argv = ["--config=tune", f"--data={tmp_path / 'a.txt'},{tmp_path / 'b.csv'}", f"--model={tiny_bert}"]
    with pytest.raises(UserError, match=r"^data=.*b.csv: has sentences and pairs; tune on data of one kind"):
        parse(argv, needs_workdir=False)


@pytest.mark.parametrize(
    ("rows", "width", "batch", "steps"),
    [
        (140, 2, 16, 5 * 8),
        (1900, 2, 32, 5 * 59),
        (18_000, 3, 128, 3 * 140),
        (2_000_000, 2, 128, 15_625),
        (40, 1, 16, 2),
        (500, 1, 64, 7),
        (2_000_000, 1, 64, 4000),
    ],
)
def test_steps_follow_from_the_number_of_rows(rows, width, batch, steps):
    found = tuning.sizes_of(rows, width, {})
    assert found["train.batch_size"] == batch
    assert (found["train.max_steps"] or found["train.epochs"] * (rows // batch)) == steps
    assert found["eval.every"] == (steps // 10 if steps > 500 else 0)


def test_nothing_is_held_out_of_what_a_teacher_teaches(complete, tiny_bert):
    teacher = ("--config.objective.gist.weight=1", f"--config.teacher.model={tiny_bert}")
    config, _ = complete(PAIRS, ["question", "answer"], "csv", *teacher)
    assert config.data.held_out == 0


def test_labels_of_sentences_alone_are_no_matter(complete):
    config, said = complete([(f"text {row}", ("news", "sports")[row % 2]) for row in range(200)], ["text", "label"])
    assert "tune: 200 sentences" in said and not config.data.positives


def test_scored_pairs_have_their_objective_next_to_one_of_tokens(complete):
    rows = [(f"a {row}", f"b {row}", row % 6) for row in range(200)]
    config, _ = complete(rows, ["sentence1", "sentence2", "score"], "csv", "--config.objective.mlm.weight=0.1")
    assert (config.objective.cosent.weight, config.objective.info_nce.weight) == (1.0, 0.0)
