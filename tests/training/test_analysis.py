"""`analysis.every`: the last layer is measured while a run trains, and the run is the same."""

import json
import re
import shutil
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from support import call, run, sentences, train_args, without_speed

from simcse_jax.config.fields import default_config
from simcse_jax.devices.mesh import replicate
from simcse_jax.encoding import tokens as token_encoder
from simcse_jax.errors import UserError
from simcse_jax.evaluation import sts
from simcse_jax.evaluation.analysis.inputs import read_data
from simcse_jax.evaluation.analysis.last_layer import Sample, measure_last_layer, positives
from simcse_jax.evaluation.analysis.spectrum import NUMBERS
from simcse_jax.evaluation.analysis.tokens import Protocol, survey
from simcse_jax.huggingface.tokenizer import Tokenizer
from simcse_jax.models.sentence_encoder import build
from simcse_jax.runs.loading import load_model
from simcse_jax.simcse import SimCSE
from simcse_jax.training.evaluation import read_analysis
from simcse_jax.training.scoring import Shown
from simcse_jax.training.setup import make_setup

NAMES = {"anisotropy", "self_similarity", "intra_sentence_similarity", "l2_norm", "alignment", "uniformity"}
NAMES |= {"adjusted_self_similarity", "adjusted_intra_sentence_similarity", *NUMBERS}


def lines(workdir):
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def analysed(tiny_bert, corpus, tmp_path_factory):
    """The run `trained`, measured every third step."""
    workdir = tmp_path_factory.mktemp("analysed") / "run"
    args = train_args(tiny_bert, corpus["csv"], corpus["dev"], workdir, "--config.model.mlp=always")
    done = run("train", *args, "--config.analysis.every=3")  # as `trained` was: another process, another rounding
    assert done.returncode == 0, done.stderr
    return workdir


def test_training_is_the_same_with_and_without(analysed, trained):
    def told(workdir):
        kept = [line for line in lines(workdir) if "analysis" not in line]
        return without_speed(kept)

    assert told(analysed) == told(trained)
    ours, theirs = load_model(str(analysed)).params, load_model(str(trained)).params
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        np.testing.assert_array_equal(ours[name], value, err_msg=name)


def test_the_start_every_nth_step_and_the_end_are_measured(analysed):
    measured = {line["step"]: line["analysis"] for line in lines(analysed) if "analysis" in line}
    assert list(measured) == [0, 3, 6, 8]
    assert all(set(values) == NAMES for values in measured.values())
    assert len({values["anisotropy"] for values in measured.values()}) == 4
    steps = [line["step"] for line in lines(analysed)]
    assert steps == sorted(steps)  # an analysis stands before the score whose checkpoint it belongs to


def test_what_simcse_s_section_5_says_holds_at_every_step(analysed):
    for line in (line for line in lines(analysed) if "analysis" in line):
        numbers, spectrum = line["analysis"], np.array(line["singular_values"])
        assert numbers["uniformity_term"] >= numbers["uniformity_bound"]  # equation 7
        assert numbers["alignment_term"] == pytest.approx((numbers["alignment"] / 2 - 1) / 0.05, abs=1e-4)
        sentences = numbers["top_eigenvalue"] * np.sum(spectrum**2)  # the trace of W Wᵀ, the number of sentences
        assert sentences == pytest.approx(20, abs=1e-2)
        assert 0.05 * 20 * numbers["uniformity_bound"] <= numbers["top_eigenvalue"]  # Sum / m


def test_the_analysis_of_a_step_is_that_of_the_model_it_saved(analysed, corpus, tmp_path):
    """What the last line says, the analysis of the saved checkpoint says too, with all layers."""
    scored = {line["step"]: line["eval/dev"] for line in lines(analysed) if "eval/dev" in line}
    best = max((score, step) for step, score in scored.items() if step)[1]
    model, dev = SimCSE(str(analysed)), sts.read_graded_pairs(corpus["dev"])
    tokens = model.token_encoder()
    sample = Sample(list(dict.fromkeys(dev.first)), positives(dev, 128))
    expected = measure_last_layer(model.encode, tokens, survey(tokens, sample.sentences, Protocol()), sample, 0.05)
    found = next(line for line in lines(analysed) if line["step"] == best and "analysis" in line)
    assert found["analysis"] == pytest.approx(expected.analysis, abs=1e-5)
    assert found["singular_values"] == pytest.approx(expected.singular_values, abs=1e-5)


def test_the_first_measurement_alone_compiles(tiny_bert):
    model = load_model(str(tiny_bert))
    sample = Sample([*sentences(20), " ".join(sentences(9))], [])
    given = SimpleNamespace(model=model, tokenizer=Tokenizer(model.folder, model.config), analysis=sample)
    vars(given).update(devices=jax.devices()[:2], evaluation=None, num_columns=1, total_steps=9)
    vars(given).update(language_model=None, generator=None, corpus=None, template=None, positive_template=None)
    setup = make_setup([config(model__mlp="none")], given)
    (evaluator,) = setup.measuring
    programs, found = [], []
    for factor in (1.0, 0.5):
        scaled = {name: factor * value for name, value in model.params.items()}
        embed = Shown(setup.embed.with_params(replicate(scaled, setup.replicated)))
        found.append(evaluator(embed)["analysis"])
        graph, _ = build(model.config, with_head=False)
        function = token_encoder._make_hidden_states(graph, setup.by_example, True, setup.embed.by_rows)
        programs.append(function._cache_size())
    assert programs == [1, 1]
    assert found[0]["anisotropy"] != found[1]["anisotropy"]


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
    def refused(message, *args, **fields):
        with pytest.raises(UserError, match=re.escape(message)):
            read_analysis(config(**fields), *args)

    few = tmp_path / "few.txt"
    few.write_text("one\n" * 30)
    refused("config.analysis.data: none.txt: no such file", None, analysis__data="none.txt")
    refused(f"config.analysis.data={few}: has 1 distinct sentences to analyse, 10 are", None, analysis__data=str(few))
    refused("config.eval.data=dev.tsv: has 9 distinct sentences", evaluation(9), eval__data="dev.tsv")


def test_a_run_may_be_analysed_from_any_step_on_but_not_on_other_sentences(
    analysed, trained, tiny_bert, corpus, tmp_path
):
    """Both runs are at their end, so nothing is trained; what is refused is refused before."""
    later = shutil.copytree(trained, tmp_path / "run")

    def again(workdir, *more):
        args = train_args(tiny_bert, corpus["csv"], corpus["dev"], workdir, "--config.model.mlp=always", *more)
        return call("train", *args, "--config.analysis.every=4")

    assert again(later).returncode == 0
    for workdir in (later, analysed):
        done = again(workdir, "--config.analysis.sentences=11")
        assert done.returncode == 2 and "analysis.sentences was 256, is 11" in done.stderr
    path = analysed / "run.json"
    started = path.read_text()
    path.write_text(started.replace(json.loads(started)["sha256"]["analysis.data"], "0" * 64))
    done = again(analysed)
    path.write_text(started)
    assert done.returncode == 2 and "the contents of analysis.data= have changed since" in done.stderr
