import json

from simcse_jax.serving import replies


def about(response):
    return json.loads(response.body)["error"]


def test_an_error_has_openai_s_form_and_names_the_first_wrong_field_or_when_to_come_again():
    found = replies.error(400, "wrong", "input", "x")
    assert found.status_code == 400 and found.media_type == "application/json"
    assert about(found) == {"message": "wrong", "type": "invalid_request_error", "param": "input", "code": "x"}
    assert about(replies.error(500, "\ud800"))["type"] == "server_error"  # half a surrogate pair can be sent
    assert len(about(replies.error(400, "x" * 10_000))["message"]) < 600
    found = replies.retry(429, "full", 7.4)
    assert found.headers["retry-after"] == "7" and about(found)["type"] == "rate_limit_error"
    assert replies.retry(503, "soon", 0).headers["retry-after"] == "1"
    assert "/nowhere" in about(replies.plain(404, "/nowhere"))["message"]
    assert about(replies.plain(405, "/"))["message"] == "Method Not Allowed"
    for error, param, message in WRONG:
        found = about(replies.wrong_fields([error]))
        assert found["param"] == param and found["message"].startswith(message)


WRONG = [
    ({"type": "missing", "loc": ("body", "input"), "msg": "Field required"}, "input", "input: is missing"),
    ({"type": "missing", "loc": ("body",), "msg": "Field required"}, None, "the body must be a JSON object"),
    ({"type": "extra_forbidden", "loc": ("body", "x"), "msg": "Extra"}, "x", "'x': no such field"),
    ({"type": "int_type", "loc": ("body", "a", "b"), "msg": "no integer"}, "a", "a: no integer"),
    ({"type": "json_invalid", "loc": ("body", 3), "msg": "j", "ctx": {"error": "e"}}, None, "the body is not JSON"),
]
