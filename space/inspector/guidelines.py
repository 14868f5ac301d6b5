"""Guidelines for reviewers: Markdown of a card or a file in, a page's part out."""

from __future__ import annotations

import re

from inspector.characters import visible
from inspector.elements import Html

MAX_CHARS = 20_000
_ASK = "Read the task and the last messages. Which action would you rather see next?"
_REST = """
- **Neither** if both are as good, both are wrong, or it cannot be told from here: such a pair teaches nothing.
  The keys 1 to 5 give the reason.
- **Edit** if you know a better action that fits in one step.
- **Skip** if you are not the right person. Nothing is recorded.

Judge the action at this step, not its style. A shorter or more polite action is not better for that.
"""
_BLIND = "You do not see who proposed it: that and the votes appear once you have decided."
DEFAULT = {
    False: f"{_ASK} {_BLIND}\n\n- **A** or **B** if that action is clearly better.{_REST}",
    True: f"{_ASK}\n\n- **Accept** if the teachers' action is clearly better, **Swap** if the student's is.{_REST}",
}
"""Used if neither the Space nor the card has guidelines, by whether labels are open."""


def of_card(text: str) -> str:
    """Return the section of a card with the heading "Guidelines" or "Review guidelines", or ""."""
    found = re.search(r"^(#+)[^\n]*\bguidelines\s*$", text, re.MULTILINE | re.IGNORECASE)
    if found is None:
        return ""
    after = text[found.end() :]
    end = re.search(rf"^#{{1,{len(found[1])}}} ", after, re.MULTILINE)
    return after[: end.start() if end else None].strip()


def rendered(text: str) -> Html:
    """Return Markdown as markup without images and without the HTML in it; a link leads to http(s) alone."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": 20}).enable("table").disable("image")
    parser.validateLink = lambda url: url.startswith(("https://", "http://"))
    return Html(f'<div class="markdown">{parser.render(visible(text[:MAX_CHARS]))}</div>')
