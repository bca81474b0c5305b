import sys

import pytest
from support.data import refused
from support.later import later

from simcse_jax.data.building.nli import read_pairs
from simcse_jax.data.building.reading import Tally
from simcse_jax.data.datasets import LIBRARIES
from simcse_jax.data.examples import PREFIXED, read_examples

datasets = later("datasets")


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """`single`: a dataset saved on disk; `splits`: the same as the split `dev` of two."""
    folder = tmp_path_factory.mktemp("hub")
    data = datasets.Dataset.from_dict({"label": [0, 1, 2], "sentence": ["a", None, "c"], "x": [0] * 3, "y": [0] * 3})
    data.save_to_disk(folder / "single")
    train = data.map(lambda row: {"sentence": f"train {row['label']}"})
    datasets.DatasetDict({"train": train, "dev": data}).save_to_disk(folder / "splits")
    return folder


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ("single", (["a", "c"],)),
        ("splits", (["train 0", "train 1", "train 2"],)),
        ("splits:dev", (["a", "c"],)),
        ("splits::dev", (["a", "c"],)),
    ],
)
def test_a_hub_dataset_saved_on_disk_is_read(hub, rest, expected):
    examples = read_examples(f"hf:{hub}/{rest}")
    assert (examples.columns, examples.blank) == (expected, 3 - len(expected[0]))


@pytest.mark.parametrize(
    ("rest", "parts"), [("splits:nosuch", ["no split 'nosuch'", "train, dev"]), ("missing", ["could not be loaded"])]
)
def test_a_hub_dataset_that_cannot_be_loaded_is_named(hub, rest, parts):
    refused(f"hf:{hub}/{rest}", f"hf:{hub}/{rest}", *parts)


def test_a_number_in_a_hub_dataset_is_refused_by_row(hub):
    refused(f"hf:{hub}/single", f"hf:{hub}/single: row 1", "the field 'label' holds 0", anchor="label")


def test_numbers_of_a_hub_dataset_are_labels(tmp_path):
    features = {"premise": datasets.Value("string"), "hypothesis": datasets.Value("string")}
    features["label"] = datasets.ClassLabel(names=["entailment", "neutral", "contradiction"])
    pairs = {"premise": list("abc"), "hypothesis": list("def"), "label": [2, -1, 1]}  # as Hugging Face's snli
    datasets.Dataset.from_dict(pairs, datasets.Features(features)).save_to_disk(tmp_path / "snli")
    examples = read_examples(f"hf:{tmp_path}/snli", labels=True)
    assert (examples.columns, examples.labels.tolist(), examples.unlabelled) == ((["a", "c"], ["d", "f"]), [2, 1], 1)


def test_the_names_of_a_hub_dataset_s_labels_count_not_their_order(tmp_path):
    """CMNLI has neutral first, ANLI letters; RTE has two labels, and those of MRPC and PAWS are no labels of these."""

    def save(name: str, names: list[str]) -> str:
        features = {"premise": datasets.Value("string"), "hypothesis": datasets.Value("string")}
        features["label"] = datasets.ClassLabel(names=names)
        pairs = {"premise": list("abcd"), "hypothesis": list("efgh"), "label": [0, 1, 1, -1]}
        datasets.Dataset.from_dict(pairs, datasets.Features(features)).save_to_disk(tmp_path / name)
        return f"hf:{tmp_path}/{name}"

    cmnli = save("cmnli", ["neutral", "entailment", "contradiction"])
    examples = read_examples(cmnli, {"label": "label"}, positives="entailment")
    assert (examples.columns, examples.unlabelled) == ((["b", "c"], ["f", "g"]), 1)
    assert [pair.label for pair in read_pairs([cmnli], Tally("pairs"))] == [1, 0, 0, None]
    anli = read_examples(save("anli", ["e", "n", "c"]), {"label": "label", "anchor": ""}, labels=True)
    assert anli.labels.tolist() == [0, 1, 1]
    rte = read_examples(save("rte", ["entailment", "not_entailment"]), {"label": "label"}, positives="entailment")
    assert (rte.columns, rte.unlabelled) == ((["a"], ["e"]), 3)
    paws = save("paws", ["0", "1"])
    refused(paws, f"{paws}: row 1: the field 'label' holds 'class 0', which is not a label", label="label")
    mrpc = save("mrpc", ["not_equivalent", "equivalent"])
    refused(mrpc, f"{mrpc}: row 1: the field 'label' holds 'not_equivalent', which is not a label", label="label")


def test_a_hub_dataset_that_is_not_cached_is_refused_offline():
    refused("hf:no-one/no-such-dataset", "hf:no-one/no-such-dataset", "could not be loaded")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A TensorFlow dataset `tiny_sentences` as ArrayRecord files, written without TensorFlow."""
    import tensorflow_datasets as tfds

    class TinySentences(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            fields = {name: tfds.features.Text() for name in ("positive", "anchor")}
            fields["label"] = tfds.features.ClassLabel(names=["contradiction", "entailment", "neutral"])
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(fields))

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples(5), "test": self._generate_examples(1)}

        def _generate_examples(self, count):
            for number in range(count):
                yield number, {"anchor": f"{number} é", "positive": "" if number == 3 else "p", "label": number % 3}

    folder = tmp_path_factory.mktemp("tfds")
    TinySentences(data_dir=folder, file_format="array_record").download_and_prepare()
    tfds.core.add_data_dir(folder)


def test_a_tensorflow_dataset_is_read_without_tensorflow(prepared):
    examples = read_examples("tfds:tiny_sentences", {"anchor": "anchor", "positive": "positive"})
    assert sorted(examples.columns[0]) == ["0 é", "1 é", "2 é", "4 é"]
    assert (examples.columns[1], examples.blank) == (["p"] * 4, 1)
    assert "tensorflow" not in sys.modules


def test_the_order_of_a_tensorflow_dataset_s_columns_means_nothing(monkeypatch):
    for names in (["right", "left"], ["left", "label", "right"]):
        library = LIBRARIES["tfds:"]._replace(read=lambda specification, names=names: (names, iter([])))
        monkeypatch.setitem(PREFIXED, "tfds:", library)
        refused("tfds:x", "tfds:x", "which columns", *names)


def test_the_names_of_a_tensorflow_dataset_s_labels_count(prepared):
    examples = read_examples("tfds:tiny_sentences", labels=True)
    assert sorted(zip(examples.columns[0], examples.labels.tolist(), strict=True)) == [
        ("0 é", 2),
        ("1 é", 0),
        ("2 é", 1),
        ("4 é", 0),
    ]


@pytest.mark.parametrize(("split", "count"), [("test", 1), ("train[:2]", 2), ("train[40%:]+test", 4)])
def test_a_split_of_a_tensorflow_dataset_is_read(prepared, split, count):
    assert len(read_examples(f"tfds:tiny_sentences:{split}", {"anchor": "anchor"})) == count


@pytest.mark.parametrize(
    ("rest", "columns", "parts"),
    [
        ("tiny_sentences:nosuch", {}, ["could not be loaded", "nosuch"]),
        ("no_such_dataset", {}, ["could not be loaded", "not found"]),
        ("tiny_sentences", {"anchor": "label"}, ["row 1", "holds 1, not text", "data.columns"]),
        ("tiny_sentences", {"anchor": "txt"}, ["'txt'", "data.columns.anchor"]),
    ],
)
def test_a_bad_tensorflow_dataset_is_refused_by_name(prepared, rest, columns, parts):
    refused(f"tfds:{rest}", f"tfds:{rest}", *parts, **columns)


def test_sounds_and_pictures_next_to_the_texts_are_not_decoded(tmp_path):
    """For which a library may be missing."""
    sound = {"bytes": b"not a sound", "path": None}
    data = datasets.Dataset.from_dict({"text": ["a b", "c d"], "sound": [sound, sound]})
    data = data.cast_column("sound", datasets.Audio())
    data.save_to_disk(tmp_path / "saved")
    found = read_examples(f"hf:{tmp_path / 'saved'}", {"anchor": "text"})
    assert [*found.columns[0]] == ["a b", "c d"]
