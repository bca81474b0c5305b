import json

import pytest

from simcse_jax.errors import UserError
from simcse_jax.huggingface.settings import DEFAULTS, FILE, Settings, read_settings
from simcse_jax.index import similarity
from simcse_jax.models.config import SIMILARITIES


def write(folder, fields):
    (folder / FILE).write_text(json.dumps(fields))
    return folder


def test_a_folder_without_the_file_has_the_defaults(tmp_path):
    assert read_settings(tmp_path) == read_settings(write(tmp_path, {})) == DEFAULTS
    assert DEFAULTS.prompts == {"query": "", "document": ""}


def test_all_fields_are_read(tmp_path):
    fields = {"prompts": {"query": "q: ", "p": None}, "default_prompt_name": "query", "similarity_fn_name": "dot"}
    expected = Settings({"query": "q: ", "document": "", "p": ""}, "query", "dot", 8)
    assert read_settings(write(tmp_path, fields | {"truncate_dim": 8})) == expected


def test_the_prompts_of_another_kind_of_model_are_not_for_embeddings(tmp_path):
    fields = {"model_type": "CrossEncoder", "prompts": {"query": "q: "}, "similarity_fn_name": "maxsim"}
    assert read_settings(write(tmp_path, fields)) == Settings(model_type="CrossEncoder")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompts": ["a"]}, "prompts is"),
        ({"prompts": {"a": 1}}, "prompts is"),
        ({"default_prompt_name": "q"}, "default_prompt_name is 'q', but its prompts are query, document"),
        ({"default_prompt_name": ["q"]}, "default_prompt_name is"),
        ({"similarity_fn_name": "maxsim"}, "similarity_fn_name is 'maxsim'; supported are cosine"),
        ({"similarity_fn_name": ["dot"]}, "similarity_fn_name is"),
        ({"truncate_dim": 0}, "truncate_dim is 0; it must be a whole number"),
        ({"truncate_dim": True}, "truncate_dim is True"),
        ({"model_type": 3}, "model_type is 3, not a name"),
    ],
)
def test_damaged_fields_are_named(tmp_path, fields, message):
    with pytest.raises(UserError, match=f"{FILE}: {message}"):
        read_settings(write(tmp_path, fields))


def test_the_names_are_those_that_search_knows():
    assert SIMILARITIES == similarity.SIMILARITIES
