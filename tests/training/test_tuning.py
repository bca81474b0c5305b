import csv
import json

import pytest
from support import sentences

from simcse_jax.config.fields import flatten
from simcse_jax.config.flags import SHORT, parse
from simcse_jax.data.labels import NamedLabel
from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import load
from simcse_jax.training import tuning
from simcse_jax.training.sweeps.over import make_sweep, split_options

QA = ["question", "answer"]
PAIRS = [(f"question {row}", f"answer {row}") for row in range(1000)]
LISTS = [{"query": f"q {n}", "pos": [f"a {n}", f"b {n}"], "neg": [f"c {n}"] * (n % 3)} for n in range(200)]
TOPICS = [(f"text {n}", ("news", "sports")[n % 2]) for n in range(200)]
SCORED = [(f"a {n}", f"b {n}", n % 6) for n in range(200)]
ALONE = {"data.columns.label": "", "data.folds": 0, "objective.supcon.weight": 0.0}
SENTENCES = [f"sentence number {n}\n" for n in range(300)]


@pytest.fixture
def complete(tiny_bert, tmp_path, capsys):
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


def test_pairs_are_trained_with_info_nce_and_some_held_out_by_a_model_with_its_own_pooler_and_head(complete, tiny_bert):
    config, said = complete(PAIRS, QA)
    assert config.objective.info_nce.weight == 1 and config.data.folds == 5 and not config.data.held_out
    assert (config.train.batch_size, config.train.epochs, config.train.learning_rate) == (16, 5, 2e-5)
    assert config.eval.every == 0 and config.data.max_length == 32
    assert "tune: 1,000 pairs (question, answer); objective info_nce, batch size 16" in said
    model = load(str(tiny_bert))
    assert config.model.pooler == model.pooler and (config.model.mlp == "always") == model.has_head


NLI = ("entailment", "neutral", "contradiction")
CHOSEN = (
    ("score", lambda n: n % 6, ("", "cosent", "score")),
    ("similarity", lambda n: n / 300, ("", "cosent", "similarity")),
    ("label", lambda n: n % 2, ("", "cosent", "label")),
    ("label", lambda n: f"{float(n % 2)}", ("", "cosent", "label")),
    ("is_duplicate", lambda n: n // 150, ("", "cosent", "is_duplicate")),
    ("label", lambda n: NLI[n % 3], ("entailment", "info_nce", "")),
    ("label", lambda n: n // 100, ("entailment", "info_nce", "")),
    ("similarity", lambda n: NLI[n % 3], ("entailment", "info_nce", "")),
    ("label", lambda n: NLI[0], ("entailment", "info_nce", "")),
    ("label", lambda n: ["entailment", "not_entailment"][n % 2], ("entailment", "info_nce", "")),
    ("label", lambda n: n % 7 / 2, ("", "cosent", "label")), ("label", lambda n: n % 2 > 0, ("", "cosent", "label")),
    ("Human-Score (0-5)", lambda n: f"{n % 6},5", ("", "cosent", "Human-Score (0-5)")),
    ("zeile", lambda n: n, ("", "info_nce", "")),
    ("hard_neg", lambda n: f"c {n}", ("", "info_nce", "")),
    ("relevance", lambda n: 1, ("", "info_nce", "")),  # positives alone
    ("relevance", lambda n: f"it says what was asked for {n}", ("", "info_nce", "")),
    ("version", lambda n: 1, ("", "info_nce", "")),
    ("created", lambda n: f"24.12.{n}", ("", "info_nce", "")),
    ("label", lambda n: ["0.0", "1.0", "2.0", ""][n % 4], ("entailment", "info_nce", "")),
    ("label", lambda n: [*NLI, "NA"][n % 4], ("entailment", "info_nce", "")),
)  # fmt: skip


def test_what_data_have_chooses_the_objective_if_it_is_certain(complete):
    for name, value, expected in CHOSEN:
        names = ["sent0", "sent1"] if name == "hard_neg" else ["sentence1", "sentence2"]
        config, _ = complete([(f"a {n}", f"b {n}", value(n)) for n in range(300)], [*names, name])
        (objective,) = (name for name, term in config.objective.items() if term.weight)
        assert (config.data.positives, objective, config.data.columns.score) == expected
    columns = ("--config.data.columns.anchor=question", "--config.data.columns.positive=answer")
    for name, label in (
        *(("label", label) for label in (lambda n: f"topic {n % 7}", lambda n: 1, lambda n: n % 4, lambda n: n % 3)),
        *(("votes", label) for label in (lambda n: n % 7, lambda n: f"{n % 7},5", lambda n: f"{n}%")),
        ("gold", lambda n: n % 7 / 2),
    ):
        rows = [(f"a {n}", f"b {n}", label(n)) for n in range(300)]
        with pytest.raises(UserError, match=f"column '{name}' holds .*(remove the column|on every pair, .*=answer)"):
            complete(rows, [*QA, name])
        config, _ = complete(rows, [*QA, name], "csv", *columns)
        assert config.objective.info_nce.weight == 1 and not config.data.positives
    rows = [(f"a {n}", f"b {n}", 1, n / 300) for n in range(300)]
    assert complete(rows, [*QA, "score", "similarity"])[0].data.columns.score == "similarity"
    rows = [(f"a {n}", f"b {n}", NLI[n % 3]) for n in range(300)]
    config, _ = complete(rows, [*QA, "urteil"], "csv", *columns, "--config.data.columns.label=urteil")
    assert config.data.positives == "entailment"
    named = [NamedLabel(0, "entailment"), NamedLabel(1, "not_entailment")], [NamedLabel(0, "no"), NamedLabel(1, "yes")]
    assert [tuning.classify_values({*values}, False, True) for values in named] == ["label", "score"]


def test_what_the_fields_of_a_sweep_s_rows_follow_from_must_be_there_and_be_of_one_kind(tiny_bert, tmp_path):
    for left_out, given, give in (
        ("model", "data=pairs.csv", "model=NAME"),
        ("data", f"model={tiny_bert}", "data=FILE"),
    ):
        over = [f"{SHORT[left_out]}={tiny_bert}"]
        with pytest.raises(UserError, match=f"^config.{SHORT[left_out]} .*{give}$"):
            parse(
                ["--config=tune", f"--{given}"],
                False,
                lambda config, over=over: make_sweep(config, split_options(over)),
            )
    (tmp_path / "a.txt").write_text("".join(f"{sentence}\n" for sentence in sentences(20)))
    (tmp_path / "b.csv").write_text("question,answer\n" + "".join(f"q{n},a{n}\n" for n in range(20)))
    for name in "cd":  # files of which one has positives alone
        rows = "".join(f"q{name}{n},a{name}{n},{int(name == 'c' or n % 2)}\n" for n in range(40))
        (tmp_path / f"{name}.csv").write_text("question1,question2,is_duplicate\n" + rows)
    argv = ["--config=tune", f"--data={tmp_path / 'c.csv'},{tmp_path / 'd.csv'}", f"--model={tiny_bert}"]
    assert parse(argv, needs_workdir=False)[0].data.columns.score == "is_duplicate"
    for name, label in (("e", "cats"), ("f", "dogs")):  # files of a class each
        rows = "".join(f"{name} {row},{label}\n" for row in range(60))
        (tmp_path / f"{name}.csv").write_text("text,label\n" + rows)
    for other, weight in (("f.csv", 1), ("a.txt", 0)):
        argv = ["--config=tune", f"--data={tmp_path / 'e.csv'},{tmp_path / other}", f"--model={tiny_bert}"]
        assert parse(argv, needs_workdir=False)[0].objective.supcon.weight == weight
    argv = ["--config=tune", f"--data={tmp_path / 'a.txt'},{tmp_path / 'b.csv'}", f"--model={tiny_bert}"]
    with pytest.raises(UserError, match=r"^data=.*b.csv: has sentences and pairs"):
        parse(argv, needs_workdir=False)


def test_what_follows_from_data_and_other_fields(complete):
    for rows, names, kind, more, expected, said in (
        (PAIRS, QA, "csv", "data.subsample=150 data.folds=0", {"data.held_out": 45}, "tune: 150 pairs"),
        (PAIRS[:40], QA, "csv", "seed=1", {"data.held_out": 0, "train.batch_size": 16, "eval.against_start": False},
         "40 groups in all, 8 in a fold; 10 are needed"),
        (PAIRS, QA, "csv", "objective.gist.weight=1 teacher.model=x", {"data.held_out": 0}, "model: objective.gist is"),
        ([(f"a {n}", f"b {n % 8}") for n in range(300)], QA, "csv", "seed=1",
         {"data.held_out": 0, "eval.against_start": False, "train.epochs": 5}, "8 groups in all, 1 in a fold; 10 are"),
        (LISTS, None, "jsonl", "seed=1", {"data.folds": 5, "eval.every": 0}, "tune: 400 triplets (query, pos, neg)"),
        (TOPICS, ["text", "label"], "csv", "seed=1",
         {"objective.supcon.weight": 1.0, "objective.info_nce.weight": 0.0, "data.columns.label": "label",
          "data.folds": 5, "train.batch_size": 16, "train.epochs": 5},
         "tune: 200 sentences in 2 classes (text, label)"),
        (TOPICS, ["text", "label"], "csv", "objective.off_dropout.weight=1", ALONE, "tune: 200 sentences;"),
        (TOPICS, ["text", "label"], "csv", "data.columns.anchor=text", ALONE, "tune: 200 sentences;"),
        ([(text, "" if n % 4 else n) for n, (text, _) in enumerate(TOPICS)], ["text", "label"], "csv", "seed=1",
         ALONE, "holds 50 different values in 50 rows, not classes; it is trained as sentences alone"),
        ([(text, 1) for text, _ in TOPICS], ["text", "label"], "csv", "seed=1", ALONE, "holds one class alone, '1'"),
        ([(text, n % 9 / 4) for n, (text, _) in enumerate(TOPICS)], ["text", "label"], "csv", "seed=1", ALONE,
         "holds numbers such as 0.25, which are not classes"),
        ([(text, "") for text, _ in TOPICS], ["text", "label"], "csv", "seed=1", ALONE, "'label' holds nothing"),
        ([(text, min(n // 3, 40)) for n, (text, _) in enumerate(TOPICS)], ["text", "gold_label"], "csv", "seed=1",
         {"data.folds": 5, "train.batch_size": 64}, "tune: 40 of 41 classes have fewer rows than there are folds"),
        ([(text, n // 2) for n, (text, _) in enumerate(TOPICS[:100])], ["text", "label"], "csv", "data.folds=2",
         {"train.batch_size": 32}, "tune: 100 sentences in 50 classes"),  # a fold's model has 50 rows
        (SENTENCES, None, "txt", "seed=1", {"data.held_out": 0, "train.batch_size": 64, "train.learning_rate": 1e-5},
         "sentences alone cannot tell whether training helps; give eval=FILE"),  # outside a command
        (SCORED, ["sentence1", "sentence2", "score"], "csv", "objective.mlm.weight=0.1",
         {"objective.cosent.weight": 1.0, "objective.info_nce.weight": 0.0}, "pairs with scores"),
    ):  # fmt: skip
        config, message = complete(rows, names, kind, *(f"--config.{field}" for field in more.split()))
        assert expected.items() <= flatten(config).items() and said in message


def test_what_is_given_stays_and_bad_values_are_refused_before_they_are_used(complete):
    given = {"train.batch_size": 8, "train.epochs": 1, "data.held_out": 30, "model.pooler": "max"}
    given["data.max_length"] = 12
    config, _ = complete(PAIRS, QA, "csv", *(f"--config.{name}={value}" for name, value in given.items()))
    assert given.items() <= flatten(config).items() and config.eval.every == 0
    assert config.eval.against_start and not config.data.folds
    config, _ = complete(PAIRS, QA, "csv", "--config.data.held_out=0")
    assert not (config.eval.against_start or config.data.folds or config.data.held_out)
    with pytest.raises(UserError, match=r"config\.train\.batch_size=0"):
        complete(PAIRS, QA, "csv", "--config.train.batch_size=0")


def test_judged_pairs_judge_what_sentences_teach_and_few_of_them_are_not_halved(complete, tmp_path):
    """Otherwise ten evaluations of half of them would choose among the checkpoints of 1,000 steps."""
    for pairs, every in ((40, 0), (tuning.FEW_JUDGED, 100)):
        rows = [f"a cat {row}\tthe dog {row}\t{row % 6}\n" for row in range(pairs)]
        (tmp_path / "judged.tsv").write_text("sentence1\tsentence2\tscore\n" + "".join(rows))
        judged = (f"--eval={tmp_path / 'judged.tsv'}", "--config.train.max_steps=1000")
        config, _ = complete(SENTENCES, None, "txt", *judged)
        assert config.eval.against_start and config.eval.every == every and not config.data.folds
    (tmp_path / "judged.tsv").write_text("sentence1\tsentence2\tscore\n" + "a\tb\t1\n" * 20)
    with pytest.raises(UserError, match=r"^config\.eval\.data: .*judged\.tsv: all 20 scores are 1"):
        complete(SENTENCES, None, "txt", *judged)


def test_a_folder_for_retrieval_compares(complete, tmp_path):
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text("{}\n")
    for split in ("test", "dev"):
        (folder / "qrels" / f"{split}.tsv").write_text("")
    config, _ = complete(PAIRS, QA, "csv", f"--eval={folder}")
    assert (config.eval.data, config.eval.retrieval.data) == ("", str(folder)) and not config.data.held_out
    assert config.eval.development == "retrieval" and config.eval.retrieval.development == "dev"
    with pytest.raises(UserError, match=r"config\.eval\.retrieval\.data=other: .* is such a folder too"):
        complete(PAIRS, QA, "csv", f"--eval={folder}", "--config.eval.retrieval.data=other")
    own = ("--config.eval.retrieval.development=train", "--config.eval.development=sickr")
    config, _ = complete(PAIRS, QA, "csv", f"--eval={folder}", *own)
    assert (config.eval.retrieval.development, config.eval.development) == ("train", "sickr")


def test_steps_follow_from_the_number_of_rows():
    expected = {(140, False): (16, 5 * 8), (1900, False): (32, 5 * 59), (18_000, False): (128, 3 * 140)}
    expected |= {(2_000_000, False): (128, 15_625), (40, True): (16, 2), (500, True): (64, 7)}
    for (rows, alone), (batch, steps) in (expected | {(2_000_000, True): (64, 4000)}).items():
        found = tuning.size_fields(rows, alone, 0, {})
        assert found["train.batch_size"] == batch
        assert (found["train.max_steps"] or found["train.epochs"] * (rows // batch)) == steps
        assert found["eval.every"] == (steps // 10 if steps > 500 else 0)
