import json

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from simcse_jax.serving.replies import Later, Refused, refusal_of


def about(refused):
    return json.loads(refused.response().body)["error"]


def test_an_error_has_openai_s_form_and_names_the_first_wrong_field_or_when_to_come_again():
    found = Refused(400, "wrong", "input", "x").response()
    assert (found.status_code, found.headers["content-type"]) == (400, "application/json")
    expected = {"message": "wrong", "type": "invalid_request_error", "param": "input", "code": "x"}
    assert json.loads(found.body) == {"error": expected}
    assert about(Refused(500, "\ud800"))["type"] == "server_error"  # half a surrogate pair can be sent
    assert len(about(Refused(400, "x" * 10_000))["message"]) < 600
    found = Later(429, "full", 7.4)
    assert about(found)["type"] == "rate_limit_error" and found.response().headers["retry-after"] == "7"
    assert Later(503, "soon", 0).response().headers["retry-after"] == "1"
    assert refusal_of(found, "/") is found
    assert "/nowhere" in str(refusal_of(HTTPException(404), "/nowhere"))
    assert str(refusal_of(HTTPException(405), "/")) == "Method Not Allowed"
    assert refusal_of(ValueError("a secret"), "/").status == 500
    for error, param, message in WRONG:
        found = refusal_of(RequestValidationError([error]), "/")
        assert (found.status, found.param or None) == (400, param) and str(found).startswith(message)


WRONG = [
    ({"type": "missing", "loc": ("body", "input"), "msg": "Field required"}, "input", "input: Field required"),
    ({"type": "missing", "loc": ("body",), "msg": "Field required"}, None, "the body must be a JSON object"),
    ({"type": "extra_forbidden", "loc": ("body", "x"), "msg": "Extra"}, "x", "x: Extra"),
    ({"type": "string_type", "loc": ("body", "a", 7), "msg": "no string"}, "a", "a[7]: no string"),
    ({"type": "json_invalid", "loc": ("body", 3), "msg": "j", "ctx": {"error": "e"}}, None, "the body is not JSON"),
]
