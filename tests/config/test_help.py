import subprocess
import sys

from support import ROOT, call, refused

from simcse_jax.config.fields import FIELDS
from simcse_jax.config.help import describe_fields
from simcse_jax.field import at_least, field
from simcse_jax.training.sweeps import variants

COMMANDS = ("train", "tune", "sweep", "evaluate", "encode", "search", "export", "analyze", "geometry")
COMMANDS += ("demo", "serve", "aot")


def unwrapped(text):
    return " ".join(text.split())


def test_the_help_of_a_run_and_of_a_sweep_has_every_field_recipe_table_and_flag():
    run, sweep = (call(*command) for command in (("train", "--help"), ("sweep", "-h")))
    assert [done.returncode for done in (run, sweep)] == [0, 0] and run.stderr == sweep.stderr == ""
    text, help_text = unwrapped(run.stdout), unwrapped(sweep.stdout)
    for name, one in FIELDS.items():
        default = ",".join(one.default) if isinstance(one.default, tuple) else one.default
        assert f" --config.{name}={default} {one.meaning} {one.kind}. " in text
        assert all(rule.words in text for rule in one.rules)
    for file in (ROOT / "configs").glob("*.py"):
        assert f" {file.stem}" in text
    assert " sup_bert:{base,large,neutral,mlm,large_mlm,joint} Supervised SimCSE from BERT (SimCSE, Table A.1)" in text
    assert f"copy a file from {ROOT / 'configs'}." in text
    assert all(flag in text for flag in ("--workdir DIR", "--profile DIR", "--config FILE[:VARIANT]"))
    assert max(map(len, run.stdout.splitlines())) <= 120
    assert all(f" --config.{name}=" in help_text and one.meaning in help_text for name, one in variants.FIELDS.items())
    assert "--config.sweep.seeds=42,43,44" in help_text
    assert " ablations/simcse_table6:{unsup,sup} SimCSE, Table 6" in help_text
    assert all(f" ablations/{file.stem}" in help_text for file in (ROOT / "configs" / "ablations").glob("*.py"))


def test_fields_are_under_their_headings():
    fields = {"a.b": field(1, "One.", at_least(0)), "a.c.d": field((), "Two."), "a.c.e": field("", "Three.")}
    fields = {"z": field(1, "Zero."), **fields, "a.f": field(2, "After its neighbour's section.")}
    assert describe_fields(fields, {"a": "First.", "a.c": "Second."}).splitlines() == [
        "fields, which a recipe may change:", "  --config.z=1", "      Zero. A whole number.", "",
        "a: First.", "  --config.a.b=1", "      One. A whole number; 0 or more.",
        "  --config.a.f=2", "      After its neighbour's section. A whole number.", "",
        "a.c: Second.", "  --config.a.c.d=", "      Two. A list, with commas.",
        "  --config.a.c.e=", "      Three. A text.",
    ]  # fmt: skip


def test_help_shows_a_field_by_a_short_name_or_those_of_a_section():
    shown = call("sweep", "--config=x", "--help", "lr", "seeds", "--workdir=w").stdout
    assert shown.startswith("  --config.train.learning_rate=3e-05\n      The learning rate,")
    assert shown.count("  --config.") == 2 and "  --config.sweep.seeds=42,43,44\n" in shown
    shown = call("tune", "-h", "data.spans").stdout
    assert shown.count("  --config.") == shown.count("  --config.data.spans.") == 5
    refused(call("train", "--help", "zzz"), "--help zzz: no such field (")


def test_neither_help_nor_a_mistake_waits_for_jax():
    code = """
import contextlib, importlib, sys
from simcse_jax.commands.verbs import make_main

for command in COMMANDS:
    main = make_main(command)
    sys.argv = [command, "--help"]
    with contextlib.suppress(SystemExit):
        main()
from simcse_jax.config.checks import ineffective, validate
from simcse_jax.config.flags import parse_run

for name in ("configs/sup_bert.py:mlm", "diffcse:simcse_plus_plus"):
    config, *_ = parse_run([f"--config={name}", "--workdir=w"])
    validate(config)
    ineffective(config)
assert not {"jax", "flax", "optax", "transformers"} & set(sys.modules)
"""
    code = f"COMMANDS = {COMMANDS}{code}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
