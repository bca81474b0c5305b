import dataclasses
import gzip
import json
import pickle

import numpy as np
import pytest
from safetensors.numpy import save_file
from support import WORDS, call, refused, train_args, write_vectors
from support.models import edit_json

from simcse_jax import SimCSE
from simcse_jax.errors import UserError
from simcse_jax.huggingface import word_vectors as module
from simcse_jax.huggingface.load import choose_pooler, load
from simcse_jax.huggingface.word_vectors import FILE, TENSOR, Vocabulary, WordTokenizer, read_glove, read_vocabulary
from simcse_jax.huggingface.write import write_model
from simcse_jax.runs.loading import load_model

ROWS = "the 0.5 -1.25e-1\ncat 1 2\nCafé .5 7.\n"


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.fixture
def file(tmp_path):
    return tmp_path / "vectors.txt"


def same(found):
    assert found.words == ["PADDING_TOKEN", "the", "cat", "Café"] and found.table.dtype == np.float32
    np.testing.assert_array_equal(found.table, np.float32([[0, 0], [0.5, -0.125], [1, 2], [0.5, 7]]))


FORMATS = [ROWS, ROWS.rstrip("\n"), ROWS.replace("\n", " \r\n"), f"3 2\n{ROWS}", ROWS + "\n\n"]
FORMATS += [b"\xef\xbb\xbf" + text.encode() for text in (ROWS, f"3 2\n{ROWS}")] + [gzip.compress(ROWS.encode())]
SPACES = ROWS.replace("cat", ". . 1 2\nat name@domain.com 3 4\nroom 101 a 5 6\ncat")
AGAIN = ROWS.replace("1 2", "9 9") + "dog 3 4\ncat 8 8\ncat 1 2\n"
LEFT_OUT = "leaves out words that have spaces (3), since no token of a sentence has any"


def test_the_format_and_words_with_spaces_and_words_again_are_counted(file):
    """Without a last line end, with spaces and CR at the ends, word2vec's, empty lines, a byte-order mark, gzip."""
    for text in FORMATS:
        same(read_glove(write(file, text)))
    again = "has words on more than one line ({}); the last line of each counts".format
    for text, warned in (
        *((SPACES, [LEFT_OUT]), (f"6 2\n{SPACES}", [LEFT_OUT]), (AGAIN, [again(2)]), (f"6 2\n{AGAIN}", [again(2)])),
        (f"12 2\n{SPACES}{AGAIN}", [LEFT_OUT, again(5)]),
    ):
        with pytest.warns(UserWarning) as found:
            vectors = read_glove(write(file, text))
        assert [str(each.message) for each in found] == [f"{file}: {each}" for each in warned]
        same(vectors._replace(words=vectors.words[:4], table=vectors.table[:4]))
        assert vectors.words[4:] == ["dog"] * ("dog" in text) and len(vectors.table) == len(vectors.words)


ZIPPED = gzip.compress(ROWS.encode())
WRONG = {  # by what the refusal names
    "has no word vectors": ["", "\n \n", "3 2\n"],
    "line 1: (0|1|99999999999) numbers": ["the\n", "the,0.5,1\n", "the 1\ncat 2\n", "3 99999999999\n" + ROWS],
    "line 1 announces [24] words, but 3 follow": [f"{count} 2\n{ROWS}" for count in (2, 4)],
    "line 4: has not 2 finite numbers": [f"{ROWS}dog {x}\n" for x in ("1", "1 2,5")],
    "line 2: has not 2 finite numbers": [f"the 1 2\ncat {x}\n" for x in ("1 two", "inf 1", "1e39 1", "1")],
    "line 1: has not 2 finite numbers": ["the 1 nan\n", "the 1 1_0\n", "the 1 2\t3\n"],
    "line 4: begins with a space": [ROWS + " 1 2\n"],
    "line 1: begins with PADDING_TOKEN": ["PADDING_TOKEN 1 2\n"],
    r"line 4: is not UTF-8 \(byte 0xe9\)": [ROWS.encode() + b"caf\xe9 1 2\n"],
    r"line 2: is not UTF-8 \(byte 0xff\)": [b"the 1 2\n\x00\x01\xff 1 2\n"],
    "cannot be read": [ZIPPED[:-12], ZIPPED[:12] + b"xx"],
}


def test_what_is_wrong_is_refused_naming_the_line(file):
    for path in (file, file.parent):  # no file, and a folder
        with pytest.raises(UserError, match=f"^{path}: "):
            read_glove(path)
    for named, texts in WRONG.items():
        for text in texts:
            with pytest.raises(UserError, match=rf"^{file}: {named}"):
                read_glove(write(file, text))


SENTENCES = ["The cat sat.", "a BIRD, in the tree!", "", "qqq zzz", "red red (old) home"]


def test_the_average_of_the_words_that_are_known(glove):
    vectors = read_glove(load_model(glove).folder)
    row = dict(zip(vectors.words, vectors.table, strict=True))

    def mean(words):
        return np.mean([row[word] for word in words.split()], axis=0) if words else np.zeros(6)

    model = SimCSE(f"glove+stopwords:{glove.removeprefix('glove:')}")
    expected = [mean(words) for words in ("the cat sat", "a bird in the tree", "", "", "red red old home")]
    np.testing.assert_allclose(model.encode(SENTENCES), expected, atol=1e-6)
    np.testing.assert_allclose(SimCSE(glove).encode("The cat sat."), mean("cat sat"), atol=1e-6)
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
    for _ in ("at first", "again"):
        done = call("export", "--workdir", tmp_path / "run", "--output", tmp_path / "export")
        assert done.returncode == 0 and "AutoModel" not in done.stdout, done.stderr
    card = (tmp_path / "export" / "README.md").read_text()
    assert "Made from `glove:vectors.txt`" in card and "AutoModel" not in card and "Nothing was trained" in card
    expected = SimCSE(glove).encode(SENTENCES)
    for name in ("run", "export"):
        np.testing.assert_array_equal(SimCSE(tmp_path / name).encode(SENTENCES), expected)
    with pytest.raises(UserError, match="belongs to a run that scored word vectors; give the run's own folder"):
        load_model(str(tmp_path / "run" / "model"))
    words = tmp_path / "run" / "model" / "whitespacetokenizer_config.json"
    words.write_text(words.read_text().replace('"cat", ', ""))
    with pytest.raises(UserError, match=f"{words}: damaged: it has 21 words, the checkpoint 22"):
        load_model(str(tmp_path / "run"))


def test_commands_take_it_and_what_needs_a_transformer_is_refused(glove, corpus, tmp_path):
    own = ("--model", glove, "--data", corpus["txt"])
    path = write_vectors(tmp_path / "vectors.npy")
    assert call("search", *own, "--query", "red cat").returncode == 0
    assert call("encode", *own, "--output", tmp_path / "out.npy").returncode == 0
    assert np.load(tmp_path / "out.npy").shape == (40, 6)
    scored = ("evaluate", "--model", glove, "--data", corpus["dev"])
    assert call(*scored).returncode == 0
    trained = ("train", *train_args(glove, corpus["txt"], corpus["dev"], tmp_path / "run"))
    zero = ("--config.train.max_steps=0", "--config.train.epochs=0")
    for args, named in (
        (trained, "train.epochs"),
        ((*trained, *zero), "the pooler cls"),
        ((*trained, *zero, "--config.model.pooler=avg", "--config.eval.pooler=max"), "the pooler max"),
        ((*trained, *zero, "--config.objective.mlm.weight=0.1"), "objective.mlm.weight"),
        ((*scored, "--pooler", "avg_top2"), "the pooler avg_top2"),
        (("analyze", "--models", glove, *own[2:], "--output", tmp_path / "out"), "an analysis of tokens"),
        (("encode", "--model", f"glove:{path}", *own[2:], "--output", path), "is the file of --model"),
    ):
        refused(call(*args), named)
    assert not (tmp_path / "run").exists() and not (tmp_path / "out").exists()
    assert path.read_text().startswith(WORDS[0])


@pytest.mark.slow
@pytest.mark.parametrize(("lower", "stop_words"), [(False, True), (True, False)])
def test_embeddings_are_those_of_sentence_transformers(tmp_path, lower, stop_words):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    from sentence_transformers import models
    from sentence_transformers.models.tokenizer import ENGLISH_STOP_WORDS, WhitespaceTokenizer

    assert set(ENGLISH_STOP_WORDS) == module.ENGLISH_STOP_WORDS
    words = ["the", "The", "cat", "Dog", "u.s.", "U.S", "don't", ",", "café", "i", "\u3000x", "#hash", "mat"]
    path = write_vectors(tmp_path / "vectors.txt", words, 16)
    sentences = ["The THE the.", "A Dog, the dog (DOG) on the mat", "ice cream", "U.S. u.s. U.s.", "", "qq", "CAFÉ"]
    sentences += ["Don't , ,, I i #hash #HASH!"]
    tokenizer = WhitespaceTokenizer(do_lower_case=lower, **({"stop_words": []} if stop_words else {}))

    def of_theirs(path):
        modules = [models.WordEmbeddings.from_text_file(str(path), tokenizer=tokenizer), models.Pooling(16)]
        return sentence_transformers.SentenceTransformer(modules=modules, device="cpu")

    options = f"{'+lower' * lower}{'+stopwords' * stop_words}"
    odd = write_vectors(tmp_path / "odd.txt", ["cat", *words, "ice cream", "mat", "cat"], 16)
    with pytest.warns(UserWarning, match="words that have spaces|on more than one line"):
        found = SimCSE(f"glove{options}:{odd}").encode(sentences)
    np.testing.assert_allclose(found, of_theirs(odd).encode(sentences), atol=1e-6)
    theirs, ours = of_theirs(path), load_model(f"glove{options}:{path}")
    expected = theirs.encode(sentences)
    np.testing.assert_allclose(SimCSE(f"glove{options}:{path}").encode(sentences), expected, atol=1e-6)
    theirs.save(str(tmp_path / "theirs"))
    np.testing.assert_allclose(SimCSE(tmp_path / "theirs").encode(sentences), expected, atol=1e-6)
    (tmp_path / "export").mkdir()
    write_model(dataclasses.replace(ours, pooler="avg"), tmp_path / "export")
    again = sentence_transformers.SentenceTransformer(str(tmp_path / "export"), device="cpu")
    np.testing.assert_allclose(again.encode(sentences), expected, atol=1e-6)


def test_words_are_looked_up_also_bare_and_in_lower_case_and_a_tokenizer_cuts_pads_and_is_saved(tmp_path):
    known = ["PADDING_TOKEN", "the", "cat", "Cat", "u.s.", "don't", "."]
    for sentence, options, expected in (
        *(("the cat", {}, [1, 2]), ("The Cat CAT, cat.", {}, [1, 3, 2, 2]), ("\tthe\u3000cat\n", {}, [1, 2])),
        ("The Cat CAT, cat.", {"lower_case": True}, [1, 2, 2, 2]),
        *(("u.s. U.S. (don't) . .. unknown", {}, [4, 5, 6]), ("", {}, [])),
        ("The THE the. cat", {"stop_words": frozenset(["the"])}, [2]),
        ("Cat cat", {"stop_words": frozenset(["cat"])}, [3]),
    ):
        (found,) = WordTokenizer(Vocabulary(known, **options))([sentence], 100)
        assert found.tolist() == expected, sentence
    tokenizer = WordTokenizer(Vocabulary(known))
    rows, cut = tokenizer.tokenize(["the cat the", "the", "the cat"], 2)
    assert [row.tolist() for row in rows] == [[1, 2], [1], [1, 2]] and cut == {0: 1}
    padded, mask = tokenizer.pad(rows, 3)
    assert padded.tolist() == [[1, 2, 0], [1, 0, 0], [1, 2, 0]] and mask.sum(1).tolist() == [2, 1, 2]
    assert tokenizer.count_prompt("the the x", 9) == 2 and tokenizer.token(2) == "cat"
    assert [part.tolist() for part in tokenizer.words(["the cat", ""], 9)] == [[0, 1], []]
    tokenizer, path = WordTokenizer(Vocabulary(known, True, frozenset(["a", "the"]))), tmp_path / "words.json"
    tokenizer.save(path)
    assert read_vocabulary(path) == Vocabulary(known, True, frozenset(["a", "the"]))
    assert pickle.loads(pickle.dumps(tokenizer)).content() == tokenizer.content()
    vocabularies = [("vocab", value) for value in (None, ["a", 1])]
    for field, value in (*vocabularies, ("stop_words", "the")):
        path.write_text(json.dumps(json.loads(tokenizer.content()) | {field: value}))
        with pytest.raises(UserError, match=f"^{path}: {field} "):
            read_vocabulary(path)


VOCABULARY = Vocabulary(["PADDING_TOKEN", "a", "b"], True, frozenset(["the"]))
TABLE = np.float32([[0, 0], [1, 2], [3, 4]])


@pytest.fixture
def folder(tmp_path):
    words = tmp_path / "0_WordEmbeddings"
    words.mkdir()
    module.write_word_embeddings(words, VOCABULARY, TABLE, 50)
    listed = [("0_WordEmbeddings", "WordEmbeddings"), ("1_Pooling", "Pooling")]
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in listed]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode": "mean"}')
    return tmp_path


def test_what_was_written_is_read_of_poolings_the_mean_and_a_damaged_folder_is_refused(folder):
    vocabulary, table, max_length = module.read_word_embeddings(folder / "0_WordEmbeddings")
    assert (vocabulary, max_length) == (VOCABULARY, 50)
    np.testing.assert_array_equal(table, TABLE)
    model = load(str(folder))
    assert (model.pooler, model.max_length, model.config.num_layers) == ("avg", 50, 0)
    more = {"path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}
    (folder / "modules.json").write_text(json.dumps([*json.loads((folder / "modules.json").read_text()), more]))
    assert load(str(folder)).normalize
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "max"}')
    with pytest.raises(UserError, match=r"modules\.json: of the poolings of word vectors only the mean is supported"):
        choose_pooler(load(str(folder)), None)
    words = folder / "0_WordEmbeddings"
    for tensors, message in (
        ({"x": TABLE}, f"the tensor '{TENSOR}' is missing"),
        ({TENSOR: TABLE[:2]}, r"has shape \(2, 2\), but must have \(3, None\)"),
        *(
            ({TENSOR: table}, "not finite|has the type")
            for table in (TABLE.astype(int), np.where(TABLE == 4, np.inf, TABLE))
        ),
    ):
        save_file(tensors, words / "model.safetensors")
        with pytest.raises(UserError, match=message):
            load(str(folder))
    for field, value, message in (
        ("max_seq_length", 0, "is 0"),
        ("tokenizer_class", "x.PhraseTokenizer", "only White"),
    ):
        own = (words / FILE).read_text()
        edit_json(words / FILE, **{field: value})
        with pytest.raises(UserError, match=message):
            load(str(folder))
        (words / FILE).write_text(own)
