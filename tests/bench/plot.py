# SPDX-License-Identifier: Apache-2.0
"""A run as a picture: bars of what was reached beside limits, rival and targets.

python -m tests.bench.plot docs     draws docs/bench.svg anew out of docs/bench.json

Where docs/bench-peer.json is (of ``make bench-peer``), the rival's bars come from it:
they are as long beside ours as they were in that run. It is legible in light and in
dark mode.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path

from tests.bench.report import RATIO, Case, Document

_STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif }
.title { font-size: 15px; font-weight: 600 }
.paper { fill: #ffffff } .ink { fill: #1f2328 } .faint { fill: #59636e }
.limit { fill: #e1e4e8 } .ours { fill: #2f6fde } .rival { fill: #d9822b }
.asked { stroke: #1f2328; stroke-width: 2 } .missed { fill: #cf222e }
@media (prefers-color-scheme: dark) {
.paper { fill: #0d1117 } .ink { fill: #e6edf3 } .faint { fill: #9198a1 }
.limit { fill: #30363d } .ours { fill: #5b96f5 } .rival { fill: #e3a14d }
.asked { stroke: #e6edf3 } .missed { fill: #ff7b72 }
}
"""

# In pixels. Bars begin behind the names, and what they say stands behind the bars.
_WIDTH = 970
_BARS_X = 430
_FULL = 280  # a limit, or all that is allowed
_MOST = 1.2  # of that, where a bar is cut
_TEXT_X = 776
_ROW = 30
_HEADING = 62

_VERBS = {"spark": "read ", "sink": "write "}


def plot(document: Document, peer: Document | None = None) -> str:
    """The picture, as SVG.

    Args:
        document: What to draw: every case with a target.
        peer: The run beside the Scala connector, None where there was none.
    """
    asked = [case for case in document.cases if case.target is not None]
    groups = {
        "Rows a second, as a share of the limit (more is better)": [
            case for case in asked if case.figure == RATIO
        ],
        "Cost, as a share of what is allowed (less is better)": [
            case for case in asked if case.figure != RATIO
        ],
    }
    rivals = {case.what: case for case in (peer.cases if peer else ())}
    parts: list[str] = []
    y = 0
    for heading, cases in groups.items():
        if not cases:
            continue
        parts += _heading(y, heading, has_rivals=bool(rivals) and not y)
        y += _HEADING
        for case in cases:
            rival = rivals.get(case.what) if case.figure == RATIO else None
            parts += _row(y, case, rival)
            y += _ROW
    height = y + 16
    place = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {place} role="img">',
            "<title>What the benchmarks reached beside limits and targets</title>",
            f"<style>{_STYLE}</style>",
            _box("paper", 0, 0, _WIDTH, height),
            *parts,
            "</svg>\n",
        ]
    )


def _heading(y: float, text: str, *, has_rivals: bool) -> Iterator[str]:
    yield _text("title ink", 16, y + 26, text)
    names = {"ours": "pulsar_spark", "limit": "limit, or allowed"}
    if has_rivals:
        names["rival"] = "Scala connector"
    x = _BARS_X
    for style, name in names.items():
        yield _box(style, x, y + 39, 12, 10)
        yield _text("faint", x + 18, y + 49, name)
        x += 140
    yield _asked(x + 2, y + 36)
    yield _text("faint", x + 12, y + 49, "target")


def _row(y: float, case: Case, rival: Case | None) -> Iterator[str]:
    assert case.target is not None
    assert case.reached is not None
    whole = 1 if case.figure == RATIO else case.target
    share = case.reached / whole
    name = _VERBS.get(case.hop, f"{case.hop}: ") + case.what
    yield _text("ink", _BARS_X - 10, y + 17, name, ' text-anchor="end"')
    yield _box("limit", _BARS_X, y + 4, _FULL, 18)
    yield _box("ours", _BARS_X, y + 4, _length(share), 12 if rival else 18)
    if rival and rival.ratio:
        yield _box("rival", _BARS_X, y + 16, _length(share / rival.ratio), 6)
    yield _asked(_BARS_X + case.target / whole * _FULL, y + 1)
    reached = case.reached_text()
    if case.figure == RATIO:
        reached = f"{_rate(case)}, {reached} of the limit"
    else:
        reached += f" of {case.target:g}"
    yield _text("ink" if case.is_met else "missed", _TEXT_X, y + 17, reached)


def _length(share: float) -> float:
    return max(0, min(share, _MOST)) * _FULL


def _rate(case: Case) -> str:
    millions = case.rows_per_s / 1e6
    return f"{millions:.2f} M/s" if millions >= 0.1 else f"{millions * 1000:.0f} k/s"


def _text(style: str, x: float, y: float, text: str, more: str = "") -> str:
    return f'<text class="{style}" x="{x:g}" y="{y:g}"{more}>{escape(text)}</text>'


def _box(style: str, x: float, y: float, width: float, height: float) -> str:
    place = f'x="{x:g}" y="{y:g}" width="{width:.4g}" height="{height:g}"'
    return f'<rect class="{style}" {place}/>'


def _asked(x: float, y: float) -> str:
    return f'<path class="asked" d="M{x:g} {y:g}v24"/>'


def draw(folder: Path) -> None:
    """Draws ``bench.svg`` of a folder out of what else is there."""
    peer = folder / "bench-peer.json"
    picture = plot(
        Document.read(folder / "bench.json"),
        Document.read(peer) if peer.exists() else None,
    )
    (folder / "bench.svg").write_text(picture)


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
