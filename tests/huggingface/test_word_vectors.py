import gzip
import json
import pickle

import numpy as np
import pytest
from safetensors.numpy import save_file
from support import WORDS, call, train_args, write_vectors
from support.models import edit_json

from simcse_jax import SimCSE
from simcse_jax.errors import UserError
from simcse_jax.huggingface import word_vectors as module
from simcse_jax.huggingface.load import choose_pooler, load
from simcse_jax.huggingface.word_vectors import (
    ENGLISH_STOP_WORDS,
    FILE,
    TENSOR,
    Vocabulary,
    WordTokenizer,
    read_glove,
    read_vocabulary,
    read_word_embeddings,
    write_word_embeddings,
)
from simcse_jax.runs.loading import load_model

ROWS = "the 0.5 -1.25e-1\ncat 1 2\nCafé .5 7.\n"


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.fixture
def file(tmp_path):
    return tmp_path / "vectors.txt"


def same(found):
    assert found.words == ["PADDING_TOKEN", "the", "cat", "Café"]
    assert found.table.dtype == np.float32
    np.testing.assert_array_equal(found.table, np.float32([[0, 0], [0.5, -0.125], [1, 2], [0.5, 7]]))


@pytest.mark.parametrize("block", [1, 3, 10, 1 << 24])
@pytest.mark.parametrize(
    "text",
    [
        ROWS,
        ROWS.rstrip("\n"),
        ROWS.replace("\n", " \r\n"),
        f"3 2\n{ROWS}",
        ROWS + "\n\n",
        b"\xef\xbb\xbf" + ROWS.encode(),
        b"\xef\xbb\xbf" + f"3 2\n{ROWS}".encode(),
        gzip.compress(ROWS.encode()),
    ],
    ids=[
        "plain",
        "no last line end",
        "spaces and CR at the ends",
        "word2vec",
        "empty lines",
        "byte-order mark",
        "byte-order mark, word2vec",
        "gzip",
    ],
)
def test_the_format(file, text, block, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", block)
    same(read_glove(write(file, text)))


SPACES = ROWS.replace("cat", ". . 1 2\nat name@domain.com 3 4\nroom 101 a 5 6\ncat")
AGAIN = ROWS.replace("1 2", "9 9") + "dog 3 4\ncat 8 8\ncat 1 2\n"
LEFT_OUT = "leaves out words that have spaces (3), since no token of a sentence has any"


@pytest.mark.parametrize("block", [1, 10, 1 << 24])
@pytest.mark.parametrize(
    "text, warned",
    [
        (SPACES, [LEFT_OUT]),
        (f"6 2\n{SPACES}", [LEFT_OUT]),
        (AGAIN, ["has words on more than one line (2); the last line of each counts"]),
        (f"6 2\n{AGAIN}", ["has words on more than one line (2); the last line of each counts"]),
        (f"12 2\n{SPACES}{AGAIN}", [LEFT_OUT, "has words on more than one line (5); the last line of each counts"]),
    ],
)
def test_words_with_spaces_and_words_again_are_counted(file, text, warned, block, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", block)
    with pytest.warns(UserWarning) as found:
        vectors = read_glove(write(file, text))
    assert [str(each.message) for each in found] == [f"{file}: {each}" for each in warned]
    same(vectors._replace(words=vectors.words[:4], table=vectors.table[:4]))
    assert vectors.words[4:] == ["dog"] * ("dog" in text) and len(vectors.table) == len(vectors.words)


WRONG = {
    "an empty file": ("", "has no word vectors"),
    "blank lines": ("\n \n", "has no word vectors"),
    "a header alone": ("3 2\n", "has no word vectors"),
    "a word alone": ("the\n", "line 1: 0 numbers; a vector has 2 or more"),
    "a number for each word": ("the 1\ncat 2\n", "line 1: 1 numbers; a vector has 2 or more"),
    "a huge header": ("3 99999999999\n" + ROWS, "line 1: 99999999999 numbers"),
    "fewer words than announced": (
        "4 2\n" + ROWS,
        "line 1 announces 4 words, but 3 follow; it may have been cut short",
    ),
    "more words than announced": (
        "2 2\n" + ROWS,
        "line 1 announces 2 words, but 3 follow; correct or remove that line",
    ),
    "a shorter line": (ROWS + "dog 1\n", "line 4: has 1 numbers, and others 2"),
    "a longer line": (ROWS + "dog 1 2 3\n", "line 4: has 3 numbers, and others 2"),
    "one number too few and one too many": ("the 1 2\na 1\ncat 1 2 3\n", "line 2: has 1 numbers, and others 2"),
    "two spaces": (ROWS + "dog  1 2\n", "line 4: has 3 numbers, and others 2"),
    "commas": ("the,0.5,1\n", "line 1: 0 numbers"),
    "a decimal comma": (ROWS + "dog 1 2,5\n", "line 4: '2,5' is not a finite number"),
    "a word for a number": ("the 1 2\ncat 1 two\n", "line 2: 'two' is not a finite number"),
    "NaN": ("the 1 nan\n", "line 1: 'nan' is not a finite number"),
    "infinite": ("the 1 2\ncat inf 1\n", "line 2: 'inf' is not a finite number"),
    "too large for float32": ("the 1 2\ncat 1e39 1\n", "line 2: '1e39' is not a finite number"),
    "underscores": ("the 1 1_0\n", "line 1: '1_0' is not a finite number"),
    "a tab": ("the 1\t2 3\n", r"line 1: '1\\t2' is not a finite number"),
    "no word": (ROWS + " 1 2\n", "line 4: begins with a space, so it has no word"),
    "the padding": ("PADDING_TOKEN 1 2\n", "line 1: has the word PADDING_TOKEN, which stands for padding"),
    "Latin-1": (ROWS.encode() + b"caf\xe9 1 2\n", r"line 4: is not UTF-8 \(byte 0xe9\)"),
    "binary": (b"the 1 2\n\x00\x01\xff 1 2\n", r"line 2: is not UTF-8 \(byte 0xff\)"),
    "gzip, cut short": (gzip.compress(ROWS.encode())[:-12], "cannot be read"),
    "gzip, damaged": (gzip.compress(ROWS.encode())[:12] + b"xx", "cannot be read"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused_naming_the_line(file, name):
    text, message = WRONG[name]
    with pytest.raises(UserError, match=rf"^{file}: {message}"):
        read_glove(write(file, text))


def test_what_is_no_file(tmp_path, file):
    for path, message in ((tmp_path, "is a folder; name a file of word vectors"), (file, "no such file; name a file")):
        with pytest.raises(UserError, match=f"^{path}: {message}"):
            read_glove(path)


def test_a_large_file_in_many_blocks(file, monkeypatch):
    words = [f"w{number}" for number in range(3000)]
    write_vectors(file, words, 5)
    monkeypatch.setattr(module, "BLOCK", 4096)
    found = read_glove(file)
    assert found.words[1:] == words and found.table.shape == (3001, 5)
    last = file.read_text().splitlines()[-1].split()[1:]
    np.testing.assert_array_equal(found.table[-1], np.float32(last))


SENTENCES = ["The cat sat.", "a BIRD, in the tree!", "", "qqq zzz", "red red (old) home"]


def test_the_average_of_the_words_that_are_known(glove, tmp_path):
    vectors = read_glove(load_model(glove).folder)
    row = dict(zip(vectors.words, vectors.table, strict=True))
    model = SimCSE(f"glove+stopwords:{glove.removeprefix('glove:')}")
    expected = [
        np.mean([row["the"], row["cat"], row["sat"]], axis=0),
        np.mean([row["a"], row["bird"], row["in"], row["the"], row["tree"]], axis=0),
        np.zeros(6),
        np.zeros(6),
        np.mean([row["red"], row["red"], row["old"], row["home"]], axis=0),
    ]
    np.testing.assert_allclose(model.encode(SENTENCES), expected, atol=1e-6)
    np.testing.assert_allclose(
        SimCSE(glove).encode("The cat sat."), np.mean([row["cat"], row["sat"]], axis=0), atol=1e-6
    )
    assert "glove, 0 layers, dimension 6, at most 4096 tokens, pooler avg" in repr(model)
    assert model.identity() != SimCSE(glove).identity()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).encode(SENTENCES), model.encode(SENTENCES))
    with pytest.warns(UserWarning, match="1 sentence was longer than 3 tokens"):
        np.testing.assert_allclose(model.encode("cat " * 4, max_length=3), row["cat"], atol=1e-6)


def test_a_run_without_steps_is_scored_exported_and_read_again(glove, corpus, tmp_path):
    as_it_is = ("train.epochs=0", "train.max_steps=0", "model.pooler=avg", "model.mlp=none")
    args = train_args(glove, corpus["txt"], corpus["dev"], tmp_path / "run", *(f"--config.{f}" for f in as_it_is))
    done = call("train", *args)
    assert done.returncode == 0 and "best checkpoint: step 0" in done.stdout, done.stderr
    done = call("export", "--workdir", tmp_path / "run", "--output", tmp_path / "export")
    assert done.returncode == 0 and "AutoModel" not in done.stdout, done.stderr
    card = (tmp_path / "export" / "README.md").read_text()
    assert "Made from `glove:vectors.txt`" in card and "AutoModel" not in card and "Nothing was trained" in card
    expected = SimCSE(glove).encode(SENTENCES)
    for name in ("run", "export"):
        np.testing.assert_array_equal(SimCSE(tmp_path / name).encode(SENTENCES), expected)
    with pytest.raises(UserError, match="belongs to a run that scored word vectors; give the run's own folder"):
        load_model(str(tmp_path / "run" / "model"))
    again = call("export", "--workdir", tmp_path / "run", "--output", tmp_path / "export")
    assert again.returncode == 0, again.stderr
    words = tmp_path / "run" / "model" / "whitespacetokenizer_config.json"
    words.write_text(words.read_text().replace('"cat", ', ""))
    with pytest.raises(UserError, match=f"{words}: damaged: it has 21 words, the checkpoint 22"):
        load_model(str(tmp_path / "run"))


def test_commands_take_it(glove, corpus, tmp_path):
    for command, *more in (
        ("evaluate", "--model", glove, "--data", corpus["dev"]),
        ("encode", "--model", glove, "--data", corpus["txt"], "--output", tmp_path / "out.npy"),
        ("search", "--model", glove, "--data", corpus["txt"], "--query", "red cat"),
    ):
        done = call(command, *more)
        assert done.returncode == 0, done.stderr
    assert np.load(tmp_path / "out.npy").shape == (40, 6)


@pytest.mark.parametrize(
    ("command", "more", "message"),
    [
        ("train", (), "training (train.epochs and train.max_steps other than 0) needs a transformer"),
        ("train", ("--config.train.max_steps=0", "--config.train.epochs=0"), "the pooler cls needs a transformer"),
        (
            "train",
            (
                "--config.train.max_steps=0",
                "--config.train.epochs=0",
                "--config.model.pooler=avg",
                "--config.eval.pooler=max",
            ),
            "the pooler max needs a transformer",
        ),
        (
            "train",
            ("--config.train.max_steps=0", "--config.train.epochs=0", "--config.objective.mlm.weight=0.1"),
            "objective.mlm.weight needs a transformer",
        ),
        ("evaluate", ("--pooler", "avg_top2"), "the pooler avg_top2 needs a transformer"),
        ("evaluate", ("--num-layers", "1"), "the model has 0 layers"),
        ("analyze", (), "an analysis of tokens needs a transformer"),
        ("aot", (), "a step of training needs a transformer"),
    ],
)
def test_what_needs_a_transformer_is_refused(glove, corpus, tmp_path, command, more, message):
    given = {
        "train": train_args(glove, corpus["txt"], corpus["dev"], tmp_path / "run"),
        "evaluate": ["--model", glove, "--data", corpus["dev"]],
        "analyze": ["--models", glove, "--data", corpus["txt"], "--output", tmp_path / "out"],
        "aot": ["--config", "unsup_bert", "--topology", "v5e:2x2", f"--config.model.init_from={glove}"],
    }[command]
    done = call(command, *given, *more)
    assert done.returncode == 2 and message in done.stderr, done.stderr
    assert not (tmp_path / "run").exists() and not (tmp_path / "out").exists()


def test_the_file_is_not_overwritten(corpus, tmp_path):
    path = write_vectors(tmp_path / "vectors.npy")
    done = call("encode", "--model", f"glove:{path}", "--data", corpus["txt"], "--output", path)
    assert done.returncode == 2 and "is the file of --model" in done.stderr
    assert path.read_text().startswith(WORDS[0])


@pytest.mark.slow
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("stop_words", [False, True])
def test_embeddings_are_those_of_sentence_transformers(tmp_path, lower, stop_words):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    from sentence_transformers import models
    from sentence_transformers.models.tokenizer import WhitespaceTokenizer

    words = ["the", "The", "cat", "Dog", "u.s.", "U.S", "don't", ",", "café", "i", "\u3000x", "#hash", "mat"]
    path = write_vectors(tmp_path / "vectors.txt", words, 16)
    sentences = [
        "The THE the.",
        "A Dog, the dog (DOG) on the mat",
        "ice cream",
        "U.S. u.s. U.s.",
        "Don't , ,, I i #hash #HASH!",
        "",
        "qq",
        "CAFÉ",
    ]
    tokenizer = WhitespaceTokenizer(do_lower_case=lower, **({"stop_words": []} if stop_words else {}))

    def of_theirs(path):
        modules = [models.WordEmbeddings.from_text_file(str(path), tokenizer=tokenizer), models.Pooling(16)]
        return sentence_transformers.SentenceTransformer(modules=modules, device="cpu")

    options = f"{'+lower' * lower}{'+stopwords' * stop_words}"
    odd = write_vectors(tmp_path / "odd.txt", ["cat", *words, "ice cream", "mat", "cat"], 16)
    with pytest.warns(UserWarning, match="words that have spaces|on more than one line"):
        found = SimCSE(f"glove{options}:{odd}").encode(sentences)
    np.testing.assert_allclose(found, of_theirs(odd).encode(sentences), atol=1e-6)
    theirs = of_theirs(path)
    name = f"glove{options}:{path}"
    expected = theirs.encode(sentences)
    np.testing.assert_allclose(SimCSE(name).encode(sentences), expected, atol=1e-6)
    theirs.save(str(tmp_path / "theirs"))
    np.testing.assert_allclose(SimCSE(tmp_path / "theirs").encode(sentences), expected, atol=1e-6)
    as_it_is = ("train.epochs=0", "train.max_steps=0", "model.pooler=avg", "model.mlp=none")
    write_vectors(tmp_path / "train.txt")
    args = train_args(name, tmp_path / "train.txt", "", tmp_path / "run", *(f"--config.{f}" for f in as_it_is))
    assert call("train", *args).returncode == 0
    assert call("export", "--workdir", tmp_path / "run", "--output", tmp_path / "export").returncode == 0
    ours = sentence_transformers.SentenceTransformer(str(tmp_path / "export"), device="cpu")
    np.testing.assert_allclose(ours.encode(sentences), expected, atol=1e-6)


KNOWN = ["PADDING_TOKEN", "the", "cat", "Cat", "u.s.", "don't", "."]


def ids(sentence, **options):
    (found,) = WordTokenizer(Vocabulary(KNOWN, **options))([sentence], 100)
    return found.tolist()


@pytest.mark.parametrize(
    ("sentence", "options", "expected"),
    [
        ("the cat", {}, [1, 2]),
        ("The Cat CAT, cat.", {}, [1, 3, 2, 2]),
        ("The Cat CAT, cat.", {"lower_case": True}, [1, 2, 2, 2]),
        ("u.s. U.S. (don't) . .. unknown", {}, [4, 5, 6]),
        ("The THE the. cat", {"stop_words": frozenset(["the"])}, [2]),
        ("Cat cat", {"stop_words": frozenset(["cat"])}, [3]),
        ("\tthe\u3000cat\n", {}, [1, 2]),
        ("", {}, []),
    ],
)
def test_words_are_looked_up_as_they_are_then_without_punctuation_then_in_lower_case(sentence, options, expected):
    assert ids(sentence, **options) == expected


def test_sentences_are_cut_and_padded():
    tokenizer = WordTokenizer(Vocabulary(KNOWN))
    rows, cut = tokenizer.tokenize(["the cat the", "the", "the cat"], 2)
    assert [row.tolist() for row in rows] == [[1, 2], [1], [1, 2]] and cut == {0: 1}
    padded, mask = tokenizer.pad(rows, 3)
    assert padded.tolist() == [[1, 2, 0], [1, 0, 0], [1, 2, 0]] and mask.sum(1).tolist() == [2, 1, 2]
    assert tokenizer.count_prompt("the the x", 9) == 2 and tokenizer.token(2) == "cat"
    assert [part.tolist() for part in tokenizer.words(["the cat", ""], 9)] == [[0, 1], []]


def test_it_is_saved_and_pickled(tmp_path):
    vocabulary = Vocabulary(KNOWN, True, frozenset(["a", "the"]))
    tokenizer = WordTokenizer(vocabulary)
    tokenizer.save(tmp_path / "words.json")
    assert read_vocabulary(tmp_path / "words.json") == vocabulary
    assert pickle.loads(pickle.dumps(tokenizer)).content() == tokenizer.content()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab": None}, "vocab is None, not a list of words"),
        ({"vocab": ["a", 1]}, "vocab is .*, not a list of words"),
        ({"vocab": ["a", "a"]}, "vocab has a word twice"),
        ({"stop_words": "the"}, "stop_words is 'the', not a list of words"),
        ({"do_lower_case": "no"}, "do_lower_case is 'no', neither true nor false"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, changes, message):
    path = tmp_path / "words.json"
    path.write_text(json.dumps(json.loads(WordTokenizer(Vocabulary(KNOWN)).content()) | changes))
    with pytest.raises(UserError, match=f"^{path}: {message}"):
        read_vocabulary(path)


def test_common_words_are_there_and_others_are_not():
    assert {"the", "a", "of", "\\", '"'} <= ENGLISH_STOP_WORDS and "cat" not in ENGLISH_STOP_WORDS
    assert all(word == word.strip() and word for word in ENGLISH_STOP_WORDS)


@pytest.mark.slow
def test_they_are_those_of_sentence_transformers():
    theirs = pytest.importorskip("sentence_transformers.sentence_transformer.modules.tokenizer.word")
    assert set(theirs.ENGLISH_STOP_WORDS) == ENGLISH_STOP_WORDS


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
    vocabulary, table, max_length = read_word_embeddings(folder / "0_WordEmbeddings")
    assert (vocabulary, max_length) == (VOCABULARY, 50)
    np.testing.assert_array_equal(table, TABLE)
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
            "values that are NaN or infinite",
        ),
        (lambda f: save_file({TENSOR: TABLE * np.inf}, f / "model.safetensors"), "values that are NaN or infinite"),
        (lambda f: (f / FILE).write_text("{"), "not valid JSON"),
    ],
)
def test_a_damaged_folder_is_refused(folder, change, message):
    with np.errstate(invalid="ignore"):
        change(folder / "0_WordEmbeddings")
    with pytest.raises(UserError, match=message):
        load(str(folder))
