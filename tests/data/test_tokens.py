import numpy as np
from support.data import raises

from simcse_jax.data.batches import tokenize
from simcse_jax.data.sources import Examples
from simcse_jax.data.tokens import Lengths, Prompts, check_prompts, padded_length, prompts_by_name, token_ids

PROMPTS = (Prompts("the ", "a cat "), Prompts("", "dog "))


def same(found, expected):
    assert [ids.tolist() for ids in found] == [ids.tolist() for ids in expected]


def test_sentences_have_the_prompt_and_length_of_their_source_and_column(tokenizer):
    # Of the first source two triplets, the second without its negative; of the second one a sentence alone.
    present = np.array([[True, True, True], [True, True, False], [True, False, False]])
    columns = (["cat", "dog sat", "ran home"], ["dog", "a cat", "ran home"], ["home", "", ""])
    examples = Examples(columns, 0, present=present, sources=np.array([0, 0, 1]))
    (anchors, positives, negatives), cut = token_ids(examples, tokenizer, Lengths(4, 6), PROMPTS)
    assert cut == 1  # "the dog sat", of five tokens with those at its ends
    same(anchors, tokenizer(["the cat", "the dog sat", "ran home"], 4))
    same(positives, [*tokenizer(["a cat dog", "a cat a cat"], 6), *tokenizer(["ran home"], 4)])  # itself, as an anchor
    same(negatives, tokenizer(["a cat home", "", ""], 6))  # nothing is put before what is not there
    columns, cut = token_ids(examples, tokenizer, Lengths(4, 4))
    assert cut == 0
    for found, column in zip(columns, examples.columns, strict=True):
        same(found, tokenizer(column, 4))
    long = Examples((["cat"] * 2, ["dog " * 30] * 2), 0)
    found = tokenize(long, tokenizer, Lengths(4, 30))
    assert found.lengths == (8, 30) and found.input_ids.shape == (2, 2, 30) and found.places.tolist() == [8, 30]
    whole = tokenize(long, tokenizer, 30)
    assert whole.lengths == () and whole.places.tolist() == [30, 30]
    alone = tokenize(Examples((["cat"] * 2,), 0), tokenizer, Lengths(4, 30), (Prompts("the ", ""),))
    assert alone.lengths == () and alone.prompts == (Prompts("the ", "the "),)  # also where pairs are made of them
    assert [padded_length(length, 30) for length in (0, 3, 8, 9, 29)] == [8, 8, 8, 16, 30]
    check_prompts(tokenizer, PROMPTS, Lengths(4, 5), "data.prompts.{}")
    raises("data.prompts.positive='a cat ': ", check_prompts, tokenizer, PROMPTS, Lengths(4, 4), "data.prompts.{}")
    assert prompts_by_name((), 2) == {} and prompts_by_name(PROMPTS, 2) == {}
    assert prompts_by_name((Prompts("q: ", "d: "),) * 2, 3) == {"query": "q: ", "document": "d: "}
    assert prompts_by_name((Prompts("q: ", ""),), 1) == {"query": "q: ", "document": "q: "}
