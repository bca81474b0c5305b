from simcse_jax.evaluation.analysis import page


def test_parts_of_other_commands_stay_in_the_page(tmp_path):
    def part(name: str, title: str) -> dict:
        return {name: page.part(name, title, [], [page.PageSection(f"part of {title}", "", "")])}

    page.write(tmp_path, {}, {}, part("geometry", "the old one"))
    page.write(tmp_path, {"a.json": {}}, {}, part("sentences", "second"))
    found = page.write(tmp_path, {}, {}, part("geometry", "third"))
    text = (tmp_path / "report.html").read_text()
    assert found == ["report.html"] and "the old one" not in text
    assert text.index('<h2 class="title">second</h2>') < text.index('<h2 class="title">third</h2>')
    assert text.count("<h2 id=") == 2 and "<title>second</title>" in text
    page.write(tmp_path, {}, {}, {"sentences": ""})  # not measured this time
    assert ">second<" not in (tmp_path / "report.html").read_text()
    (tmp_path / "report.html").write_bytes(b"another page \xff")
    page.write(tmp_path, {}, {}, part("rank", "ranks"))
    assert "another page" not in (tmp_path / "report.html").read_text()
