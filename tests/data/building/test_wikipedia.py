import bz2
import gzip

import pytest
from support.data import raises
from support.later import later

from simcse_jax.data.building import wikipedia
from simcse_jax.data.building.reading import Tally
from simcse_jax.data.building.wikipedia import documents, read_pages, sentences

datasets = later("datasets")
HEAD = (
    '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" xml:lang="de">\n<siteinfo><namespaces>'
    '<namespace key="6">Datei</namespace><namespace key="0" /></namespaces></siteinfo>\n'
)


def page(title, text, ns=0, more=""):
    head = f"<page><title>{title}</title><ns>{ns}</ns><id>1</id>{more}<revision><id>2</id>"
    return f'{head}<text xml:space="preserve">{text}</text></revision></page>\n'


PAGES = [
    page("A", "One &amp; more. Two."),
    page("B", "#REDIRECT [[A]]", more='<redirect title="x" />'),
    page("Talk:A", "No.", ns=1),
    page("C", ""),
    page("D", "Three.\n\nFour."),
]
DUMP = (HEAD + "".join(PAGES) + "</mediawiki>\n").encode()
ALL = [("One & more.",), ("Two.",), ("Three.",), ("Four.",)]


@pytest.fixture
def dump(tmp_path, monkeypatch):
    """Its markup is plain text, so that the parser is not needed."""
    monkeypatch.setattr(wikipedia, "require", lambda *asked, **where: None)
    monkeypatch.setattr(wikipedia, "plain_text", lambda text, hidden: f"{text}" if hidden == {"datei"} else "")
    path = tmp_path / "xwiki-1-pages-articles.xml.bz2"
    path.write_bytes(bz2.compress(DUMP))
    return path


def test_articles_are_read_packed_or_not_all_or_a_sample_and_broken_or_repeated_dumps_refused(dump, tmp_path):
    assert list(sentences([dump], Tally("pages"), 0, 1)) == ALL
    tally = Tally("pages")
    three = list(sentences([dump], tally, 3, 1))
    assert len(three) == 3 and [line for line in ALL if line in three] == three
    assert tally.notes == ["4 sentences read, 3 used", "  1 dropped: not drawn"] and tally.used == 2
    assert {tuple(sentences([dump], Tally("pages"), 1, seed)) for seed in range(30)} == {(line,) for line in ALL}
    found = {tuple(sentences([dump], Tally("pages"), 2, seed, "articles")) for seed in range(20)}
    assert found == {tuple(ALL[:2]), tuple(ALL[2:])}
    assert list(documents([dump], Tally("pages"), 0, 1)) == [*ALL[:2], ("",), *ALL[2:], ("",)]
    tally = Tally("pages")
    assert len(list(documents([dump], tally, 3, 1))) == 5 and tally.used == 2
    contents = {"a.xml": DUMP, "b.gz": gzip.compress(DUMP), "c.xml-p1p9": DUMP, dump.name: dump.read_bytes()}
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
        tally = Tally("pages")
        found = [page() for page in read_pages([tmp_path / name], tally)]
        assert found == [["One & more.", "Two."], ["Three.", "Four."]]
        assert (tally.read, tally.used) == (5, 2)
        assert {*tally.dropped} == {"redirects", "no articles (talk, templates, categories)", "without a sentence"}
    for other in (dump.with_suffix(""), tmp_path / "xwiki-1-pages-articles-multistream.xml.bz2"):
        other.write_bytes(DUMP if other.suffix == ".xml" else dump.read_bytes())
        assert len(list(read_pages([other, dump], Tally("pages")))) == 2  # the same dump, compressed differently
    data = datasets.Dataset.from_dict({"title": ["A"], "text": ["Ada was born. She\n\nLife\nIt went on (so it did.)"]})
    data.save_to_disk(tmp_path / "saved")
    found = list(sentences([f"hf:{tmp_path}/saved"], Tally("pages"), 0, 1))
    assert found == [("It went on (so it did.)",)]
    for name, content, part in (
        ("x.bz2", bz2.compress(DUMP * 50)[:-20], "not a complete Wikipedia dump"),
        ("x.bz2", b"BZh9 no", "not a complete Wikipedia dump"),
        ("x.xml", DUMP[:-20], "not a complete Wikipedia dump"),
        ("x.gz", gzip.compress(DUMP, mtime=0)[:40] + b"\xff" * 40, "not a complete Wikipedia dump"),
        ("x.xml", b'<?xml version="1.0" encoding="none"?>' + DUMP, "not a complete Wikipedia dump"),
        ("x.xml", b"", "not a complete Wikipedia dump"),
        ("x.xml", b"<html></html>", "begins with <html>"),
        ("x.zip", b"PK", "unknown file type"),
    ):
        (tmp_path / name).write_bytes(content)
        raises(part, lambda: list(documents([tmp_path / name], Tally("pages"), 0, 1)))
