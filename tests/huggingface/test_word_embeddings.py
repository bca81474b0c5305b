import json

import numpy as np
import pytest
from safetensors.numpy import save_file
from support.models import edit_json

from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import choose_pooler, load
from simcse_jax.huggingface.word_embeddings import FILE, TENSOR, read_word_embeddings, write_word_embeddings
from simcse_jax.huggingface.word_tokenizer import Vocabulary

VOCABULARY = Vocabulary(["PADDING_TOKEN", "a", "b"], True, frozenset(["the"]))
TABLE = np.float32([[0, 0], [1, 2], [3, 4]])


@pytest.fixture
def folder(tmp_path):
    """A model's folder; its first module are word vectors."""
    words = tmp_path / "0_WordEmbeddings"
    words.mkdir()
    write_word_embeddings(words, VOCABULARY, TABLE, 50)
    listed = [("0_WordEmbeddings", "WordEmbeddings"), ("1_Pooling", "Pooling")]
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in listed]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode": "mean"}')
    return tmp_path


def test_what_was_written_is_read(folder):
    found = read_word_embeddings(folder / "0_WordEmbeddings")
    assert (found.vocabulary, found.max_length) == (VOCABULARY, 50)
    np.testing.assert_array_equal(found.table, TABLE)
    model = load(str(folder))
    assert (model.pooler, model.max_length, model.config.num_layers) == ("avg", 50, 0)


def test_modules_after_them_are_read_and_other_poolings_are_not(folder):
    modules = json.loads((folder / "modules.json").read_text())
    more = [*modules, {"path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}]
    (folder / "modules.json").write_text(json.dumps(more))
    assert load(str(folder)).normalize
    (folder / "modules.json").write_text(json.dumps([*modules, {"path": "2", "type": "x.WordWeights"}]))
    with pytest.raises(UserError, match=r"the module x\.WordWeights is not supported"):
        choose_pooler(load(str(folder)), None)
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "max"}')
    with pytest.raises(UserError, match=r"modules\.json: of the poolings of word vectors only the mean is supported"):
        choose_pooler(load(str(folder)), None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: edit_json(f / FILE, tokenizer_class="x.PhraseTokenizer"), "only WhitespaceTokenizer is supported"),
        (lambda f: edit_json(f / FILE, max_seq_length=0), "max_seq_length is 0; it must be a whole number, 3 or more"),
        (lambda f: save_file({"x": TABLE}, f / "model.safetensors"), f"the tensor '{TENSOR}' is missing"),
        (lambda f: save_file({TENSOR: TABLE[:2]}, f / "model.safetensors"), r"has shape \(2, 2\), but .* has 3 words"),
        (
            lambda f: save_file({TENSOR: TABLE.astype(int)}, f / "model.safetensors"),
            "values that are no finite numbers",
        ),
        (lambda f: save_file({TENSOR: TABLE * np.inf}, f / "model.safetensors"), "values that are no finite numbers"),
        (lambda f: (f / FILE).write_text("{"), "not valid JSON"),
    ],
)
def test_a_damaged_folder_is_refused(folder, change, message):
    with np.errstate(invalid="ignore"):
        change(folder / "0_WordEmbeddings")
    with pytest.raises(UserError, match=message):
        load(str(folder))
