from support.data import raises

from simcse_jax.index.identity import ModelIdentity, check_maker, read_identity

MODEL = ModelIdentity("runs/a", "avg", False, 12, "0" * 64, "float32", "cosine", "")


def test_another_model_is_refused_in_one_line_and_one_of_another_name_is_the_same():
    for changes, message in (
        ({"sha256": "1" * 64}, "runs/a (weights others, or other settings)"),
        ({"name": "b", "sha256": "1"}, "b (weights others, or other settings)"),
        ({"pooler": "cls"}, "runs/a (pooler 'avg', not 'cls')"),
        ({"head": True, "dimension": 32}, "runs/a (head False, not True; dimension 12, not 32)"),
        ({"prompt": "on "}, "runs/a (prompt '', not 'on ')"),
    ):
        for given, cure in (((), "load it with that model, or build another"), (("build another",), "build another")):
            whole = f"some/index: an index of runs/a, not of {message}; {cure}"
            raises(whole, check_maker, "some/index", MODEL, MODEL._replace(**changes), *given)
    assert read_identity(MODEL._asdict(), "damaged") == MODEL
    for content in (MODEL._asdict() | {"dimension": "12"}, MODEL._asdict() | {"head": 0}, {"more": 1}, [], None):
        raises("damaged", read_identity, content, "damaged")
    check_maker("some/index", MODEL, MODEL._replace(name="exported"))
