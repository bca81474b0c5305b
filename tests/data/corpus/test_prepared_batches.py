import dataclasses
import threading

import numpy as np
import pytest
from support.corpora import in_memory, prepare, tokenizer_of

from simcse_jax.data.batches import Batches
from simcse_jax.data.corpus.prepared import Prepared
from simcse_jax.data.corpus.prepared_batches import PreparedCorpus, hashed_texts
from simcse_jax.data.draws import ORDER, permutation
from simcse_jax.data.pairing import Pairing

BATCH = 8


@pytest.fixture(scope="module")
def rows(triplets):
    return PreparedCorpus(Prepared(triplets), 0)


def same(left, right):
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_array_equal(left[name], right[name])
        assert left[name].dtype == right[name].dtype


class InMemory(Batches):
    """Rows in memory in the order of prepared ones."""

    def _examples(self, epoch):
        corpus = self._corpus
        order = permutation(corpus.num_rows, self._seed, ORDER, epoch)(np.arange(corpus.num_rows))
        return order if corpus.pairing is None else corpus.pairing.pairs(order)


def test_batches_are_those_in_memory_of_seed_and_step_and_read_by_a_thread(rows, tiny_bert, corpus, lines, monkeypatch):
    expected = InMemory(in_memory(tiny_bert, corpus["csv"]), BATCH, 3)
    batches = rows.batches(BATCH, 3)
    for step in (0, 1, 2, 14, 4, 5, 0):  # two epochs of five, forwards and backwards
        same(batches[step], expected[step])
        assert batches.tokens(step) == expected.tokens(step)
    whole = in_memory(tiny_bert, corpus["txt"])
    for pairing in (Pairing(3, fresh=True), Pairing(1, fresh=False)):
        prepared = PreparedCorpus(Prepared(lines), 0, pairing=pairing)
        expected = dataclasses.replace(whole, pairing=pairing)
        assert (prepared.num_examples, prepared.num_columns) == (expected.num_examples, expected.num_columns)
        for step in range(3):
            same(prepared.batches(4, 1)[step], InMemory(expected, 4, 1)[step])
    # Of several processes each has some of the devices, and each device some of the rows.
    for parts in (1, 2, 8):
        whole, size = rows.batches(BATCH, 5), BATCH // parts
        processes = [rows.batches(BATCH, 5) for _ in range(parts)]
        for step in (0, 1, 7, 3):  # as after a kill, it begins anywhere
            read = [each.rows(step, slice(n * size, (n + 1) * size)) for n, each in enumerate(processes)]
            same({name: np.concatenate([part[name] for part in read]) for name in read[0]}, whole[step])
    prepared = Prepared(lines)
    texts = {}
    for epoch in range(2):
        batches = PreparedCorpus(prepared, 0, subsample=16).batches(BATCH, 2)
        found = np.concatenate([batches[2 * epoch + step]["input_ids"][:, 0] for step in range(2)])
        texts[epoch] = {tuple(row) for row in found.tolist()}
    assert texts[0] == texts[1] and len(texts[0]) == 16
    other = PreparedCorpus(prepared, 0, subsample=16).batches(BATCH, 3)
    assert texts[0] != {tuple(row) for step in range(2) for row in other[step]["input_ids"][:, 0].tolist()}
    batch = PreparedCorpus(prepared, 7).batches(BATCH, 0)[0]  # the tokenizer's own token for padding
    assert (batch["input_ids"][batch["attention_mask"] == 0] == 7).all() and batch["input_ids"].dtype == np.int32
    batches, may_read = rows.batches(BATCH, 3), threading.Event()
    assert not batches.is_reading(0)
    read = batches._read
    monkeypatch.setattr(batches, "_read", lambda step, *part: (step == 1 and may_read.wait(10), read(step, *part))[1])
    batches.rows(0, slice(0, 4))
    assert batches.is_reading(1) and not batches.is_reading(0)
    may_read.set()
    batches.rows(1, slice(0, 4))
    assert not batches.is_reading(1)


def test_a_batch_takes_a_larger_program_when_it_must(tiny_bert, tmp_path):
    # 100 rows of 3 tokens, but for those of one batch, which have 32. Lengths that hardly differ have one program.
    words = np.ones(100, int)
    words[permutation(100, 1, ORDER, 0)(np.arange(100))[4 * BATCH : 5 * BATCH]] = 40
    (tmp_path / "text.txt").write_text("".join("cat " * count + "\n" for count in words))
    prepared = prepare(tmp_path / "out", tiny_bert, tmp_path / "text.txt", max_length=32)
    batches = PreparedCorpus(prepared, tokenizer_of(tiny_bert).pad_token_id).batches(BATCH, 1)
    for devices, chunk in ((1, 0), (2, 0), (4, 1), (1, 2)):
        sizes = batches.sizes(1000, devices, chunk)
        together = min(chunk or BATCH, BATCH // devices)
        assert sizes.tokens[-1] == () and sizes.tokens[0][0] < 32 * together
        for step in range(12):
            tokens = batches[step]["attention_mask"].sum(axis=(1, 2)).reshape(-1, together).sum(axis=1)
            if step == 4:
                assert sizes.of(step) == len(sizes.tokens) - 1
            else:
                assert sizes.of(step) == 0 and tokens.max() <= sizes.tokens[0][0]
    (tmp_path / "text.txt").write_text("cat cat cat cat cat cat\n" * 20)
    alike = prepare(tmp_path / "alike", tiny_bert, tmp_path / "text.txt")
    sizes = PreparedCorpus(alike, 0).batches(BATCH, 1).sizes(1000, 1)
    assert sizes.tokens == ((),) and sizes.of(3) == 0


def equal(batch):
    """Which texts of a batch are equal, whatever their numbers."""
    numbers = batch["text"].ravel()
    return numbers[:, None] == numbers


@pytest.fixture(scope="module")
def repeated(shared, tiny_bert):
    """Pairs, triplets and sentences that share texts, prepared with prompts and cut at three tokens."""

    def write(folder):
        folder.mkdir()
        words = ["the cat sat", "the cat ran", "a dog", "the dog sat on the mat", "a cat"]
        rows = [",".join(words[(row * step) % 5] for step in (1, 2, 3)) for row in range(1, 9)]
        (folder / "triplets.csv").write_text("\n".join(["sent0,sent1,hard_neg", *rows]) + "\n")
        (folder / "lines.txt").write_text("\n".join(words * 2) + "\n")
        options = {"keep_text": True, "max_length": 4}
        data = folder / "triplets.csv", folder / "lines.txt"
        prepare(folder / "mixed", tiny_bert, *data, mixed=True, prompts=["the ", "a ", "cat "], **options)
        for path in data:
            prepare(folder / path.stem, tiny_bert, path, **options)

    return shared("prepared-repeated", write)


def test_equal_texts_are_those_before_they_are_cut_of_all_corpora_and_none_is_twice_in_a_batch(repeated):
    corpus = PreparedCorpus(Prepared(repeated / "mixed"), 0, texts=True)
    assert "text" not in dataclasses.replace(corpus, texts=False).batches(6, 3)[0]
    rows = [line.split(",") for line in (repeated / "triplets.csv").read_text().splitlines()[1:]]
    rows += [[line, line, ""] for line in (repeated / "lines.txt").read_text().splitlines()]
    order = permutation(len(rows), 3, ORDER, 0)(np.arange(len(rows)))
    for step in (0, 2, 1):
        batch, of_step = corpus.batches(6, 3)[step], order[6 * step : 6 * step + 6]
        texts = np.array([text for row in of_step for text in rows[row]], object)
        np.testing.assert_array_equal(equal(batch), texts[:, None] == texts)
        assert batch["text"].dtype == np.int32
    several = PreparedCorpus(Prepared(repeated / "triplets", repeated / "lines"), 0, texts=True)
    mixed = PreparedCorpus(Prepared(repeated / "mixed"), 0, texts=True)
    for step in range(3):
        whole = several.batches(6, 3)[step]["text"]
        np.testing.assert_array_equal(whole, mixed.batches(6, 3)[step]["text"])
        parts = [several.batches(6, 3).rows(step, slice(first, first + 2))["text"] for first in (0, 2, 4)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)
    corpus = PreparedCorpus(Prepared(repeated / "lines"), 0, texts=True, pairing=Pairing(1, fresh=False))
    for step in range(2):
        batch = corpus.batches(4, 3)[step]
        ids = batch["input_ids"].reshape(8, -1)
        assert (equal(batch) <= (ids[:, None] == ids).all(axis=2)).all() and equal(batch).sum() > 8
        assert (batch["text"][::2, 0] == batch["text"][::2, 1]).all()
    # Ten lines, each text twice, in batches of four: the same in every process, and from any step on.
    prepared = Prepared(repeated / "lines")
    corpus = PreparedCorpus(prepared, 0, texts=True, apart=hashed_texts(prepared))
    whole = corpus.batches(4, 3)
    usual = dataclasses.replace(corpus, apart=None).batches(4, 3)
    met = [0, 0]
    for step in range(8):
        batch = whole[step]
        for place, found in enumerate((batch, usual[step])):
            met[place] += 4 - len({*found["text"].ravel().tolist()})
        parts = [corpus.batches(4, 3).rows(step, slice(first, first + 2))["input_ids"] for first in (0, 2)]
        np.testing.assert_array_equal(np.concatenate(parts), batch["input_ids"])
    assert met[0] == 0 < met[1] and not whole.repeated() and not usual.repeated()
    for epoch in range(3):
        orders = [np.sort(each._order(epoch, np.arange(10))).tolist() for each in (whole, usual)]
        assert orders == [list(range(10))] * 2
