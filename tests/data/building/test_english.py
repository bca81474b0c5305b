import pytest

from simcse_jax.data.building.english import split_sentences


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("Mr. J. Smith met Dr. Who. He left.", ["Mr. J. Smith met Dr. Who.", "He left."]),
        ("The U.S. Army came. It went.", ["The U.S. Army came.", "It went."]),
        ('He said "No!" Then (see Fig. 3) it rained.', ['He said "No!"', "Then (see Fig. 3) it rained."]),
        ("It was 3.5 m. high. it stayed. 5 came.", ["It was 3.5 m. high. it stayed.", "5 came."]),
        ('It ended (at last.) "Why?" he asked.', ["It ended (at last.)", '"Why?" he asked.']),
        ("A line\nanother line. \n\n Third.", ["A line", "another line.", "Third."]),
        ("Élan vital. Über alles. ¿Qué?", ["Élan vital.", "Über alles. ¿Qué?"]),
        ("Wait... What? No.", ["Wait...", "What?", "No."]),
        ("", []),
    ],
)
def test_sentences_end_where_the_rule_says(text, sentences):
    assert split_sentences(text) == sentences


def test_a_long_run_of_points_takes_no_longer():
    assert len(split_sentences("A " + "." * 500_000 + "x.")) == 1  # hours, if each point began a search
