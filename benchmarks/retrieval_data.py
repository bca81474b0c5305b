"""Retrieval made of SNLI and of graded pairs: python -m benchmarks.retrieval_data --data SENTEVAL --sentences FILE.

SENTEVAL is SentEval's folder with SNLI, STS-B and SICK; FILE has other sentences, one a line (Wikipedia's).

A query is a hypothesis, its document the premise that entails it. The premises of SNLI's development set are divided:
those of the first four fifths make the training pairs, the others the queries that choose a checkpoint; the test set
makes the queries of the end. A second collection, whose texts no training pair has, is made of the test sets of STS-B
and SICK: the first sentence of a pair asks for the second one if their score is 4 or more; all sentences of both are
documents. Both corpora have all sentences of FILE as well.

Writes into the folder --output: pairs.csv (hypothesis, premise) and corpus.txt, which
`simcse-jax mine` searches; and `snli` and `paraphrases` in BEIR's layout.
"""

import csv
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks.options import Parser
from simcse_jax.choices import LABELS
from simcse_jax.commands.command_line import run_command
from simcse_jax.data.building.nli import read_pairs
from simcse_jax.data.building.reading import Tally
from simcse_jax.data.sentences import read_sentences
from simcse_jax.evaluation import sts

TRAINING = 0.8  # of the development set's premises
SIMILAR = 4.0  # of 5
Entailed = dict[str, list[str]]  # the entailed hypotheses of each premise


def entailed(folder: Path, split: str) -> Entailed:
    """All premises of a split, in their order, with the hypotheses that they entail, each once."""
    found: Entailed = {}
    for pair in read_pairs([folder / "SNLI" / f"s1.{split}"], Tally("pairs")):
        hypotheses = found.setdefault(pair.premise, [])
        if pair.label == LABELS.index("entailment") and pair.hypothesis not in [*hypotheses, pair.premise]:
            hypotheses.append(pair.hypothesis)
    return found


def similar(folder: Path) -> tuple[list[str], Entailed]:
    """All sentences of both test sets, each once, and the sentences that paraphrase one."""
    tasks, missing = sts.read(str(folder), ["STSBenchmark", "SICKRelatedness"])
    if missing:
        raise SystemExit(f"{folder}: {', '.join(missing)} not found")
    sentences, found = [], {}
    for pairs in tasks.values():
        sentences += [*pairs.first, *pairs.second]
        for first, second, score in zip(pairs.first, pairs.second, pairs.gold.tolist(), strict=True):
            if score >= SIMILAR and first != second and second not in found.setdefault(first, []):
                found[first].append(second)
    return list(dict.fromkeys(sentences)), {first: others for first, others in found.items() if others}


def write_beir(folder: Path, documents: Iterable[str], judged: Mapping[str, Mapping[str, list[str]]]) -> None:
    """Writes a collection; `judged` has, by split, the relevant documents of each query.

    Equal texts have one id, so a query that is a document too is left out of its own ranking.
    """
    queries = [query for split in judged.values() for query in split]
    relevant = [document for split in judged.values() for found in split.values() for document in found]
    documents = list(dict.fromkeys([*documents, *relevant]))
    ids = {text: f"t{number}" for number, text in enumerate(dict.fromkeys([*documents, *queries]))}
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for name, texts in (("corpus", documents), ("queries", list(dict.fromkeys(queries)))):
        lines = [json.dumps({"_id": ids[text], "text": text}) for text in texts]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    for name, split in judged.items():
        pairs = [(ids[query], ids[document]) for query, found in split.items() for document in found]
        lines = ["query-id\tcorpus-id\tscore", *(f"{query}\t{document}\t1" for query, document in pairs)]
        (folder / "qrels" / f"{name}.tsv").write_text("\n".join(lines) + "\n")


def asked(premises: Entailed) -> dict[str, list[str]]:
    """The premises of each hypothesis."""
    found: dict[str, list[str]] = {}
    for premise, hypotheses in premises.items():
        for hypothesis in hypotheses:
            found.setdefault(hypothesis, []).append(premise)
    return found


def main() -> None:
    """Writes everything, and says how much."""
    parser = Parser(prog="benchmarks.retrieval_data", description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--sentences", required=True)
    parser.add_argument("--output", required=True, type=Path)
    args = parser.parse_args()
    development, test = entailed(args.data, "dev"), entailed(args.data, "test")
    others = read_sentences(args.sentences)
    premises = [*development]
    first = int(TRAINING * len(premises))
    training = {premise: development[premise] for premise in premises[:first]}
    choosing = asked({premise: development[premise] for premise in premises[first:]})
    collections: dict[str, tuple[list[str], dict[str, dict[str, list[str]]]]] = {
        "snli": ([*premises[first:], *test, *others], {"dev": choosing, "test": asked(test)})
    }
    sentences, paraphrases = similar(args.data)
    collections["paraphrases"] = ([*sentences, *others], {"test": paraphrases})
    for name, (documents, judged) in collections.items():
        write_beir(args.output / name, documents, judged)
        print(f"{name}: {len(set(documents)):,} documents, {len(judged['test']):,} queries")
    with open(args.output / "pairs.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("hypothesis", "premise"))
        rows = [(hypothesis, premise) for premise, found in training.items() for hypothesis in found]
        writer.writerows(rows)
    (args.output / "corpus.txt").write_text("\n".join(dict.fromkeys([*training, *others])) + "\n")
    print(f"{len(rows):,} training pairs; {len(choosing):,} queries choose the checkpoint")


if __name__ == "__main__":
    run_command(main)
