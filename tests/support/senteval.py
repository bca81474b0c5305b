from pathlib import Path

import numpy as np

from simcse_jax.evaluation import sts, transfer_files

WORDS = ["good", "bad", "fine", "dull", "film", "plot", "the", "a"]


def made(count: int, seed: int, length: int = 6) -> list[str]:
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(WORDS, generator.integers(1, length))) for _ in range(count)]


def write(path, lines, encoding="utf-8"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(f"{line}\n" for line in lines).encode(encoding))


def write_all(folder):
    for number, files in enumerate(transfer_files.CLASS_FILES.values()):
        for label, file in enumerate(files):
            write(folder / file, made(24 + 7 * label, seed=2 * number + label))
    for number, (split, count) in enumerate((("train", 60), ("dev", 30), ("test", 40))):
        rows = made(count, seed=20 + number)
        write(folder / transfer_files.SPLIT_FILES["SST2"][split], [f"{row} \t{len(row) % 2}" for row in rows])
        if split == "dev":
            continue
        lines = [f"{transfer_files.QUESTIONS[n % 3]}:x {r} ?" for n, r in enumerate(made(count, 30 + number))]
        write(folder / transfer_files.SPLIT_FILES["TREC"][split], lines)
        pairs = zip(made(count, 40 + number), made(count, 50 + number), strict=True)
        lines = ["Quality\t#1 ID\t#2 ID\t#1\t#2"]
        lines += [f"{n % 3 // 2}\t{n}\t{n}\t{a}\t{b}" for n, (a, b) in enumerate(pairs)]
        write(folder / transfer_files.SPLIT_FILES["MRPC"][split], lines, "utf-8-sig")
    return folder


def write_similarity(folder: Path, pairs: Path) -> Path:
    """STS-B (all splits), SICK-R (development and test) and STS12 of a file of graded pairs; no other tasks."""
    rows = [line.split("\t") for line in pairs.read_text().splitlines()[1:]]
    for split in ("train", "dev", "test"):
        rows = rows[3:] + rows[:3]
        lines = [f"main\tfile\t2012\t{number}\t{gold}\t{a}\t{b}" for number, (a, b, gold) in enumerate(rows)]
        write(folder / sts.SINGLE_FILES["STSBenchmark"][split], lines)
        lines = [f"{number}\t{a}\t{b}\t{gold}\tNEUTRAL" for number, (a, b, gold) in enumerate(rows[2:])]
        if split != "train":
            write(folder / sts.SINGLE_FILES["SICKRelatedness"][split], ["a header", *lines])
    for number, subset in enumerate(sts.SUBSETS["STS12"]):
        part = rows[number : number + 6 + number]
        write(folder / f"STS/STS12-en-test/STS.input.{subset}.txt", [f"{a}\t{b}" for a, b, _ in part])
        write(folder / f"STS/STS12-en-test/STS.gs.{subset}.txt", [gold for *_, gold in part])
    return folder
