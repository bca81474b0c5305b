"""The commands that read a model, an index, a run or what was begun, and what they write."""

from hostile.case import MODEL, PAIRS, TEXT, Reader
from hostile.seeds import RUN, train_arguments


def readers_of_model(name: str = MODEL) -> list[Reader]:
    """The commands that read a model's folder, the quickest first."""
    given, graded = [f"--model={name}", f"--data={TEXT}"], [f"--model={name}", f"--data={PAIRS}"]
    return [
        Reader("encode", [*given, "--output=out.npy"], [name, TEXT], "out.npy"),
        Reader("evaluate", [*graded, "--output=out.json"], [name, PAIRS], "out.json"),
        Reader("search", [*given, "--query=a cat", "--output=out.json"], [name, TEXT], "out.json"),
        Reader("demo", [*given, "--port=0"], [name, TEXT]),
        Reader("geometry", [f"--models={name}", graded[1], "--output=out"], [name, PAIRS], "out"),
        Reader("analyze", [*given, "--output=out"], [name, TEXT], "out"),
        Reader("train", train_arguments("run", model__init_from=name), [name, TEXT, PAIRS], "run"),
    ]


SEARCH = ["--model=model", "--index=index", "--query=a cat", "--output=out.json"]
INDEX = Reader("search", SEARCH, ["model", "index"], "out.json")
GO_ON = ["--model=model", f"--data={TEXT}", "--output=state/out.npy", "--save-every=4"]
STATE = Reader("encode", GO_ON, ["model", TEXT, "state"], "state/out.npy", ("state/*",))
EXPORT = Reader("export", ["--workdir=workdir", "--output=out"], ["workdir"], "out")
RESUME = Reader("train", RUN, ["model", "train.csv", PAIRS, "workdir"], "workdir", ("workdir/*",))
RUNS = Reader("analyze", ["--runs", "workdir", "--output=out"], ["workdir"], "out")
KEPT = Reader("geometry", ["--runs", "workdir", f"--data={PAIRS}", "--output=out"], ["workdir", PAIRS], "out")
ENCODE_RUN = readers_of_model("workdir")[0]
LISTED = Reader("runs", ["workdir"], ["workdir"])
