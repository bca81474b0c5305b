"""The files that recipes name, and how to build each. A builder is data and a function that yields rows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from simcse_jax.data.building import nli, paraphrases, wikipedia
from simcse_jax.data.building.reading import Tally, draw


@dataclass(frozen=True)
class BuildOptions:
    """The options of a builder, besides its sources."""

    hypothesis: str = nli.HYPOTHESES[0]
    draws: str = wikipedia.DRAWS[0]
    count: int = 0
    seed: int = 42


Files = Sequence[str | Path]
Rows = Iterator[tuple[str, ...]]


@dataclass(frozen=True)
class Builder:
    """How to build a file."""

    output: str  # its name in recipes
    about: str
    makes: str  # what is written
    paper: str  # the papers' number of them, from all their data
    rows: Callable[[Files, Tally, BuildOptions], Rows]
    header: tuple[str, ...] = ()  # of a CSV file; () for a text line each
    sources: str = ""  # what it reads, for people
    files: tuple[str, ...] = ()  # patterns of the files that it reads in a folder, see `reading.resolve`
    unit: str = "pairs"  # what is read and counted
    count: int = 0  # the default


def _triplets(files: Files, tally: Tally, options: BuildOptions, neutral: bool = False) -> Rows:
    return nli.triplets(nli.read_pairs(files, tally), tally, neutral, options.hypothesis)


def _captions(files: Files, tally: Tally, options: BuildOptions) -> Rows:
    captions = (caption for of_image in paraphrases.read_captions(files, tally).values() for caption in of_image)
    if options.count:
        units: Iterator[Callable[[], list[str]]] = (partial(list, [caption]) for caption in captions)
        captions = (unit[0] for unit in draw(units, options.count, options.seed, tally))
    return ((caption,) for caption in captions)


PAIR = ("sent0", "sent1")
NLI = "SNLI's and MNLI's folders, or hf:stanfordnlp/snli and hf:nyu-mll/multi_nli"
OF_NLI = partial(Builder, sources=NLI, files=nli.FILES)
FLICKR = "Flickr30k's results_20130124.token, or results.csv"
OF_FLICKR = partial(Builder, sources=FLICKR, files=paraphrases.CAPTION_FILES, unit="captions")
DUMP = "…-pages-articles.xml.bz2 of dumps.wikimedia.org, or hf:wikimedia/wikipedia:20231101.en"
OF_WIKIPEDIA = partial(Builder, sources=DUMP, files=wikipedia.FILES, unit="pages", count=1_000_000)
BUILDERS = {
    "nli": OF_NLI(
        "data/nli_for_simcse.csv",
        "supervised SimCSE's triplets",
        "triplets",
        "275,601 in the file that SimCSE's authors published, of SNLI's and MNLI's training sets",
        _triplets,
        (*PAIR, "hard_neg"),
    ),
    "nli_neutral": OF_NLI(
        "data/nli_with_neutral.csv",
        "the same with a neutral hypothesis (SimCSE, Table 7)",
        "triplets with a neutral sentence",
        "not given",
        partial(_triplets, neutral=True),
        (*PAIR, "hard_neg", "neutral"),
    ),
    "nli_anli": OF_NLI(
        "data/nli_anli.csv",
        "the triplets of NLI and of ANLI (SimCSE, Table 4); or data.train=NLI_FILE,ANLI_FILE",
        "triplets",
        "not given; ANLI adds 52k entailment pairs, of which it does not say how many have a contradiction",
        _triplets,
        (*PAIR, "hard_neg"),
        sources="the same, and ANLI's folder (R1, R2, R3) or hf:facebook/anli:plain_text:train_r1 and so on",
    ),
    "nli_pairs": OF_NLI(
        "data/nli_pairs.csv",
        "all labelled pairs (SimCSE, Table 4; SBERT; the isotropy paper)",
        "pairs",
        "942k, 314k of each label, of SNLI's and MNLI's training sets (SimCSE, Table 4)",
        lambda files, tally, options: nli.labelled_pairs(nli.read_pairs(files, tally), tally),
        (*PAIR, "label"),
    ),
    "nli_sentences": OF_NLI(
        "data/nli_sentences.txt",
        "the sentences without labels, as often as they occur, for flow, whitening and SimCSE++'s Table 4",
        "sentences",
        "not given",
        lambda files, tally, options: ((text,) for pair in nli.read_pairs(files, tally) for text in pair[:2]),
    ),
    "qqp": Builder(
        "data/qqp.csv",
        "duplicate questions (SimCSE, Table 4)",
        "pairs",
        "134k (SimCSE, Table 4)",
        lambda files, tally, options: paraphrases.qqp(files, tally),
        PAIR,
        f"GLUE's folder QQP, {paraphrases.QUORA}, or hf:nyu-mll/glue:qqp",
        paraphrases.QUESTION_FILES,
    ),
    "paranmt": Builder(
        "data/paranmt.csv",
        "back-translated paraphrases (SimCSE, Table 4)",
        "pairs",
        "5m (SimCSE, Table 4)",
        lambda files, tally, options: paraphrases.paranmt(files, tally),
        PAIR,
        "para-nmt-5m-processed.txt",
        paraphrases.PARAPHRASE_FILES,
    ),
    "flickr_pairs": OF_FLICKR(
        "data/flickr30k.csv",
        "any two captions of an image (SimCSE, Table 4)",
        "pairs",
        "318k (SimCSE, Table 4)",
        lambda files, tally, options: paraphrases.flickr_pairs(files, tally),
        PAIR,
    ),
    "flickr_captions": OF_FLICKR(
        "data/flickr_captions.txt",
        "captions to search in (SimCSE, Table 8)",
        "captions",
        "150k, of the 158,915 there are (SimCSE, Table 8, which does not say how they were chosen)",
        _captions,
        count=150_000,
    ),
    "wiki_sentences": OF_WIKIPEDIA(
        "data/wiki1m_for_simcse.txt",
        "unsupervised SimCSE's sentences",
        "sentences",
        "1,000,000 (SimCSE, Section 6)",
        lambda files, tally, options: wikipedia.sentences(files, tally, options.count, options.seed, options.draws),
    ),
    "wiki_documents": OF_WIKIPEDIA(
        "data/wiki_documents.txt",
        "whole articles, for next sentences as positives (SimCSE, Table 2)",
        "sentences",
        "not given; here as many sentences as the other rows of the table have",
        lambda files, tally, options: wikipedia.documents(files, tally, options.count, options.seed),
    ),
}
