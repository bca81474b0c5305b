from fastapi import FastAPI
from pydantic import BaseModel, Field

from simcse_jax.serving.api_page import page


class Question(BaseModel):
    text: str = Field(description="What <b>to</b> ask.", examples=["Why?"])
    many: int | None = Field(3, description="How often.")


def test_a_page_has_every_field_and_an_example_and_escapes_what_it_shows():
    app = FastAPI(title="A & B", version="1", description="Answers.")

    @app.post("/ask")
    def ask(question: Question) -> Question:
        """Asks."""

    found = page(app.openapi())
    assert "<h1>A &amp; B 1</h1>" in found and "What &lt;b&gt;to&lt;/b&gt; ask." in found
    assert "<code>many</code><td>integer or null, by default 3<td>How often." in found
    assert "<code>text</code><td>string (required)" in found
    assert "curl -X POST http://127.0.0.1:8000/ask" in found and "{&quot;text&quot;: &quot;Why?&quot;}" in found
    assert "src=" not in found and "http://cdn" not in found
