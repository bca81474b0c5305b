import json
from pathlib import Path

from support import sentences


def write_beir(folder: Path, documents: int = 40, queries: int = 9) -> Path:
    """Sentences over the tiny models' words; the queries of test are the first six, those of dev the last three.

    Every query has a document of grade 2, one of grade 1, and one that was judged 0. Texts repeat: documents tie.
    """
    (folder / "qrels").mkdir(parents=True)
    texts = sentences(documents // 2, 5) * 2
    corpus = [{"_id": f"d{row}", "title": "the park" * (row % 2), "text": text} for row, text in enumerate(texts)]
    asked = [{"_id": f"q{row}", "text": text, "metadata": {}} for row, text in enumerate(sentences(queries, 6))]
    for name, records in (("corpus", corpus), ("queries", asked)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    for split, part in (("test", range(6)), ("dev", range(6, queries))):
        rows = [f"q{row}\td{(5 * row + place) % documents}\t{2 - place}" for row in part for place in range(3)]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n")
    return folder
