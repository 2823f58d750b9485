"""Pieces of the studies' charts. Colours follow the reader's theme."""
from xml.sax.saxutils import escape

STYLE = """
svg { background: #ffffff; font: 12px system-ui, sans-serif }
text { fill: #1c1f24 } .minor { fill: #57606a } .grid { stroke: #d9dde3 } .axis { stroke: #57606a }
.series { fill: none; stroke-width: 1.8 }
.first { stroke: #57606a } .second { stroke: #1a7f37 } .third { stroke: #0b62c4 } .fourth { stroke: #b42318 }
@media (prefers-color-scheme: dark) {
svg { background: #14171c }
text { fill: #e8eaed } .minor { fill: #a3abb5 } .grid { stroke: #333a44 } .axis { stroke: #a3abb5 }
.first { stroke: #b8c0ca } .second { stroke: #6fdd8b } .third { stroke: #79b8ff } .fourth { stroke: #ff8a80 }
}
"""


def text(x, y, words, attributes=""):
    return f"<text x='{x:.1f}' y='{y:.1f}' {attributes}>{escape(words)}</text>"
