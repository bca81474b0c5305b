import errno
import json
from types import SimpleNamespace

import pytest
from support import train_args

from simcse_jax.config.checks import validate
from simcse_jax.config.flags import parse
from simcse_jax.config.recorded import to_record
from simcse_jax.errors import UserError
from simcse_jax.huggingface.sentence_transformers import Settings
from simcse_jax.runs.state import ModelSpec
from simcse_jax.runs.workdir import Workdir, model_settings


def test_it_reads_a_run_s_files_also_before_a_run_has_begun(trained, tmp_path):
    workdir = Workdir(trained)
    assert workdir.exists and str(workdir) == str(trained)
    assert workdir.read_run() == json.loads((trained / "run.json").read_text())
    assert workdir.read_result() == json.loads((trained / "result.json").read_text())
    assert workdir.read_metrics()[0]["step"] == 0
    workdir = Workdir(tmp_path / "run")
    assert not workdir.exists and workdir.read_result() is None and workdir.read_metrics() == []
    with pytest.raises(UserError, match=r"run\.json: cannot be read"):
        workdir.read_run()
    Workdir(tmp_path).write_result({"average": 1.5})
    assert Workdir(tmp_path).read_result() == {"average": 1.5}
    Workdir(tmp_path).drop_result()
    assert not Workdir(tmp_path).has_result


@pytest.fixture
def config(trained, tiny_bert, corpus):
    """That of `trained`."""
    args = train_args(tiny_bert, corpus["csv"], corpus["dev"], trained, "--config.model.mlp=always")
    return to_record(validate(parse(args)[0]))


def test_it_belongs_to_one_config_and_its_contents(trained, config):
    workdir = Workdir(trained)
    prints = workdir.read_run()["sha256"]
    workdir.check_same_run(config, prints)
    config["train"] |= {"log_every": 7, "report_to": []}  # no other results
    workdir.check_same_run(config, prints | {"analysis.data": "measured from here on"})
    with pytest.raises(UserError, match=r"the contents of data\.train=.* have changed since"):
        workdir.check_same_run(config, prints | {"data.train": "other"})
    config["train"]["learning_rate"] = 0.5
    with pytest.raises(UserError, match=r"another config; .*\n  train\.learning_rate was 0\.001, is 0\.5$"):
        workdir.check_same_run(config, prints)
    config["train"]["warmup"] = 0.5
    with pytest.raises(UserError, match="another config; choose another workdir") as error:
        workdir.check_same_config(config)
    assert [line.partition(" was ")[0] for line in error.value.listed] == ["train.learning_rate", "train.warmup"]


def test_processes_have_to_see_the_workdir(tmp_path, monkeypatch):
    monkeypatch.setattr("simcse_jax.runs.workdir.SEEN_SECONDS", 1)
    with pytest.raises(UserError, match="not the same folder for every process"):
        Workdir(tmp_path).wait()
    (tmp_path / "run.json").write_text("{}")
    Workdir(tmp_path).wait()


def test_a_full_disk_is_the_one_that_is_written_to(tmp_path, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device", "read.json", None, "written.json")

    monkeypatch.setattr("simcse_jax.runs.workdir.write_encoder_files", full)
    with pytest.raises(UserError, match=r"^written\.json: cannot be written: No space left"):
        Workdir(tmp_path / "run").create({}, {}, ModelSpec(), None, None)


def test_a_model_that_keeps_its_settings_has_the_prompts_it_was_trained_with():
    three = {"query": "q: ", "document": "d: ", "sts": "s: "}
    for own, default, prompts, kept in (
        # Loading adds an empty prompt of documents, which others of the file would come after.
        ({"query": "q: ", "document": "", "passage": "p: "}, None, {"query": "q: ", "document": "p: "}, "p: "),
        ({"query": "q: ", "document": "p: "}, None, {"query": "q: ", "document": ""}, ""),
        (three, "sts", {"query": "s: ", "document": "s: "}, "d: "),
        (three, "sts", {"query": "q: ", "document": "s: "}, "s: "),
        ({"query": "q: ", "document": "d: "}, None, {}, "d: "),
    ):
        model = SimpleNamespace(normalize=True, settings=Settings(prompts=own, default_prompt_name=default))
        assert model_settings(True, model, prompts)["prompts"] == own | {"document": kept}
