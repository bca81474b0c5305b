"""Folders of retrieval tasks, the options and fields that name them, and files of earlier scores to compare with."""

from collections.abc import Iterator

from hostile.case import DONE, PAIRS, REFUSED, TEXT, Case, Reader
from hostile.damages import remove, write
from hostile.line_damages import LINES, cells, of_lines, records
from hostile.seeds import train_arguments

KIND = "retrieval"
FOLDER, BASELINE = "beir", "scores.json"
HEAD = "query-id\tcorpus-id\tscore\n"
ROWS = HEAD + "q0\td0\t1\n"
INPUTS = ["model", TEXT, PAIRS, FOLDER]
LINE = ["--model=model", f"--tasks=retrieval:{FOLDER}", "--output=out.json"]
EVALUATE = Reader("evaluate", LINE, INPUTS, "out.json")
TRAIN = Reader("train", train_arguments("run", eval__development="retrieval", eval__retrieval__data=FOLDER), INPUTS)

JUDGEMENTS: dict[str, str] = {"no query that is known": HEAD + "x\td0\t1\n"}
JUDGEMENTS |= {"no document that is known": HEAD + "q0\tx\t1\n", "judged twice": ROWS + "q0\td0\t0\n"}
READ = {"a query and a document that are unknown": ROWS + "x\td0\t1\nq0\tx\t1\n", "CRLF": ROWS.replace("\n", "\r\n")}
OPTIONS: dict[str, str] = {"no folder": "--tasks=retrieval:", "a folder that is a file": f"--tasks=retrieval:{TEXT}"}
OPTIONS |= {"two folders of one name": f"--tasks=retrieval:{FOLDER},retrieval:./{FOLDER}"}
OPTIONS |= {"a name that is not UTF-8": "--tasks=retrieval:\udcff", "a bucket": "--tasks=retrieval:gs://bucket/beir"}
OPTIONS |= {"a measure without a cutoff": "--metric=ndcg", "no document": "--documents=0"}
OPTIONS |= {"the output in the folder": f"--output={FOLDER}/corpus.jsonl"}
ALLOWED: dict[str, str] = {"too many documents": f"--documents={'9' * 30}"}
ALLOWED |= {"a huge seed": f"--documents=20 --documents-seed={'9' * 30}"}
FIELDS: dict[str, tuple[str, str]] = {  # the field, and what the error names
    "a folder twice": (f"data={FOLDER},./{FOLDER}", "named twice"),
    "no judgements of that name": ("development=train", "eval.retrieval"),
}
BASELINES: dict[str, str] = {"not JSON": "{", "of similarity": '{"STS12": {"spearman": 3.0}}'}
BASELINES |= {"of other data": f'{{"retrieval": {{"{FOLDER}": {{"sha256": "0", "per_query": {{}}}}}}}}'}


def cases() -> Iterator[Case]:
    for name in ("corpus.jsonl", "queries.jsonl"):
        yield from of_lines(KIND, [EVALUATE], f"{FOLDER}/{name}", LINES | records("_id", "text"))
    yield from of_lines(KIND, [EVALUATE], f"{FOLDER}/qrels/test.tsv", LINES | cells("\t"))
    qrels = f"{FOLDER}/qrels/test.tsv"
    for damage, text in JUDGEMENTS.items():
        yield EVALUATE.case(KIND, f"qrels: {damage}", write(qrels, text), names="test.tsv")
    for damage, text in READ.items():
        yield EVALUATE.case(KIND, f"qrels: {damage}", write(qrels, text), DONE)
    yield EVALUATE.case(KIND, "no folder of qrels", remove(f"{FOLDER}/qrels"), names="test.tsv")
    for options, end in ((OPTIONS, REFUSED), (ALLOWED, DONE)):
        for damage, option in options.items():
            yield EVALUATE.case(KIND, damage, write(BASELINE, "{}"), end, "", *option.split())
    option = f"--baseline={BASELINE}"
    for damage, text in BASELINES.items():
        yield EVALUATE.case(KIND, f"a baseline: {damage}", write(BASELINE, text), REFUSED, BASELINE, option)
    yield EVALUATE.case(KIND, "a baseline that is missing", None, REFUSED, BASELINE, option)
    for damage, (field, names) in FIELDS.items():
        yield TRAIN.case(KIND, f"eval.retrieval: {damage}", None, REFUSED, names, f"--config.eval.retrieval.{field}")
    damaged = write(f"{FOLDER}/qrels/dev.tsv", HEAD + "q0\tx\t1\n")
    yield TRAIN.case(KIND, "no document that is known", damaged, names="dev.tsv: none")
    yield TRAIN.case(KIND, "none", None, DONE)
