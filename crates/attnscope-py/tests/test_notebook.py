"""What answers look like in a notebook, and that nothing in them can run."""

from __future__ import annotations

import base64
import json
import re
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import attnscope as at

# They say little of their types.
nbclient: Any = import_module("nbclient")
nbformat: Any = import_module("nbformat")

HOSTILE = "<script>alert(1)</script> <img src=x onerror=alert(2)> \"quoted\" & 'single' </pre></div>"

CELLS = [
    "import attnscope as at\nm = at.open('demo')\nm",
    "t = m.trace('Two dogs play in the snow.')\nt",
    "m.flow()",
    "m.summary()",
    "m.doctor(rules=['dead-head'])",
    "t['logits'].shape",
    "m.trace('A dog.', select='cross_atn')",
]


class Tags(HTMLParser):
    """Every tag with its attributes, and the text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag != "img":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        self.text += data


def check_inert(html: str) -> list[ElementTree.Element]:
    """That a piece of HTML can neither run nor fetch anything; its drawings."""
    tags = Tags(html)
    assert not tags.open and {tag for tag, _ in tags.seen} <= {"div", "pre", "img"}
    drawings: list[ElementTree.Element] = []
    for tag, attributes in tags.seen:
        assert set(attributes) <= {"style", "alt", "src"}, attributes
        assert "url(" not in (attributes.get("style") or "")
        if tag == "img":
            prefix, data = (attributes["src"] or "").split(",", 1)
            assert prefix == "data:image/svg+xml;base64"
            drawings.append(ElementTree.fromstring(base64.b64decode(data)))
    for drawing in drawings:
        for element in drawing.iter():
            assert not element.tag.endswith(("script", "foreignObject", "image", "}a", "use")), element.tag
            assert not [name for name in element.attrib if name.startswith("on") or name.endswith("href")]
            assert "@import" not in (element.text or "") and "url(http" not in (element.text or "")
    return drawings


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    folder = tmp_path_factory.mktemp("notebook")
    client = nbclient.NotebookClient(
        notebook, timeout=120, allow_errors=True, resources={"metadata": {"path": str(folder)}}
    )
    return client.execute()


def output(executed: Any, cell: int) -> Any:
    (one,) = executed.cells[cell].outputs
    return one


def test_a_notebook_shows_answers(executed: Any) -> None:
    drawings: dict[int, int] = {}
    for cell in (1, 2, 3, 4):
        data = output(executed, cell)["data"]
        drawings[cell] = len(check_inert(data["text/html"]))
        # What has no HTML, a terminal or a log, shows the same as text.
        assert len(data["text/plain"].splitlines()) > 3
    assert drawings[1] >= 1 and drawings[2] >= 1 and drawings[3] == drawings[4] == 0
    assert output(executed, 0)["data"]["text/plain"].startswith("<attnscope.Model demo")
    assert output(executed, 5)["data"]["text/plain"].endswith(", 4000)")


def test_a_notebook_shows_what_went_wrong(executed: Any) -> None:
    error = output(executed, 6)
    assert error["output_type"] == "error" and error["ename"] == "Error"
    assert "help: the nearest names are decoder.0.cross_attn" in error["evalue"]


def test_texts_of_users_stay_text(tmp_path: Path) -> None:
    model = at.open("demo")
    pairs = tmp_path / "<b>pairs.tsv"
    pairs.write_text(f"{HOSTILE}\t{HOSTILE}\nA dog.\tEin Hund.\n", "utf-8")
    answers = [
        model.trace(HOSTILE, target=HOSTILE),
        model.generate(HOSTILE, align=True, max_length=4),
        model.masks(HOSTILE),
        model.doctor([(HOSTILE, HOSTILE)] * 3, rules=["dead-head"]),
        at.audit(model, tmp_path / "out", pairs=pairs),
        at.check(text=f"title = {json.dumps(HOSTILE)}\n[given]\nscores = [[0, 0]]\n"),
    ]
    shown = ""
    for answer in answers:
        html = answer._repr_html_()
        drawings = check_inert(html)
        texts = [Tags(html).text, *("".join(drawing.itertext()) for drawing in drawings)]
        shown += "".join(texts)
    # It was there to be shown, and was.
    assert len(re.findall("script", shown)) >= 3 and "<b>pairs.tsv" in shown
