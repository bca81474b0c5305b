"""Small SentEval folders for transfer tasks."""

import numpy as np

from simcse_jax.evaluation import transfer_files

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
        write(
            folder / transfer_files.SPLIT_FILES["TREC"][split],
            [f"{transfer_files.QUESTIONS[n % 3]}:x {r} ?" for n, r in enumerate(made(count, 30 + number))],
        )
        pairs = zip(made(count, 40 + number), made(count, 50 + number), strict=True)
        lines = [f"{n % 3 // 2}\t{n}\t{n}\t{a}\t{b}" for n, (a, b) in enumerate(pairs)]
        write(
            folder / transfer_files.SPLIT_FILES["MRPC"][split], ["Quality\t#1 ID\t#2 ID\t#1\t#2", *lines], "utf-8-sig"
        )
    return folder
