import numpy as np
import pytest
from support.senteval import write, write_all

from simcse_jax.errors import UserError
from simcse_jax.evaluation import transfer_files


def test_sentences_are_read_and_sorted_as_sent_eval_does(tmp_path):
    write_all(tmp_path)
    lines = ["the  caf\xe9 plot", "a", "the a"] + ["good film"] * 10
    write(tmp_path / "MPQA/mpqa.pos", lines, "latin-1")
    write(tmp_path / "MPQA/mpqa.neg", ["bad", ""] + ["dull plot"] * 10, "latin-1")
    task = transfer_files.read_task(tmp_path, "MPQA")
    assert task.first[:4] == ["", "bad", "a", "dull plot"]
    assert (task.first[-1], task.first[-12:-10]) == ("the caf\xe9 plot", ["the a", "good film"])
    assert task.labels.tolist() == [0, 0, 1, *[0] * 10, *[1] * 12]


@pytest.mark.parametrize(
    ("task", "file", "lines", "parts"),
    [
        ("SST2", "SST/binary/sentiment-dev", ["good\t1", "bad"], ["line 2", "1 tab-separated", "label"]),
        ("SST2", "SST/binary/sentiment-test", ["good\t1", "bad\t2"], ["line 2", "'2'", "neither 0 nor 1"]),
        ("SST2", "SST/binary/sentiment-train", ["good\t1", "fine\t1"], ["SST/binary", "one class"]),
        ("SST2", "SST/binary/sentiment-test", [], ["SST/binary", "no test sentences"]),
        ("TREC", "TREC/TREC_10.label", ["NUM:dist How far ?", "WHY:x How ?"], ["line 2", "'WHY'", "ABBR"]),
        ("TREC", "TREC/TREC_10.label", ["NUM"], ["line 1", "LABEL:fine question"]),
        ("MRPC", "MRPC/msr_paraphrase_test.txt", ["head", "1\t2\t3\tone"], ["line 2", "4 tab-separated"]),
        ("MRPC", "MRPC/msr_paraphrase_test.txt", ["head", "x\t2\t3\ta\tb"], ["line 2", "'x'", "neither"]),
        ("MR", "MR/rt-polarity.neg", ["bad"] * 9, ["MR has 9", "needs 10"]),
        ("MR", "MR/rt-polarity.neg", None, ["rt-polarity.neg", "cannot be read"]),
    ],
)
def test_damaged_data_is_refused_by_file_and_line(tmp_path, task, file, lines, parts):
    write_all(tmp_path)
    if lines is None:
        (tmp_path / file).unlink()
    else:
        write(tmp_path / file, lines)
    with pytest.raises(UserError) as error:
        transfer_files.read(str(tmp_path), [task])
    assert [part for part in parts if part not in str(error.value)] == [], str(error.value)
    with pytest.raises(UserError, match="data/downstream"):
        transfer_files.read(str(tmp_path / "nowhere"), [task])


REAL = [
    *(("MR", {"train": 10662}), ("CR", {"train": 3775}), ("SUBJ", {"train": 10000})),
    *(("TREC", {"train": 5452, "test": 500}), ("MRPC", {"train": 4076, "test": 1725})),
    pytest.param("SST2", {"train": 67349, "dev": 872, "test": 1821}, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("task", "counts"), REAL)
def test_the_real_data_sets_have_their_numbers_of_sentences(senteval, task, counts):
    found = transfer_files.read_task(senteval, task)
    assert {split: part.stop - part.start for split, part in found.splits.items()} == counts
    assert len(np.unique(found.labels)) == (6 if task == "TREC" else 2)
