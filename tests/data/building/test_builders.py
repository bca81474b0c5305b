import re

from support import ROOT

from simcse_jax.data.building.builders import BUILDERS

DOWNLOADED = {"data/english-wordnet.xml.gz", "data/glove.6B.300d.txt"}  # as they are
# DeCLUTR: any corpus of long documents; pairs with their negatives; SNCSE: sentences with their negations.
GIVEN = {"data/documents.txt", "data/mined.csv", "data/negated.csv", "data/wiki1m_negated.csv"}
NAMED = {  # by the recipes and the fields' defaults
    name
    for path in [*(ROOT / "configs").rglob("*.py"), ROOT / "simcse_jax/config/fields.py"]
    for name in re.findall(r"\bdata/[\w./-]+\.(?:csv|tsv|txt|jsonl|parquet|xml\.gz)", path.read_text(encoding="utf-8"))
}


def test_every_file_that_a_recipe_names_has_a_builder_and_its_page_says_so():
    outputs = [builder.output for builder in BUILDERS.values()]
    assert len(set(outputs)) == len(outputs)
    assert NAMED - {*outputs} == DOWNLOADED | GIVEN
    assert {*outputs} - NAMED == {"data/flickr_captions.txt"}  # Table 8 is a search
    for builder in BUILDERS.values():
        assert bool(builder.header) == builder.output.endswith(".csv")
    for path in sorted((ROOT / "configs").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        about, _, _ = text[3:].partition('"""')
        files = {name for name in NAMED - DOWNLOADED - GIVEN if name in text}
        for name, builder in BUILDERS.items():
            if builder.output in files:
                assert re.search(rf"build-data[^\n]*\b{name}\b|`{name}`", about), f"{path.name}: {builder.output}"
