from support.data import raises
from support.later import later

from simcse_jax.data.building.paraphrases import CAPTION_FILES as CAPTIONS
from simcse_jax.data.building.paraphrases import PARAPHRASE_FILES, flickr_pairs, paranmt, qqp, read_captions
from simcse_jax.data.building.paraphrases import QUESTION_FILES as QUESTIONS
from simcse_jax.data.building.reading import Tally, resolve

datasets = later("datasets")
HEAD = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
TOKEN = "".join(f"1.jpg#{n}\tcaption {n} .\n" for n in range(5)) + "2.jpg#0\talone\n2.jpg#1\t \nnothing\n"
BARS = "image_name| comment_number| comment\n1.jpg| 0| a | b\n1.jpg| 1| c\n1.jpg| 4   A dog .\n"


def test_qqp_is_glue_s_quora_s_or_the_hub_s_duplicates_and_captions_of_two_files_count_once(tmp_path):
    (tmp_path / "glue").mkdir()
    rows = '1\t2\t3\tHow "old" is it?\tWhat age?\t1\n2\t3\t4\tWhy?\tWho?\t0\n3\t4\t5\tbroken\n'
    (tmp_path / "glue/train.tsv").write_text(f'{HEAD}{rows}4\t5\t6\t"Quote\tWhat?\t1\n')
    tally = Tally("pairs")
    found = list(qqp(resolve([f"{tmp_path}/glue"], QUESTIONS), tally))
    assert found == [('How "old" is it?', "What age?"), ('"Quote', "What?")]
    assert (tally.read, tally.used) == (4, 2)
    assert tally.dropped == {"no duplicates": 1, "with a wrong number of columns": 1}
    (tmp_path / "quora_duplicate_questions.tsv").write_text(HEAD + '1\t2\t3\t"Is ""it""\nreally so?"\tWhat?\t1\n\n')
    assert list(qqp(resolve([str(tmp_path)], QUESTIONS), Tally("pairs"))) == [('Is "it" really so?', "What?")]
    columns = {"question1": ["a", "b"], "question2": ["c", "d"], "label": [1, 0], "idx": [0, 1]}
    datasets.Dataset.from_dict(columns).save_to_disk(tmp_path / "saved")
    assert list(qqp(resolve([f"hf:{tmp_path}/saved"], QUESTIONS), Tally("pairs"))) == [("a", "c")]
    (tmp_path / "glue/train.tsv").write_text(HEAD + "1\t2\t3\ta\tb\tyes\n")
    raises("line 2: the label is 'yes'", lambda: list(qqp(resolve([f"{tmp_path}/glue"], QUESTIONS), Tally("pairs"))))
    (tmp_path / "results.csv").write_text(BARS)
    tally = Tally("captions")
    assert read_captions(resolve([str(tmp_path)], CAPTIONS), tally) == {"1.jpg": ["a | b", "c"]}
    assert (tally.read, tally.used) == (3, 2)
    (tmp_path / "results_20130124.token").write_text("1.jpg#0\ta | b\n1.jpg#1\td\n")
    tally = Tally("captions")
    assert read_captions(resolve([str(tmp_path)], CAPTIONS), tally) == {"1.jpg": ["a | b", "d"]}
    assert tally.dropped["with the image and number of another"] == 2


def test_paranmt_is_two_columns_and_any_two_captions_of_an_image_are_a_pair(tmp_path):
    (tmp_path / "para-nmt-5m-processed.txt").write_text("a cat .\tthe cat .\nb\tc\t0.9\nalone\n\td\n")
    tally = Tally("pairs")
    assert list(paranmt(resolve([str(tmp_path)], PARAPHRASE_FILES), tally)) == [("a cat .", "the cat ."), ("b", "c")]
    assert (tally.read, tally.used) == (4, 2)
    (tmp_path / "results_20130124.token").write_text(TOKEN)
    tally = Tally("captions")
    pairs = list(flickr_pairs(resolve([str(tmp_path)], CAPTIONS), tally))
    assert len(set(pairs)) == len(pairs) == 10 and pairs[0] == ("caption 0 .", "caption 1 .")
    assert (tally.read, tally.used, tally.notes) == (8, 5, ["2 images"])
    for read in (paranmt, flickr_pairs):
        raises("hf:x: cannot be read", lambda: list(read(["hf:x"], Tally("pairs"))))
