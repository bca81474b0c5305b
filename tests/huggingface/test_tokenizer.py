import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
from support import CONFIGS, ROOT, write_model

from simcse_jax.errors import UserError
from simcse_jax.huggingface.tokenizer import Tokenizer, read_backend
from simcse_jax.models.config import EncoderConfig


def read(folder, kind="bert", **changes):
    return Tokenizer(folder, EncoderConfig.from_hugging_face(CONFIGS[kind] | changes, "test"))


@pytest.mark.slow
def test_transformers_is_not_imported_for_a_usual_model(minilm):
    slow = "{'transformers', 'scipy.stats'} & set(sys.modules)"  # each takes a second or more to import
    code = f"import sys; from simcse_jax import SimCSE; SimCSE({minilm!r}); print({slow})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr


def test_cut_sentences_are_reported_prompts_counted_and_a_tokenizer_in_another_process_is_the_same(tiny_bert):
    tokenizer = read(tiny_bert)
    tokens, cut = tokenizer.tokenize(["the cat", "the cat sat", "the cat sat on", "the cat " * 5], 5)
    assert [len(ids) for ids in tokens] == [4, 5, 5, 5] and cut == {2: 1, 3: 7}
    np.testing.assert_array_equal(tokens[1][:4], tokens[2][:4])
    assert [tokenizer.count_prompt(prompt, 8) for prompt in ("", "the ", "the cat ")] == [0, 2, 3]
    with pytest.raises(UserError, match="only 10 rows"):  # of another model
        read(tiny_bert, vocab_size=10)
    tokenizer = read(tiny_bert)
    sent = pickle.loads(pickle.dumps(tokenizer))
    assert sent._where == str(tiny_bert / "tokenizer.json")
    np.testing.assert_array_equal(sent(["the cat"], 16)[0], tokenizer(["the cat"], 16)[0])


def test_rows_are_padded_on_the_right_words_counted_and_lower_case_obeyed_where_it_is_asked_for(tmp_path):
    tokenizer = read(write_model(tmp_path / "m", "roberta"), "roberta")
    ids, mask = tokenizer.pad(tokenizer(["the cat", ""], 16), 5)
    assert ids[:, 3:].tolist() == [[2, 1], [1, 1]] and mask.tolist() == [[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]]
    assert ids.dtype == mask.dtype == np.int32
    assert [words.tolist() for words in tokenizer.words(["the cat", ""], 16)] == [[-1, 0, 1, -1], [-1, -1]]
    assert [tokenizer.first_tokens([" THE cat sat ", ""], n) for n in (1, 2)] == [[" THE", ""], [" THE cat", ""]]
    assert tokenizer.first_tokens([" THE cat sat "], 3) == [" THE cat sat "]
    folder = write_model(tmp_path / "bert", "bert")
    content = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(content | {"normalizer": None}))
    (upper,) = read(folder)(["THE cat"], 8)
    for normalizer in (None, {"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "Lowercase"}):
        (folder / "tokenizer.json").write_text(json.dumps(content | {"normalizer": normalizer}))
        (folder / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
        tokenizer = read(folder)
        (lower,) = tokenizer(["THE cat"], 8)
        np.testing.assert_array_equal(lower, tokenizer(["the cat"], 8)[0])
        assert upper[1] != lower[1] and upper[2] == lower[2]


class PanicException(BaseException):
    """As Rust's."""


@pytest.mark.parametrize("error", [Exception("bad word"), PanicException("bad word"), KeyboardInterrupt()])
def test_a_tokenizer_that_fails_is_named_and_an_interruption_is_no_failure(tiny_bert, error, monkeypatch):
    tokenizer = read(tiny_bert)
    works = tokenizer._backend.encode_batch_fast

    class Backend:
        enable_truncation = tokenizer._backend.enable_truncation

        def encode_batch_fast(self, sentences):
            if "dog" in sentences:
                raise error
            return works(sentences)

    monkeypatch.setattr(tokenizer, "_backend", Backend())
    assert len(tokenizer(["the", "cat"], 16)) == 2
    is_failure = not isinstance(error, KeyboardInterrupt)
    message = f"^{tiny_bert / 'tokenizer.json'}: its tokenizer fails on the sentence 'dog': bad word$"
    with pytest.raises(UserError if is_failure else KeyboardInterrupt, match=message if is_failure else None):
        tokenizer(["the", "dog", "cat"], 16)
    if is_failure:  # also while it is read
        monkeypatch.setattr(
            "simcse_jax.huggingface.tokenizer.read_usual", lambda folder: Backend().encode_batch_fast("dog")
        )
        with pytest.raises(UserError, match=r"tokenizer\.json: not a readable tokenizer: bad word"):
            read_backend(tiny_bert)
