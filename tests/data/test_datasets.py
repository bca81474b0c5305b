import sys
from pathlib import Path

import pytest
from support.data import refused
from support.later import later

from simcse_jax.data.building.nli import read_pairs
from simcse_jax.data.building.reading import Tally
from simcse_jax.data.datasets import LIBRARIES
from simcse_jax.data.examples import PREFIXED, read_examples

datasets, tfds = later("datasets"), later("tensorflow_datasets")


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """`single`: a dataset saved on disk; `splits`: the same as the split `dev` of two."""
    folder = tmp_path_factory.mktemp("hub")
    data = datasets.Dataset.from_dict({"label": [0, 1, 2], "sentence": ["a", None, "c"], "x": [0] * 3, "y": [0] * 3})
    data.save_to_disk(folder / "single")
    train = data.map(lambda row: {"sentence": f"train {row['label']}"})
    datasets.DatasetDict({"train": train, "dev": data}).save_to_disk(folder / "splits")
    return folder


def save(folder: Path, names: list[str], labels: list[int]) -> str:
    """Saves pairs with numbers of labels, which have these names; gives the specification."""
    features = {"premise": datasets.Value("string"), "hypothesis": datasets.Value("string")}
    features["label"] = datasets.ClassLabel(names=names)
    pairs = {"premise": list("abcd")[: len(labels)], "hypothesis": list("efgh")[: len(labels)], "label": labels}
    datasets.Dataset.from_dict(pairs, datasets.Features(features)).save_to_disk(folder)
    return f"hf:{folder}"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A TensorFlow dataset `tiny_sentences` as ArrayRecord files, written without TensorFlow."""

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


def test_a_tensorflow_dataset_is_read_without_tensorflow_by_the_names_of_labels_and_columns(prepared, monkeypatch):
    examples = read_examples("tfds:tiny_sentences", {"anchor": "anchor", "positive": "positive"})
    assert sorted(examples.columns[0]) == ["0 é", "1 é", "2 é", "4 é"]
    assert (examples.columns[1], examples.blank) == (["p"] * 4, 1)
    assert "tensorflow" not in sys.modules
    examples = read_examples("tfds:tiny_sentences", labels=True)
    found = sorted(zip(examples.columns[0], examples.labels.tolist(), strict=True))
    assert found == [("0 é", 2), ("1 é", 0), ("2 é", 1), ("4 é", 0)]
    for split, count in (("test", 1), ("train[:2]", 2), ("train[40%:]+test", 4)):
        assert len(read_examples(f"tfds:tiny_sentences:{split}", {"anchor": "anchor"})) == count
    for rest, columns, parts in (
        ("tiny_sentences:nosuch", {}, ["cannot be read", "nosuch"]),
        ("no_such_dataset", {}, ["cannot be read", "not found"]),
        ("tiny_sentences", {"anchor": "label"}, ["row 1", "holds 1, not text"]),
    ):
        refused(f"tfds:{rest}", f"tfds:{rest}", *parts, **columns)
    for names in (["right", "left"], ["left", "label", "right"]):
        library = LIBRARIES["tfds:"]._replace(read=lambda specification, names=names: (names, iter([])))
        monkeypatch.setitem(PREFIXED, "tfds:", library)
        refused("tfds:x", "tfds:x", "which columns", *names)


def test_a_hub_dataset_saved_on_disk_is_read_by_the_names_of_its_labels_or_named(hub, tmp_path):
    for rest in ("single", "splits:dev", "splits::dev"):
        examples = read_examples(f"hf:{hub}/{rest}")
        assert (examples.columns, examples.blank) == ((["a", "c"],), 1)
    assert read_examples(f"hf:{hub}/splits").columns == (["train 0", "train 1", "train 2"],)
    for rest, part, columns in (
        ("splits:nosuch", "nosuch", {}),
        ("single:dev", "saved without splits; leave out 'dev'", {}),
        ("missing", "cannot be read", {}),
        ("single", ": row 1: the field 'label' holds 0", {"anchor": "label"}),
    ):
        refused(f"hf:{hub}/{rest}", f"hf:{hub}/{rest}", part, **columns)
    sound = {"bytes": b"not a sound", "path": None}
    data = datasets.Dataset.from_dict({"text": ["a b", "c d"], "sound": [sound, sound]})
    data.cast_column("sound", datasets.Audio()).save_to_disk(tmp_path / "saved")
    assert [*read_examples(f"hf:{tmp_path / 'saved'}", {"anchor": "text"}).columns[0]] == ["a b", "c d"]
    # CMNLI has neutral first, ANLI letters; RTE has two labels, and those of MRPC and PAWS are no labels of these.
    snli = save(tmp_path / "snli", ["entailment", "neutral", "contradiction"], [2, -1, 1])
    examples = read_examples(snli, labels=True)
    assert (examples.columns, examples.labels.tolist(), examples.unlabelled) == ((["a", "c"], ["e", "g"]), [2, 1], 1)
    labels = [0, 1, 1, -1]
    cmnli = save(tmp_path / "cmnli", ["neutral", "entailment", "contradiction"], labels)
    examples = read_examples(cmnli, {"label": "label"}, positives="entailment")
    assert (examples.columns, examples.unlabelled) == ((["b", "c"], ["f", "g"]), 1)
    assert [pair.label for pair in read_pairs([cmnli], Tally("pairs"))] == [1, 0, 0, None]
    anli = save(tmp_path / "anli", ["e", "n", "c"], labels)
    assert read_examples(anli, {"label": "label", "anchor": ""}, labels=True).labels.tolist() == [0, 1, 1]
    rte = save(tmp_path / "rte", ["entailment", "not_entailment"], labels)
    examples = read_examples(rte, {"label": "label"}, positives="entailment")
    assert (examples.columns, examples.unlabelled) == ((["a"], ["e"]), 3)
    for name, names, said in (("paws", ["0", "1"], "class 0"), ("mrpc", ["not_equivalent", "equivalent"], "not_equiv")):
        source = save(tmp_path / name, names, labels)
        refused(source, f"{source}: row 1: the field 'label' holds '{said}", label="label")
