from support.data import raises

from simcse_jax.index.identity import ModelIdentity, check_maker, read_identity

MODEL = ModelIdentity("runs/a", "avg", False, 12, "0" * 64, "float32", "cosine", "")


def test_another_model_is_refused_in_one_line_and_one_of_another_name_is_the_same():
    for changes, message in (
        (
            {"sha256": "1" * 64},
            "an index of runs/a (pooler avg) with other weights or settings, not of runs/a (pooler avg)",
        ),
        ({"name": "b", "sha256": "1"}, "an index of runs/a (pooler avg), not of b (pooler avg)"),
        ({"pooler": "cls"}, "an index of runs/a (pooler avg), not of runs/a (pooler cls)"),
        ({"head": True}, "an index of runs/a (pooler avg), not of runs/a (pooler avg with head)"),
        ({"dtype": "bfloat16"}, "an index of runs/a (pooler avg, float32), not of runs/a (pooler avg, bfloat16)"),
        ({"dimension": 32}, "an index of runs/a (pooler avg), 12 elements wide, not of runs/a (pooler avg)"),
        ({"prompt": "on "}, "an index of runs/a (pooler avg, prompt ''), not of runs/a (pooler avg, prompt 'on ')"),
    ):
        for given, cure in (((), "load it with that model, or build another"), (("build another",), "build another")):
            whole = f"some/index: {message}; {cure}"
            raises(whole, check_maker, "some/index", MODEL, MODEL._replace(**changes), *given)
    assert read_identity(MODEL._asdict(), "damaged") == MODEL
    for content in (MODEL._asdict() | {"dimension": "12"}, MODEL._asdict() | {"head": 0}, {"more": 1}, [], None):
        raises("damaged", read_identity, content, "damaged")
    check_maker("some/index", MODEL, MODEL._replace(name="exported"))
