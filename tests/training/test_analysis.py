"""`analysis.every`: the last layer is measured while a run trains, and the run is the same."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from support import lines, run, sentences, train_args, without_speed

from simcse_jax.config.fields import default_config
from simcse_jax.devices.mesh import replicate
from simcse_jax.encoding import tokens as token_encoder
from simcse_jax.errors import UserError
from simcse_jax.evaluation import sts
from simcse_jax.evaluation.analysis.inputs import read_data
from simcse_jax.evaluation.analysis.last_layer import Sample
from simcse_jax.evaluation.analysis.spectrum import NUMBERS
from simcse_jax.huggingface.tokenizer import Tokenizer
from simcse_jax.models.sentence_encoder import build
from simcse_jax.runs.loading import load_model
from simcse_jax.training.evaluation import read_analysis
from simcse_jax.training.scoring import Shown
from simcse_jax.training.setup import make_setup

NAMES = {"anisotropy", "self_similarity", "intra_sentence_similarity", "l2_norm", "alignment", "uniformity"}
NAMES |= {"adjusted_self_similarity", "adjusted_intra_sentence_similarity", *NUMBERS}


@pytest.fixture(scope="module")
def analysed(tiny_bert, corpus, tmp_path_factory):
    """The run `trained`, measured every third step."""
    workdir = tmp_path_factory.mktemp("analysed") / "run"
    args = train_args(tiny_bert, corpus["csv"], corpus["dev"], workdir, "--config.model.mlp=always")
    done = run("train", *args, "--config.analysis.every=3")  # as `trained` was: another process, another rounding
    assert done.returncode == 0, done.stderr
    return workdir


@pytest.mark.slow
def test_training_is_the_same_with_and_without(analysed, trained):
    kept = [line for line in lines(analysed) if "analysis" not in line]
    assert without_speed(kept) == without_speed(lines(trained))
    ours, theirs = load_model(str(analysed)).params, load_model(str(trained)).params
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        np.testing.assert_array_equal(ours[name], value, err_msg=name)


@pytest.mark.slow
def test_the_start_every_nth_step_and_the_end_are_measured(analysed):
    measured = {line["step"]: line for line in lines(analysed) if "analysis" in line}
    assert list(measured) == [0, 3, 6, 8]
    for line in measured.values():
        assert set(line["analysis"]) == NAMES
        assert_section_5(line, 20)
    assert len({line["analysis"]["anisotropy"] for line in measured.values()}) == 4
    steps = [line["step"] for line in lines(analysed)]
    assert steps == sorted(steps)  # an analysis stands before the score whose checkpoint it belongs to


def test_a_run_measures_the_last_layer_and_compiles_once(tiny_bert):
    """And what SimCSE's Section 5 says holds."""
    model, sample = load_model(str(tiny_bert)), Sample([*sentences(20), " ".join(sentences(9))], [sentences(2)])
    given = SimpleNamespace(model=model, tokenizer=Tokenizer(model.folder, model.config), analysis=sample)
    vars(given).update(devices=jax.devices()[:2], evaluation=None, num_columns=1, total_steps=9)
    vars(given).update(language_model=None, generator=None, corpus=None, template=None, positive_template=None)
    setup = make_setup([config(model__mlp="none")], given)
    (evaluator,) = setup.measuring
    programs, found = [], []
    for factor in (1.0, 0.5):
        scaled = {name: factor * value for name, value in model.params.items()}
        embed = Shown(setup.embed.with_params(replicate(scaled, setup.replicated)))
        found.append(evaluator(embed))
        graph, _ = build(model.config, with_head=False)
        function = token_encoder._make_hidden_states(graph, setup.by_example, True, setup.embed.by_rows)
        programs.append(function._cache_size())
    assert programs == [1, 1]
    assert found[0]["analysis"]["anisotropy"] != found[1]["analysis"]["anisotropy"]
    for measured in found:
        assert set(measured["analysis"]) == NAMES
        assert_section_5(measured, 21)


def assert_section_5(measured, count):
    numbers, spectrum = measured["analysis"], np.array(measured["singular_values"])
    assert numbers["uniformity_term"] >= numbers["uniformity_bound"]  # equation 7
    assert numbers["alignment_term"] == pytest.approx((numbers["alignment"] / 2 - 1) / 0.05, abs=1e-4)
    trace = numbers["top_eigenvalue"] * np.sum(spectrum**2)  # of W Wᵀ, the number of sentences
    assert trace == pytest.approx(count, abs=1e-2)
    assert 0.05 * count * numbers["uniformity_bound"] <= numbers["top_eigenvalue"]  # Sum / m


def config(**fields):
    made = default_config()
    made.update_from_flattened_dict({"analysis.every": 5} | {k.replace("__", "."): v for k, v in fields.items()})
    return made


def evaluation(count=40, top=5.0):
    pairs = sts.Pairs(sentences(count, 1), sentences(count, 2), np.linspace(0, top, count), {})
    return SimpleNamespace(pairs=pairs)


def test_the_sentences_that_are_measured(tmp_path, capsys):
    assert read_analysis(config(analysis__every=0), evaluation()) is None
    sample = read_analysis(config(analysis__sentences=12), evaluation())
    assert len(sample.sentences) == 12 and sample.sentences[-1] == sentences(40, 1)[-1]
    assert len(sample.positives) == 6 and sample.positives[-1][1] == sentences(40, 2)[-1]

    file = tmp_path / "own.txt"
    file.write_text("\n".join([*sentences(11), "", *sentences(3)]) + "\n")
    sample = read_analysis(config(analysis__data=str(file)), None)
    assert (sample.sentences, sample.positives) == (sentences(11), [])  # each once, and no blank one
    assert capsys.readouterr().out == ""
    sample = read_analysis(config(analysis__data=str(file), eval__data="dev.tsv"), evaluation(top=3.0))
    assert sample.positives == []
    assert capsys.readouterr().out == "dev.tsv: no pair is rated above 4 of 5, so no alignment is measured\n"


def test_the_papers_data_are_the_first_sentences_of_the_test_pairs(senteval):
    """As `configs/ablations/isotropy_*.py` have them: repeated ones are kept, and 1,359 of 1,379 are taken."""
    paper = {"eval__data": str(senteval), "analysis__split": "test"}
    sample = read_analysis(config(**paper, analysis__sentences=1359, analysis__repeated_sentences="keep"), evaluation())
    whole = read_analysis(config(**paper, analysis__sentences=1379, analysis__repeated_sentences="keep"), evaluation())
    once = read_analysis(config(**paper, analysis__sentences=1379), evaluation())
    assert [len(each.sentences) for each in (sample, whole, once)] == [1359, 1379, 1256]
    assert whole.sentences == read_data(str(senteval)).sentences and set(once.sentences) == set(whole.sentences)
    assert len(whole.positives) == 231  # of the test pairs, too
    named = read_analysis(config(analysis__data=str(senteval), analysis__split="test", analysis__sentences=1379), None)
    assert named == once


def test_data_that_cannot_be_measured_on(tmp_path):
    few = tmp_path / "few.txt"
    few.write_text("one\n" * 30)
    for given, fields, named in (
        (None, {"analysis__data": "none.txt"}, "config.analysis.data: none.txt"),
        (None, {"analysis__data": str(few)}, f"config.analysis.data={few}: has 1 distinct sentences to analyse, 10"),
        (evaluation(9), {"eval__data": "dev.tsv"}, "config.eval.data=dev.tsv: has 9 distinct sentences"),
    ):
        with pytest.raises(UserError, match=named):
            read_analysis(config(**fields), given)
