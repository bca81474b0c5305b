from support.data import raises

from simcse_jax.evaluation.analysis.inputs import Models, choose, evenly, read_data


def test_the_first_sentences_of_sts_b_or_a_part_spread_evenly_over_the_data_are_taken(tmp_path):
    folder = tmp_path / "STS" / "STSBenchmark"
    folder.mkdir(parents=True)
    rows = [["g", "f", "2012", str(n), f"{n}.5", f'a "cat {n}', f"the dog {n}"] for n in range(3)]
    (folder / "sts-test.csv").write_text("".join("\t".join(row) + "\n" for row in rows))
    (folder / "sts-dev.csv").write_text("".join("\t".join(row) + "\n" for row in rows[1:]))
    expected = ['a "cat 0', 'a "cat 1', 'a "cat 2']
    file = folder / "sts-test.csv"
    assert read_data(str(tmp_path), None)[:2] == (expected, "STS-B test")
    assert read_data(str(file), None)[:2] == (expected, "sts-test.csv")
    assert read_data(str(file), None).pairs.second == ["the dog 0", "the dog 1", "the dog 2"]
    (tmp_path / "some.csv").write_text("text,note\nthe cat,x\na dog,y\n")
    assert read_data(str(tmp_path / "some.csv"), None) == (["the cat", "a dog"], "some.csv", None)
    assert read_data(str(tmp_path / "some.csv"), "note").sentences == ["x", "y"]
    assert read_data(str(tmp_path), split="dev")[:2] == (['a "cat 1', 'a "cat 2'], "STS-B dev")
    found = read_data(str(tmp_path), count=2)
    assert found.sentences == ['a "cat 0', 'a "cat 2'] and len(found.pairs.first) == 3
    assert evenly("abcdefg", 3) == ["a", "d", "g"] and evenly("abc", 9) == ["a", "b", "c"] and evenly([], 9) == []


def test_a_base_stands_before_its_model_pairs_before_the_others_and_what_is_the_same_is_refused():
    found = choose(["m/alone", "m/A=tuned"], [["tuned", "m/a"], ["m/B", "m/b=before"]])
    assert found == Models(
        {"a": "m/a", "tuned": "m/A", "before": "m/b", "B": "m/B", "alone": "m/alone"}, [("tuned", "a"), ("B", "before")]
    )
    shared = choose([], [["A", "base"], ["B", "base"], ["C", "B"]])
    assert list(shared.names) == ["base", "A", "B", "C"]
    assert shared.pairs == [("A", "base"), ("B", "base"), ("C", "B")]
    assert list(choose(["runs/a/model", "runs/b/model"], []).names) == ["a/model", "b/model"]  # of one name
    twice = choose(["c", "c"], [["a", "b"], ["a", "b"]])
    assert (list(twice.names), twice.pairs) == (["b", "a", "c"], [("a", "b")])
    for models, pairs, message in (
        (["a=x", "b=x"], [], "two models have the label x"),
        (["m/a", "b=a"], [], "two models have the label a"),
    ):
        raises(message, choose, models, pairs)
