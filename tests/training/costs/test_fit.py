import pytest
from support.costs import TINY, tiny_config

from simcse_jax.errors import UserError
from simcse_jax.runs.state import ModelSpec
from simcse_jax.training.costs import compile, fit
from simcse_jax.training.setup import abstract_step

ADVICE = [(2, "it fits with --config.parallel.chunk_size=2"), (0, "no --config.parallel.chunk_size makes it fit")]


@pytest.mark.parametrize(("limit", "advice"), ADVICE)
def test_what_does_not_fit_comes_with_the_chunk_size_or_the_batch_that_does(limit, advice, monkeypatch, capsys):
    def compile_step(step, topology, fill):
        if not 0 < step.recipe.chunk_size <= limit:
            raise compile.OutOfMemory(24 * 2**30, 16 * 2**30)
        return f"a report of chunks of {step.recipe.chunk_size}"

    monkeypatch.setattr(fit, "compile_step", compile_step)
    monkeypatch.setattr(fit, "describe", str)
    with pytest.raises(UserError) as error:
        fit.step_costs(abstract_step(tiny_config(), TINY, 1), "v5e:2x2", 4)
    assert str(error.value) == (f"v5e:2x2, 8 a device: out of memory: a device needs 24.0 GiB and has 16.00; {advice}")
    captured = capsys.readouterr()
    assert "trying --config.parallel.chunk_size=4" in captured.err
    assert captured.out == ("a report of chunks of 2\n" if limit else "")

    def compile_encoding(spec, encoder, shape, dtype, topology):
        if shape[0] > 8:  # two sentences for each of 4
            raise compile.OutOfMemory(24 * 2**30, 16 * 2**30)
        return "a report"

    monkeypatch.setattr(fit, "compile_encoding", compile_encoding)
    monkeypatch.setattr(fit, "describe", str)
    with pytest.raises(UserError, match=r"8 a device: out of memory: .*; it fits with --batch-per-chip=2"):
        fit.encoding_costs(ModelSpec(), TINY, (32, 16), "float32", "v5e:2x2", 4)
    assert capsys.readouterr().out == "a report\n"
