import numpy as np
import pytest
from support import finish, lines, start_processes, train_args, without_speed, write_model
from support.configs import short_run
from support.corpora import in_memory, prepare
from support.object_store import NEEDS_GCSFS
from support.resuming import trained_and_resumed

from simcse_jax.config.checks import validate
from simcse_jax.data.batches import Batches
from simcse_jax.data.corpus.manifest import read_manifest
from simcse_jax.data.draws import ORDER, permutation
from simcse_jax.errors import UserError
from simcse_jax.runs.loading import load_model
from simcse_jax.training.prepared import open_prepared
from simcse_jax.training.reading import read_corpus
from simcse_jax.training.run import train_and_evaluate
from simcse_jax.training.setup import data_spec

LABELLED = {"objective__softmax_nli__weight": 1.0, "objective__info_nce__weight": 0.0, "model__pooler": "avg"}
SCORED = {"objective__cosent__weight": 1.0, "objective__info_nce__weight": 0.0}
GUESSED = {"data__augment__name": "mlm", "data__augment__mlm_model": "x"}
PROJECTED = {"projector__widths": "2D,D", "projector__objectives": ("info_nce",)}


@pytest.fixture(scope="module")
def prepared(shared, tiny_bert, corpus):
    """`corpus["csv"]`, prepared: what `tests/corpus` calls `triplets`."""
    return shared("prepared-triplets", lambda folder: prepare(folder, tiny_bert, corpus["csv"], keep_text=True))


@pytest.fixture
def config_of(prepared, tiny_bert, corpus):
    def of(*names, **fields):
        return short_run(tiny_bert, ",".join(map(str, names or [prepared])), corpus["dev"], **fields)

    return of


def read(config):
    model = load_model(config.model.init_from)
    return read_corpus(data_spec(validate(config)), model, model.tokenizer)


def opened(config):
    model = load_model(config.model.init_from)
    return open_prepared(data_spec(config), model, model.tokenizer)


def close(found, expected):
    found, expected = (without_speed(lines(workdir)) for workdir in (found, expected))
    assert [line.keys() for line in found] == [line.keys() for line in expected]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(list(one.values()), list(other.values()), rtol=1e-5, atol=1e-5)


def test_batches_are_those_of_the_same_rows_in_memory(config_of, prepared, tiny_bert, corpus, monkeypatch, capsys):
    found = read(config_of())
    assert f"{prepared}: 40 triplets, prepared\n" in capsys.readouterr().out and found.num_rows == 40
    assert found.fingerprint == read_manifest(prepared).fingerprint
    monkeypatch.setattr(Batches, "_examples", lambda self, epoch: permutation(40, 42, ORDER, epoch)(np.arange(40)))
    ours, theirs = found.batches(8, 42), in_memory(tiny_bert, corpus["csv"]).batches(8, 42)
    for step in range(7):  # of two epochs
        for name in ("input_ids", "attention_mask", "index"):
            np.testing.assert_array_equal(ours[step][name], theirs[step][name])


@pytest.mark.slow
def test_a_batch_of_the_longest_rows_is_not_cut(config_of, tiny_bert, tmp_path):
    order = permutation(100, 42, ORDER, 0)(np.arange(100))
    words = np.ones(100, int)
    words[order[16:24]] = 40  # the third batch
    (tmp_path / "text.txt").write_text("".join("the cat sat " * (count // 3 + 1) + "\n" for count in words))
    prepare(tmp_path / "corpus", tiny_bert, tmp_path / "text.txt")
    for name, unpad in (("with", False), ("without", True)):
        train_and_evaluate(config_of(tmp_path / "corpus", train__unpad=unpad), str(tmp_path / name))
    close(tmp_path / "without", tmp_path / "with")


def test_what_does_not_fit_the_corpus_is_refused(config_of, prepared, corpus, tmp_path):
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "data-00000.arrow").touch()
    other = write_model(tmp_path / "roberta", "roberta")
    foreign = rf"{prepared} is a prepared corpus, {corpus['csv']} is not"
    for names, fields, named in (
        ((), {"data__max_length": 32}, "config.data.max_length: 32 .* 16 and 16"),
        ((), {"data__lengths__anchor": 8}, "config.data.lengths: 8 .* 16 and 16"),
        ((), {"data__columns__anchor": "sent0"}, "config.data.columns.anchor.*--columns"),
        ((), {"data__prompts__anchor": "q: "}, "config.data.prompts.anchor.*--prompt"),
        ((), {"data__augment__name": "crop"}, "config.data.augment.name.*--augment"),
        ((), GUESSED, "config.data.augment.name.*files themselves"),
        ((), {"data__mixed": True}, "config.data.mixed.*--mixed"),
        ((), {"data__positives": "all"}, "config.data.positives.*--positives"),
        ((), {"data__positives": "spans"}, "config.data.positives.*files themselves"),
        ((), {"data__subsample": 41}, "data.subsample=41: must be from 1 to 40"),
        ((), {"train__batch_size": 48}, "40 examples"), ((), LABELLED, "without labels"),
        ((), {"objective__gist__weight": 1.0, "teacher__model": "x"}, "teacher"), ((), SCORED, "no scores"),
        ((), {"objective__supcon__weight": 1.0}, "no classes"),
        ((), {"model__init_from": str(other)}, "another tokenizer .*--model"), ((prepared, corpus["csv"]), {}, foreign),
        ((corpus["csv"], prepared), {}, foreign), ((tmp_path / "half",), {}, rf"{tmp_path / 'half'}: is not complete"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=named):
            read(config_of(*names, **fields))


def test_texts_not_kept_and_rows_that_lack_columns_cannot_be_compared(config_of, tiny_bert, corpus, tmp_path, capsys):
    prepare(tmp_path / "tokens", tiny_bert, corpus["csv"])
    for name, value in (("equal_texts", "left_out"), ("no_duplicates", True)):
        with pytest.raises(UserError, match=f"config.data.{name}.*--keep-text"):
            read(config_of(tmp_path / "tokens", **{f"data__{name}": value}))
    assert not read(config_of(tmp_path / "tokens")).texts and "prepare it with --keep-text" in capsys.readouterr().out
    assert not read(config_of(tmp_path / "tokens", data__equal_texts="negatives")).texts
    assert "--keep-text" not in capsys.readouterr().out
    found = read(config_of(data__no_duplicates=True))  # of a corpus with its text
    assert found.texts and len(found.apart) == 40
    prepare(tmp_path / "mixed", tiny_bert, f"{corpus['txt']},{corpus['csv']}", mixed=True)
    prepare(tmp_path / "alike", tiny_bert, corpus["csv"], mixed=True)
    mixed = config_of(tmp_path / "mixed", **PROJECTED)
    with pytest.raises(UserError, match=rf"{tmp_path / 'mixed'}, prepared with --mixed: batch norm"):
        read(mixed)
    mixed.projector.widths, mixed.objective.replaced_token_detection.weight = "", 0.1
    with pytest.raises(UserError, match=r"prepared with --mixed: objective\.replaced_token_detection"):
        opened(mixed)
    assert read(config_of(tmp_path / "alike", **PROJECTED)).num_rows == 40


def test_several_corpora_that_do_not_fit_are_told_what_helps(config_of, prepared, tiny_bert, corpus, tmp_path):
    labelled, one_source = tmp_path / "labelled.csv", {"data__batching": "one_source"}
    labelled.write_text("sent0,sent1,label\n" + "a cat,a dog,0\n" * 9)
    short, labels, pairs = (tmp_path / name for name in ("short", "labels", "pairs"))
    prepare(short, tiny_bert, corpus["csv"], max_length=12)
    prepare(labels, tiny_bert, labelled, labels=True)
    prepare(pairs, tiny_bert, labelled)
    for names, fields, named in (
        ((prepared, short), {}, f"{short} was prepared with 12"),
        ((pairs, labels), LABELLED, f"{pairs}: was prepared without labels"),
        ((prepared, pairs), {}, "data.mixed=True"),
        ((prepared, short), one_source, f"{short} was prepared with 12"),
        ((prepared, pairs), {**one_source, "train__batch_size": 16}, f"^{pairs}: 9 examples"),
        ((prepared, labels), {**one_source, "data__subsample": 9}, "config.data.subsample=9: "),
    ):
        with pytest.raises(UserError, match=named):
            read(config_of(*names, **fields))
    assert [part.num_rows for part in read(config_of(pairs, labels, **one_source)).parts] == [9, 9]


@NEEDS_GCSFS
def test_a_corpus_in_a_bucket_needs_a_local_cache(store, config_of, prepared, tmp_path):
    for path in prepared.iterdir():
        store.put(f"corpus/{path.name}", path.read_bytes())
    with pytest.raises(UserError, match=r"gs://bucket/corpus: .*data\.local_cache"):
        read(config_of("gs://bucket/corpus"))
    for name in ("gs://none/corpus", "gs://bucket/none"):
        with pytest.raises(UserError, match=name):
            read(config_of(name))
    assert read(config_of("gs://bucket/corpus", data__local_cache=str(tmp_path / "ssd"))).num_rows == 40
    assert len(list((tmp_path / "ssd").glob("corpus-*/data-*.arrow"))) == 1


@pytest.mark.slow
def test_a_run_that_was_killed_ends_with_the_same_bits_also_with_a_mean_in_bfloat16(config_of, tmp_path):
    trained_and_resumed(config_of(train__mu_dtype="bfloat16"), tmp_path)


@pytest.mark.slow
def test_two_processes_train_as_one_that_has_all_devices(prepared, tiny_bert, corpus, tmp_path):
    for count in (1, 2):
        args = train_args(tiny_bert, prepared, corpus["dev"], tmp_path / str(count), "--config.parallel.devices=0")
        for code, out, err in finish(start_processes(args, count=count, devices=2 // count)):
            assert code == 0, out + err
    close(tmp_path / "2", tmp_path / "1")
