import numpy as np
import pytest
from support.data import raises
from support.senteval import write, write_all

from simcse_jax.evaluation import transfer_files


def test_sentences_are_read_and_sorted_as_sent_eval_does(tmp_path):
    write_all(tmp_path)
    write(tmp_path / "MPQA/mpqa.pos", ["the  caf\xe9 plot", "a", "the a"] + ["good film"] * 10, "latin-1")
    write(tmp_path / "MPQA/mpqa.neg", ["bad", ""] + ["dull plot"] * 10, "latin-1")
    task = transfer_files.read_task(tmp_path, "MPQA")
    assert task.first[:4] == ["", "bad", "a", "dull plot"]
    assert (task.first[-1], task.first[-12:-10]) == ("the caf\xe9 plot", ["the a", "good film"])
    assert task.labels.tolist() == [0, 0, 1, *[0] * 10, *[1] * 12]


def test_damaged_data_is_refused_by_file_and_line(tmp_path):
    for task, file, lines, parts in (
        ("SST2", "SST/binary/sentiment-dev", ["good\t1", "bad"], ["line 2", "a sentence and 0 or 1"]),
        ("SST2", "SST/binary/sentiment-test", ["good\t1", "bad\t2"], ["line 2", "bad\\t2"]),
        ("SST2", "SST/binary/sentiment-train", ["good\t1", "fine\t1"], ["SST/binary", "1 classes of 2"]),
        ("SST2", "SST/binary/sentiment-test", [], ["SST/binary", "no test sentences"]),
        ("TREC", "TREC/TREC_10.label", ["NUM:dist How far ?", "WHY:x How ?"], ["line 2", "'WHY:x", "ABBR"]),
        ("TREC", "TREC/TREC_10.label", ["NUM"], ["line 1", "LABEL:fine question"]),
        ("MRPC", "MRPC/msr_paraphrase_test.txt", ["head", "1\t2\t3\tone"], ["line 2", "two ids and two sentences"]),
        ("MRPC", "MRPC/msr_paraphrase_test.txt", ["head", "x\t2\t3\ta\tb"], ["line 2", "'x"]),
        ("MR", "MR/rt-polarity.neg", ["bad"] * 9, ["MR has 2 classes of 9", "each of 10 or more"]),
        ("MR", "MR/rt-polarity.neg", None, ["rt-polarity.neg", "cannot be read"]),
    ):
        write_all(tmp_path)
        (tmp_path / file).unlink() if lines is None else write(tmp_path / file, lines)
        for part in parts:
            raises(part, transfer_files.read, str(tmp_path), [task])
    raises("data/downstream", transfer_files.read, str(tmp_path / "nowhere"), ["MR"])


REAL = [("MR", 10662), ("CR", 3775), ("SUBJ", 10000), ("TREC", 5452, 500), ("MRPC", 4076, 1725)]


@pytest.mark.parametrize("counts", [*REAL, pytest.param(("SST2", 67349, 1821, 872), marks=pytest.mark.slow)], ids=str)
def test_the_real_data_sets_have_their_numbers_of_sentences(senteval, counts):
    found = transfer_files.read_task(senteval, counts[0])
    sizes = dict(zip(("train", "test", "dev"), counts[1:], strict=False))
    assert {split: part.stop - part.start for split, part in found.splits.items()} == sizes
    assert len(np.unique(found.labels)) == (6 if counts[0] == "TREC" else 2)
