import signal
import threading
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from support.jobs import another_job

from simcse_jax.config.fields import default_config
from simcse_jax.errors import UserError
from simcse_jax.host.locks import held
from simcse_jax.runs.state import TrainState
from simcse_jax.training.patience import Patience
from simcse_jax.training.schedule import Due
from simcse_jax.training.sweeps import together
from simcse_jax.training.sweeps.together import Group, Member, group_key, shared_recipe

ALONE = SimpleNamespace(size=1)  # a mesh


def test_a_run_that_cannot_be_scored_at_the_end_is_given_up_alone():
    def final_scores(embed, seed):
        if seed == 1:
            raise UserError("the embeddings vary in 0 directions only")
        return {"seed": seed}

    members = [Member(f"run {seed}", seed, None, 0.0) for seed in (1, 2)]
    embed = SimpleNamespace(with_params=lambda params: SimpleNamespace(with_progress=None))
    evaluation = SimpleNamespace(final_scores=final_scores, missing_in=lambda result: evaluation)
    inputs = SimpleNamespace(evaluation=evaluation, language_model=None, sizes=())
    setup = SimpleNamespace(embed=embed, inputs=inputs, model=dict, mesh=ALONE)
    group = Group(setup, [], {}, None, None, members, {"x": np.zeros((2, 3))})
    assert group.final_scores() == [None, {"seed": 2}]
    assert [member.problem for member in members] == ["the embeddings vary in 0 directions only", ""]


def test_a_run_that_diverged_before_a_kill_has_no_result(capsys):
    members = [Member(f"run {seed}", seed, None, 0.0) for seed in (1, 2, 3)]
    members[2].patience = Patience(1, since_best=1)  # which has ended, so what came after does not count
    group = Group(None, [], {}, None, None, members, {})
    broken = {"x": np.ones((3, 2)), "y": np.array([[1.0, np.nan], [1.0, 2.0], [np.inf, 1.0]])}
    group.leave_out_broken(broken)
    assert [member.problem for member in members] == ["its parameters are not finite", "", ""]
    assert "run 1: its parameters are not finite" in capsys.readouterr().out


def test_scores_are_computed_with_progress(capsys):
    encode = SimpleNamespace(with_progress=lambda sentences: np.eye(len(sentences)))
    score = SimpleNamespace(with_params=lambda params: encode)
    evaluator = lambda embed: {"eval/x": float(embed(["a"])[0, 0])}  # noqa: E731
    setup = SimpleNamespace(embed=score, model=dict, scoring=[evaluator], mesh=ALONE)
    member = Member("run 1", 1, SimpleNamespace(write=lambda number, line: None), 0.0)
    Group(setup, [], {}, None, None, [member], {}).score(1, {})
    assert member.best == 1.0 and "run 1 1.00" in capsys.readouterr().out


def test_metrics_that_cannot_be_read_leave_no_handler(tmp_path, monkeypatch):
    def metrics(self, resumed):
        raise UserError("metrics.jsonl: damaged")

    setup = SimpleNamespace(embed=None)
    inputs = SimpleNamespace(fingerprints={}, corpus=(), total_steps=1)
    monkeypatch.setattr(together, "read_inputs", lambda config: inputs)
    monkeypatch.setattr(together, "make_setup", lambda config, inputs: setup)
    monkeypatch.setattr(together, "first_state", lambda setup, configs: TrainState(0, {}, {}))
    monkeypatch.setattr(together, "Checkpoints", lambda folder: None)
    monkeypatch.setattr(together, "resume", lambda checkpoints, state, total: (state, 0))
    monkeypatch.setattr(together, "check_corpus", lambda config, corpus: None)
    for name, value in {"exists": True, "check_same_run": lambda *_: None, "metrics": metrics}.items():
        monkeypatch.setattr(together.Workdir, name, value)
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), threading.active_count()
    with pytest.raises(UserError, match="damaged"):
        together.train_together([default_config()], [tmp_path], tmp_path / "group")
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), threading.active_count()) == before


def test_each_workdir_of_runs_trained_together_is_locked(tmp_path):
    with another_job(held(tmp_path / "b")), pytest.raises(UserError, match=f"{tmp_path / 'b'}: process "):
        together.train_together([default_config()] * 2, [tmp_path / "a", tmp_path / "b"], tmp_path / "group")


def changed(**fields):
    config = default_config()
    for name, value in fields.items():
        config.update_from_flattened_dict({name.replace("__", "."): value})
    return group_key(config)


def test_what_can_be_trained_together():
    same = changed(seed=7, model__dropout=0.5, objective__info_nce__temperature=1.0, train__learning_rate=1e-5)
    assert same == changed() is not None
    assert changed(objective__off_dropout__weight=1.0) != changed()
    assert changed(objective__off_dropout__weight=1.0) == changed(objective__off_dropout__weight=0.3)
    assert changed(train__epsilon=1e-6, train__warmup=0.1) == changed()
    assert changed(views__positive_dropout=0.0) == changed(views__positive_dropout=0.3) != changed()
    assert changed(model__attention_dropout=0.1) == changed(model__attention_dropout=0.3) != changed()
    assert len({changed(model__attention_dropout=rate) for rate in (-1.0, 0.0, 0.1)}) == 3  # 0 draws no masks
    lora = {"model__lora__rank": 4}
    assert changed(**lora, model__lora__dropout=0.1) == changed(**lora, model__lora__dropout=0.3) != changed(**lora)
    assert len({changed(**lora), changed(model__lora__rank=8), changed(**lora, model__lora__alpha=1.0), changed()}) == 4
    sizes = {"matryoshka__dimensions": ("64", "32")}
    assert changed(**sizes) == changed(**sizes, matryoshka__weights=("1", "0.5")) != changed()
    assert changed(**sizes) != changed(matryoshka__dimensions=("64",))
    assert len({changed(), changed(teacher__model="a"), changed(data__score_range=("0", "5"))}) == 3
    steps = {"train__schedule": "steps", "train__milestones": "5:0.5,9:0.1"}
    assert changed(**steps) == changed(**steps | {"train__milestones": "1:0.8,2:0.7"}) != changed()
    assert changed(**steps) != changed(**steps | {"train__milestones": "1:0.8"})
    for fields in (
        {"model__pooler": "avg"},
        {"train__optimizer": "rmsprop"},
        {"train__bias_correction": False},
        {"train__mu_dtype": "bfloat16"},
        {"objective__info_nce__symmetric": True},
        {"train__batch_size": 8},
    ):
        assert changed(**fields) != changed()
    for fields in (
        {"train__epochs": 0},
        {"data__subsample": 9},
        {"data__positives": "next_3_sentences"},
        {"data__positives": "spans"},
        {"data__augment__name": "crop"},
        {"checkpoint__keep_every": 200},
        {"analysis__every": 200},
    ):
        assert changed(**fields) is None


def test_a_score_stands_next_to_the_loss_of_its_step():
    written = []
    member = Member("run", 1, SimpleNamespace(write=lambda number, line: written.append(number)), 0.0)
    group = Group(None, [], {}, None, None, [member], {}, {"loss": np.ones(1)})
    group.score = lambda number, params: None
    state = SimpleNamespace(params={})
    for number, due in ((0, Due(False, False, True, False)), (3, Due(False, False, True, False))):
        group.look(number, state, due, False)
    group.log(4)
    group.look(4, state, Due(True, False, True, False), False)
    assert written == [3, 4]


def test_a_run_whose_patience_is_over_ends_with_what_it_has_and_the_others_continue(capsys):
    scores = {"a": [3.0, 1.0, 9.0, 9.0], "b": [1.0, 2.0, 3.0, 2.0]}
    written = {name: [] for name in scores}
    members = [
        Member(name, 1, SimpleNamespace(write=lambda *line, name=name: written[name].append(line)), -np.inf, "", one)
        for name, one in (("a", Patience(1)), ("b", Patience(1)))
    ]
    rows = {"x": np.arange(2.0)}
    embed = SimpleNamespace(with_params=lambda own: SimpleNamespace(with_progress=lambda sentences: own["x"]))
    number = 0
    setup = SimpleNamespace(
        embed=embed,
        model=dict,
        scoring=[lambda embed: {"eval/x": scores["ab"[int(embed([])) % 2]][number - 1]}],
        mesh=ALONE,
    )
    group = Group(setup, [], {}, None, None, members, {"x": jnp.array(rows["x"])})
    ends = []
    for number in range(1, 5):
        group.values = {"loss": np.array([np.nan, 1.0]) if number > 2 else np.ones(2)}  # of a row that has ended
        group.log(number)
        group.score(number, {"x": rows["x"] + 10 * number})
        ends.append((members[0].continues, members[1].continues, group.ended))
    assert ends == [(True, True, False), (False, True, False), (False, True, False), (False, False, True)]
    assert [number for number, _ in written["a"]] == [1, 1, 2, 2] and not members[0].problem
    assert group.best["x"].tolist() == [10.0, 31.0]
    assert members[0].patience.result == {"ended_at_step": 2} and "a: ended at step 2" in capsys.readouterr().out


@pytest.mark.parametrize(("tokens", "said"), [(((5,), ()), True), (((),), False)])
def test_runs_whose_longest_batch_is_not_known_say_that_padding_stays(tokens, said, capsys):
    class Batches:
        def sizes(self, steps, devices, chunk_size):
            return SimpleNamespace(tokens=tokens)

    config = SimpleNamespace(train=SimpleNamespace(unpad=True))
    recipe = SimpleNamespace(chunk_size=0)
    setup = SimpleNamespace(
        config=config, recipe=recipe, mesh=SimpleNamespace(size=1), schedule=SimpleNamespace(total=4)
    )
    assert shared_recipe(setup, [Batches(), Batches()]) is recipe
    assert ("all padding" in capsys.readouterr().out) == said
