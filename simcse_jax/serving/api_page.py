"""The OpenAPI description as a page. It needs nothing from other machines, as Swagger's scripts would."""

import json
from collections.abc import Iterator
from html import escape
from typing import Any

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a }
h2 { margin-top: 2.5rem; font-size: 1.15rem } code, pre { font-family: ui-monospace, monospace; font-size: .9em }
pre { background: #f4f4f5; padding: .8rem; overflow-x: auto } table { border-collapse: collapse; width: 100% }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem; border-bottom: 1px solid #ddd }
.method { background: #1f5fa8; color: #fff; padding: .1rem .5rem; border-radius: .2rem; margin-right: .5rem }
"""


def page(description: dict[str, Any]) -> str:
    """A page of HTML."""
    info = description["info"]
    title = escape(f"{info['title']} {info['version']}")
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{STYLE}</style>",
        f"<h1>{title}</h1><p>{escape(info['description'])} The same for programs: "
        "<a href=/openapi.json>/openapi.json</a>.</p>",
    ]
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            parts += _operation(method.upper(), path, operation, description["components"]["schemas"])
    return "\n".join(parts)


def _operation(method: str, path: str, operation: dict[str, Any], schemas: dict[str, Any]) -> Iterator[str]:
    yield f"<h2><span class=method>{method}</span><code>{escape(path)}</code></h2>"
    yield f"<p>{escape(operation.get('description', ''))}</p>"
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if body:
        schema = schemas[_name(body["schema"])]
        yield "<p>Request:</p>"
        yield from _fields(schema)
        yield f"<pre>{escape(_example(method, path, schema))}</pre>"
    answer = operation["responses"].get("200", {}).get("content", {}).get("application/json", {}).get("schema", {})
    if "$ref" in answer:
        yield "<p>Answer:</p>"
        yield from _fields(schemas[_name(answer)])


def _fields(schema: dict[str, Any]) -> Iterator[str]:
    yield "<table><tr><th>field<th>type<th>meaning</tr>"
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        marks = " (required)" if name in required else f", by default {field['default']}" if "default" in field else ""
        about = escape(field.get("description", ""))
        yield f"<tr><td><code>{escape(name)}</code><td>{escape(_type(field) + marks)}<td>{about}</tr>"
    yield "</table>"


def _type(field: dict[str, Any]) -> str:
    if "anyOf" in field:
        return " or ".join(_type(option) for option in field["anyOf"])
    if "enum" in field:
        return " or ".join(map(str, field["enum"]))
    if "const" in field:
        return str(field["const"])
    if "$ref" in field:
        return _name(field)
    kind = field.get("type", "anything")
    return f"list of {_type(field['items'])}" if kind == "array" else str(kind)


def _example(method: str, path: str, schema: dict[str, Any]) -> str:
    fields = {
        name: field.get("examples", ["MODEL"])[0]
        for name, field in schema["properties"].items()
        if "examples" in field or name in schema.get("required", ())
    }
    at = f"http://127.0.0.1:8000{path}"
    return f"curl -X {method} {at} -H 'Content-Type: application/json' -d '{json.dumps(fields, ensure_ascii=False)}'"


def _name(schema: dict[str, Any]) -> str:
    return str(schema["$ref"].rsplit("/", 1)[-1])
