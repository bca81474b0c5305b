import jax
import pytest

from simcse_jax.devices import bfloat16
from simcse_jax.devices.bfloat16 import slow_bfloat16

INTEL = "processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: fpu avx512f {}\nbugs\t\t: some\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd {}\n"


@pytest.mark.parametrize(
    ("text", "slow"),
    [
        (INTEL.format("avx2"), True),
        (INTEL.format("avx512_bf16"), False),
        (INTEL.format("amx_bf16"), False),
        (ARM.format("bf16"), False),
        (ARM.format("i8mm"), True),
        ("processor: 0\n", False),  # it does not say
        (None, False),
    ],
)
def test_a_cpu_without_instructions_for_bfloat16_is_told(tmp_path, monkeypatch, text, slow):
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(bfloat16, "CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    found = slow_bfloat16.__wrapped__()
    assert ("float32 is faster here" in found) is slow
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    assert slow_bfloat16.__wrapped__() == ""


def test_a_model_warns_of_it(tiny_bert, monkeypatch):
    from simcse_jax import SimCSE

    monkeypatch.setattr("simcse_jax.encoding.embedder.slow_bfloat16", lambda: "bfloat16: slow here")
    with pytest.warns(UserWarning, match="bfloat16: slow here") as told:
        SimCSE(str(tiny_bert), dtype="bfloat16")
    assert told[0].filename == __file__
