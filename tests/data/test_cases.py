"""Tables that people have (`shared/cases`), as `tune`, `train` and Python read them."""

import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pandas
import pytest
from support import DATA, call, lines
from support.mined import Fixed, corpus_of, mined, pairs_of

from simcse_jax.bulk.mining.pairs import PairFile
from simcse_jax.bulk.mining.selection import Choice
from simcse_jax.config.fields import default_config
from simcse_jax.data.examples import read_examples
from simcse_jax.data.files import files_of
from simcse_jax.data.in_memory import write_examples
from simcse_jax.errors import UserError
from simcse_jax.evaluation import beir
from simcse_jax.huggingface.word_vectors import read_glove
from simcse_jax.runs.state import model_spec
from simcse_jax.training import tuning
from simcse_jax.training.reading import read_training_examples
from simcse_jax.training.setup import data_spec

CASES = DATA.parent / "cases"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="no shared/cases")
# A file, the rows that `tune` trains on, the columns, that of scores or labels, and what judges or why nothing does.
TABLE = """
pandas_to_csv_index.csv|120|question, answer||5 folds
r_write_csv.csv|120|question, answer||5 folds
trailing_separators.csv|120|question, answer||5 folds
pandas_to_csv_index_3rows.csv|3|question, answer||10 are needed
faq_8_answers.csv|300|question, answer||300 rows stay together
all_equal.csv|200|question, answer||200 rows stay together
metadata_third_question_answer_category.csv|40|question, answer||10 are needed
ids_first_german.csv|120|Frage, Antwort||5 folds
header_question_mark.csv|120|What did you ask?, What was the answer?||5 folds
lone_cr_in_a_field.tsv|120|sent0, sent1||5 folds
negatives_1_n.csv|120|anchor, positive, negative_1, negative_2, negative_3, negative_4, negative_5||5 folds
flag_scores.jsonl|120|query, pos, neg||5 folds
negatives_from_positives.jsonl|150|query, pos, neg||5 folds
one_negative_for_all.csv|150|anchor, positive, negative||5 folds
flagembedding_query_pos_neg.jsonl|30|query, pos, neg||10 are needed
excel_semicolon_triplets.csv|29|sent0, sent1, hard_neg||10 are needed
tabs_in_a_csv.csv|29|sent0, sent1, hard_neg||10 are needed
triplets_quoted_by_pandas.tsv|19|sent0, sent1, hard_neg||10 are needed
score_header_spaces.csv|120|Sentence 1, Sentence 2|Similarity Score|5 folds
score_header_sim.csv|120|sentence1, sentence2|similarity-score|5 folds
score_header_camel.csv|120|sentence1, sentence2|SimilarityScore|5 folds
score_header_gold.csv|120|sentence1, sentence2|gold|5 folds
score_header_human.csv|120|sentence1, sentence2|human_score|5 folds
score_header_relevance.csv|120|query, document|relevance|5 folds
score_percent_col.csv|120|sentence1, sentence2|similarity (0-5)|5 folds
score_german_known.csv|120|sentence1, sentence2|score|5 folds
relevance_float.csv|120|query, document|relevance_score|5 folds
label_float_0_5.csv|120|sentence1, sentence2|label|5 folds
label_bool.csv|120|question1, question2|is_duplicate|5 folds
label_bool_json.jsonl|120|question1, question2|is_duplicate|5 folds
scored_shared_sentence.csv|150|sentence1, sentence2|score|150 rows stay together
graded_pairs_quoted_by_pandas.tsv|6|sentence1, sentence2|score|10 are needed
graded_pairs_unquoted.tsv|6|sentence1, sentence2|score|10 are needed
metadata_first_genre_sentence1_sentence2.csv|40|sentence1, sentence2|score|10 are needed
label_entail_only.csv|150|premise, hypothesis|label|5 folds
similarity_nli_names.csv|40|sentence1, sentence2|similarity|10 are needed
"""
TABLES = {name: fields for name, *fields in (line.split("|") for line in TABLE.split("\n")[1:-1])}
LABELLED = ("label_entail_only.csv", "similarity_nli_names.csv")
REFUSED = {  # what the line names
    "label_graded_012_query.csv": "data.columns.score=label",
    "str2021_layout.csv": "'Text'",
    "cp1252_quotes.csv": "line 2",
}


def config_of(path: Path | str):
    config = default_config()
    config.data.train, config.eval.data, config.eval.every = str(path), "", 0
    return config


def decided(path: Path | str) -> tuple[list[str], bool]:
    """What `tune` makes of a table, as in `TABLE`, and whether the pairs are labelled; the run then reads it so."""
    config = config_of(path)
    data, objectives = tuning.inspect_data(data_spec(config)), model_spec(config).objectives
    config.update_from_flattened_dict(tuning.data_fields(data, objectives))
    why = tuning.no_judges(data, objectives)
    config.data.folds = 0 if why else tuning.FOLDS
    why = why or tuning.find_obstacle(data, config)
    examples = read_training_examples(data_spec(config))
    assert len(examples) == data.rows and (examples.scores is not None) == bool(data.score)
    value = data.score or data.label
    names = ", ".join(name for name in data.columns if name != value)
    return [str(data.rows), names, value, why or f"{config.data.folds} folds"], data.positives == "entailment"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(3))
def test_tables_of_pairs_are_tuned_as_they_are_meant(part, tmp_path):
    for name in [*TABLES][part::3]:
        (*fields, held), is_labelled = decided(CASES / name)
        assert (fields, is_labelled) == (TABLES[name][:3], name in LABELLED) and TABLES[name][3] in held, name
        if name.endswith(".tsv") or "neg" in fields[1]:
            continue
        if "json" in name:
            table = pandas.read_json(CASES / name, lines=True)
        else:
            table = pandas.read_csv(CASES / name, sep=";" if "german_known" in name else ",")
        write_examples(table, tmp_path / "data.parquet", "data")
        data = tuning.inspect_data(data_spec(config_of(tmp_path / "data.parquet")))
        assert [str(data.rows), data.score or data.label] == fields[::2], name


def test_tables_whose_meaning_is_not_plain_are_refused_and_none_is_forgotten():
    assert {path.name for path in CASES.iterdir() if path.suffix in (".csv", ".tsv", ".jsonl")} == {*TABLES, *REFUSED}
    for name, part in REFUSED.items():
        with pytest.raises(UserError, match=part) as error:
            tuning.inspect_data(data_spec(config_of(CASES / name)))
        assert "data.columns.positive" not in str(error.value)


def test_training_and_mining_read_the_same_columns_and_say_what_they_leave_out():
    for name, (rows, columns, value, _) in TABLES.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            examples = read_examples(str(CASES / name))
        assert len(examples) == (160 if name == "similarity_nli_names.csv" else int(rows))
        assert (len(examples.columns) == 2) == ("neg" not in columns), name
        unread = [str(each.message) for each in caught if "is not read, so every pair" in str(each.message)]
        assert len(unread) == bool(value)
        assert all(repr(value) in message and "data.columns.anchor" not in message for message in unread)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pair = next(iter(PairFile(str(CASES / name), {}).read()))
        assert (pair.anchor, pair.positive) == (examples.columns[0][0], examples.columns[1][0])


def test_what_mine_writes_is_tuned(tmp_path):
    texts = [f"answer {n}" for n in range(100)]
    records = mined(pairs_of(100, texts), corpus_of(texts, model := Fixed()), Choice(3, 0, 20), model)
    (tmp_path / "mined.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    assert decided(tmp_path / "mined.jsonl")[0] == ["100", "anchor, positive, negative", "", "5 folds"]


def test_judgements_of_missing_documents_vectors_as_published_and_files_beside_those_of_macos_are_read():
    for name, relevant in (("arguana_unknown_document", [2, 1, 1]), ("touche_unknown_zero_document", [1, 1, 1])):
        with pytest.warns(UserWarning, match=r"not in corpus\.jsonl \(1 of 5\)"):
            assert beir.read(str(CASES / name)).relevant.tolist() == relevant
    twice, spaced = CASES / "glove_word_twice_as_in_840B.txt", CASES / "word2vec_header_and_word_with_space.vec"
    with pytest.warns(UserWarning, match="1"):
        words, table = read_glove(twice)
    rows = [line.split(b" ") for line in twice.read_bytes().splitlines()]
    (word,) = {row[0] for row in rows if [other[0] for other in rows].count(row[0]) > 1}
    *_, last = (row[1:] for row in rows if row[0] == word)
    assert len(words) == len(table) == len(rows) and words.count(word.decode()) == 1  # with a row for padding
    np.testing.assert_array_equal(table[words.index(word.decode())], np.float32(last))
    with pytest.warns(UserWarning, match="1"):
        assert len(read_glove(spaced).words) == 9
    (file,) = files_of(str(CASES / "nli_with_appledouble"))
    assert Path(file).name == "multinli_1.0_train.jsonl"


@pytest.mark.slow
def test_runs_on_shared_negatives_compare_and_those_on_shared_answers_say_why_not(tiny_bert, tmp_path):
    for name, compared in (("negatives_1_n.csv", True), ("faq_8_answers.csv", False), ("score_percent_col.csv", True)):
        path, workdir = shutil.copy(CASES / name, tmp_path), tmp_path / Path(name).stem
        done = call("tune", "--data", path, "--model", tiny_bert, "--workdir", workdir, "--config.train.epochs=1")
        assert done.returncode == 0, done.stderr
        result = json.loads((workdir / "result.json").read_text()) if (workdir / "result.json").exists() else {}
        assert ("against_start" in result) == compared and (compared or lines(workdir))
        assert ("300 rows stay together" in done.stdout) == (not compared)
