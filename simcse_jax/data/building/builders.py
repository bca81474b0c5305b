"""The files that recipes name, and how to build each. A builder is data and a function that yields rows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from simcse_jax.data.building import nli, paraphrases, wikipedia
from simcse_jax.data.building.reading import Tally, draw


@dataclass(frozen=True)
class Options:
    """What a builder takes besides its sources."""

    splits: tuple[str, ...] = ("train",)
    hypothesis: str = nli.HYPOTHESES[0]
    draws: str = wikipedia.DRAWS[0]
    count: int = 0
    seed: int = 42


Rows = Iterator[tuple[str, ...]]


@dataclass(frozen=True)
class Builder:
    """How to build a file."""

    output: str  # its name in recipes
    about: str
    sources: str  # what it reads, for people
    files: tuple[str, ...]  # patterns of the files that it reads in a folder, see `reading.resolve`
    unit: str  # what is read and counted
    makes: str  # what is written
    paper: str  # the papers' number of them, from all their data
    rows: Callable[[Sequence[str | Path], Options, Tally], Rows]
    header: tuple[str, ...] = ()  # of a CSV file; () for a text line each
    options: tuple[str, ...] = ()  # the fields of `Options` that have an effect
    count: int = 0  # the default


PAIR = ("sent0", "sent1")
NLI = "SNLI's and MNLI's folders, or hf:stanfordnlp/snli and hf:nyu-mll/multi_nli"
WIKIPEDIA = "…-pages-articles.xml.bz2 of dumps.wikimedia.org, or hf:wikimedia/wikipedia:20231101.en"
FLICKR = "Flickr30k's results_20130124.token, or results.csv"


def _triplets(neutral: bool = False) -> Callable[[Sequence[str | Path], Options, Tally], Rows]:
    def rows(files: Sequence[str | Path], options: Options, tally: Tally) -> Rows:
        pairs = nli.read_pairs(files, tally)
        return nli.triplets(pairs, tally, neutral, options.hypothesis)

    return rows


def _captions(files: Sequence[str | Path], options: Options, tally: Tally) -> Rows:
    found = (caption for captions in paraphrases.read_captions(files, tally).values() for caption in captions)
    if not options.count:
        return ((caption,) for caption in found)
    units: Iterator[Callable[[], list[str]]] = (partial(list, (caption,)) for caption in found)
    return ((unit[0],) for unit in draw(units, options.count, options.seed, tally))


BUILDERS = {
    "nli": Builder(
        "data/nli_for_simcse.csv",
        "supervised SimCSE's triplets",
        NLI,
        nli.FILES,
        "pairs",
        "triplets",
        "275,601 in the file that SimCSE's authors published, of SNLI's and MNLI's training sets",
        _triplets(),
        (*PAIR, "hard_neg"),
        ("splits", "hypothesis"),
    ),
    "nli_neutral": Builder(
        "data/nli_with_neutral.csv",
        "the same with a neutral hypothesis (SimCSE, Table 7)",
        NLI,
        nli.FILES,
        "pairs",
        "triplets with a neutral sentence",
        "not given",
        _triplets(neutral=True),
        (*PAIR, "hard_neg", "neutral"),
        ("splits", "hypothesis"),
    ),
    "nli_anli": Builder(
        "data/nli_anli.csv",
        "the triplets of NLI and of ANLI (SimCSE, Table 4); or data.train=NLI_FILE,ANLI_FILE",
        "the same, and ANLI's folder (R1, R2, R3) or hf:facebook/anli:plain_text:train_r1 and so on",
        nli.FILES,
        "pairs",
        "triplets",
        "not given; ANLI adds 52k entailment pairs, of which it does not say how many have a contradiction",
        _triplets(),
        (*PAIR, "hard_neg"),
        ("splits", "hypothesis"),
    ),
    "nli_pairs": Builder(
        "data/nli_pairs.csv",
        "all labelled pairs (SimCSE, Table 4; SBERT; the isotropy paper)",
        NLI,
        nli.FILES,
        "pairs",
        "pairs",
        "942k, 314k of each label, of SNLI's and MNLI's training sets (SimCSE, Table 4)",
        lambda files, options, tally: nli.labelled_pairs(nli.read_pairs(files, tally), tally),
        (*PAIR, "label"),
        ("splits",),
    ),
    "nli_sentences": Builder(
        "data/nli_sentences.txt",
        "the sentences without labels, for flow, whitening and SimCSE++'s Table 4",
        NLI,
        nli.FILES,
        "pairs",
        "sentences",
        "not given",
        lambda files, options, tally: nli.sentences(nli.read_pairs(files, tally), tally),
        options=("splits",),
    ),
    "qqp": Builder(
        "data/qqp.csv",
        "duplicate questions (SimCSE, Table 4)",
        f"GLUE's folder QQP, {paraphrases.QUORA}, or hf:nyu-mll/glue:qqp",
        paraphrases.QUESTION_FILES,
        "pairs",
        "pairs",
        "134k (SimCSE, Table 4)",
        lambda files, options, tally: paraphrases.qqp(files, tally),
        PAIR,
    ),
    "paranmt": Builder(
        "data/paranmt.csv",
        "back-translated paraphrases (SimCSE, Table 4)",
        "para-nmt-5m-processed.txt",
        paraphrases.PARAPHRASE_FILES,
        "pairs",
        "pairs",
        "5m (SimCSE, Table 4)",
        lambda files, options, tally: paraphrases.paranmt(files, tally),
        PAIR,
    ),
    "flickr_pairs": Builder(
        "data/flickr30k.csv",
        "any two captions of an image (SimCSE, Table 4)",
        FLICKR,
        paraphrases.CAPTION_FILES,
        "captions",
        "pairs",
        "318k (SimCSE, Table 4)",
        lambda files, options, tally: paraphrases.flickr_pairs(files, tally),
        PAIR,
    ),
    "flickr_captions": Builder(
        "data/flickr_captions.txt",
        "captions to search in (SimCSE, Table 8)",
        FLICKR,
        paraphrases.CAPTION_FILES,
        "captions",
        "captions",
        "150k, of the 158,915 there are (SimCSE, Table 8, which does not say how they were chosen)",
        _captions,
        options=("count", "seed"),
        count=150_000,
    ),
    "wiki_sentences": Builder(
        "data/wiki1m_for_simcse.txt",
        "unsupervised SimCSE's sentences",
        WIKIPEDIA,
        wikipedia.FILES,
        "pages",
        "sentences",
        "1,000,000 (SimCSE, Section 6)",
        lambda files, options, tally: wikipedia.sentences(files, tally, options.count, options.seed, options.draws),
        options=("count", "seed", "draws"),
        count=1_000_000,
    ),
    "wiki_documents": Builder(
        "data/wiki_documents.txt",
        "whole articles, for next sentences as positives (SimCSE, Table 2)",
        WIKIPEDIA,
        wikipedia.FILES,
        "pages",
        "sentences",
        "not given; here as many sentences as the other rows of the table have",
        lambda files, options, tally: wikipedia.documents(files, tally, options.count, options.seed),
        options=("count", "seed"),
        count=1_000_000,
    ),
}
