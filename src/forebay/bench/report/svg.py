"""A matplotlib figure as SVG that belongs to the page: its font, its colours, its ids.

Colours are sentinels while a figure is drawn and CSS variables afterwards, so one drawing serves light and dark.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from markupsafe import Markup

from forebay.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TEXT, MUTED, GRID, CARD = "#010001", "#010002", "#010003", "#010004"
BAD, GOOD = "#010005", "#010006"
SERIES = tuple(f"#0100{16 + i:02x}" for i in range(6))
USED, PROMISED, FREE, CACHED = (f"#0100{32 + i:02x}" for i in range(4))
PREFILL, DECODE, PEAK = "#010030", "#010031", "#010032"
CSS = {
    TEXT: "var(--text)",
    MUTED: "var(--muted)",
    GRID: "var(--grid)",
    CARD: "var(--card)",
    BAD: "var(--bad)",
    GOOD: "var(--good)",
    **{sentinel: f"var(--s{i})" for i, sentinel in enumerate(SERIES)},
    USED: "var(--used)",
    PROMISED: "var(--promised)",
    FREE: "var(--free)",
    CACHED: "var(--cached)",
    PREFILL: "var(--prefill)",
    DECODE: "var(--decode)",
    PEAK: "var(--peak)",
}
FONT_PX = 11.0
_SVG, _XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"
_LONG_NUMBER = re.compile(r"-?\d+\.\d{2,}(?:e-?\d+)?")
_SENTINEL = re.compile("|".join(CSS))
_FONT = re.compile(r"font(-family|-size|-stretch|-style|-variant|-weight)?:[^;]*;?\s*")
_POINT_PX = 72.0
_MARGIN = 10  # pixels around a drawing that is a file
_FILE_STYLE = """svg { font-family: system-ui, "Segoe UI", Roboto, Arial, sans-serif; stroke-linejoin: round; }
text { paint-order: stroke; stroke: var(--card); stroke-width: 3px; }"""


def require_matplotlib() -> None:
    """Raises MissingExtraError where matplotlib is not installed."""
    try:
        import matplotlib.figure  # noqa: F401  # importing it is the check
    except ImportError as error:
        raise MissingExtraError.of("matplotlib", "bench", "drawing a report") from error


def draw(width: float, height: float, paint: Callable[[Figure], None], *, name: str, label: str) -> Markup:
    """What `paint` draws on a figure of width x height CSS pixels, as one <svg> element.

    name: unique in the page; all ids begin with it. label: read aloud instead of the drawing. The same input gives the
    same bytes. Raises MissingExtraError.
    """
    require_matplotlib()
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # the browser has more fonts than matplotlib
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_settings(name))
        figure = Figure(figsize=(width / _POINT_PX, height / _POINT_PX))
        figure.patch.set_visible(False)
        paint(figure)
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    return Markup(_adopt(file.getvalue(), name, label))  # escaped by ElementTree


def _settings(name: str) -> Any:
    return {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "text.parse_math": False,  # a `$` in a label is a dollar
        "text.color": TEXT,
        "font.size": FONT_PX,
        "axes.edgecolor": GRID,
        "axes.labelcolor": MUTED,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "path.simplify_threshold": 0.2,
    }


def _adopt(svg: str, name: str, label: str) -> str:
    """Rewrite matplotlib's SVG: no namespaces, metadata or style sheet (which would apply to the whole page)."""
    root = ElementTree.fromstring(svg)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{_SVG}metadata", f"{_SVG}style"):
                parent.remove(child)
    kept = _referenced(root)
    ids = {old: f"{name}-{n}" for n, old in enumerate(kept)}
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
        element.attrib = {
            key.removeprefix(_XLINK): _attribute(key.removeprefix(_XLINK), value, ids)
            for key, value in element.attrib.items()
            if (key != "id" or value in ids) and not value.startswith("rotate(-0 ")
        }
        if element.tag != "text":
            element.text = element.tail = None
        element.tail = None
    root.attrib = {"viewBox": root.attrib["viewBox"], "role": "img", "aria-label": label}
    return ElementTree.tostring(root, encoding="unicode")


def _referenced(root: ElementTree.Element) -> list[str]:
    """The ids that something refers to, in document order."""
    wanted = set()
    for element in root.iter():
        for key, value in element.attrib.items():
            if key == f"{_XLINK}href":
                wanted.add(value.removeprefix("#"))
            wanted.update(re.findall(r"url\(#([^)]*)\)", value))
    return [element.attrib["id"] for element in root.iter() if element.attrib.get("id") in wanted]


def _attribute(key: str, value: str, ids: dict[str, str]) -> str:
    if key == "id":
        return ids[value]
    if key == "href":
        return f"#{ids[value.removeprefix('#')]}"
    value = re.sub(r"url\(#([^)]*)\)", lambda match: f"url(#{ids[match[1]]})", value)
    if key == "style":
        return _SENTINEL.sub(lambda match: CSS[match[0]], _font_size_only(value))
    value = _LONG_NUMBER.sub(lambda match: f"{float(match[0]):.1f}".removesuffix(".0"), value)
    return re.sub(r"\s*([A-Z])\s*", r"\1", value) if key == "d" else value


def _font_size_only(style: str) -> str:
    """Keep a text's size and weight; the family is the page's."""
    size = re.search(r"(\d+(?:\.\d+)?)px", style) if "font" in style else None
    if size is None:
        return style
    weight = "font-weight: 600; " if re.search(r"\b(bold|[67]00)\b", style) else ""
    return f"font-size: {size[1]}px; {weight}{_FONT.sub('', style)}".strip()


def standalone(drawing: Markup) -> str:
    """A drawing as a file of its own, in the page's font and colours, light or dark as its reader prefers."""
    palette = (Path(__file__).parent / "page.css").read_text("utf-8").partition("* {")[0].strip()
    root = ElementTree.fromstring(drawing)
    width, height = (float(word) + 2 * _MARGIN for word in root.attrib["viewBox"].split()[2:])
    size = {"width": f"{width:g}", "height": f"{height:g}"}
    root.attrib |= {"xmlns": _SVG[1:-1], "viewBox": f"{-_MARGIN} {-_MARGIN} {width:g} {height:g}", **size}
    style, ground = ElementTree.Element("style"), ElementTree.Element("rect")
    style.text = f"\n{palette}\n{_FILE_STYLE}\n"
    ground.attrib = {"x": f"{-_MARGIN}", "y": f"{-_MARGIN}", **size, "style": "fill: var(--card)"}
    root[:0] = [style, ground]
    return ElementTree.tostring(root, encoding="unicode") + "\n"
