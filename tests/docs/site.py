"""What the site of docs/ needs beside its pages: the README as its start, and no links to what is not in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_OUTSIDE = re.compile(r"\[([^]]+)\]\((?!https?:|#)([^)\s]+)\)")


def on_files(files: Any, config: Any) -> Any:
    """Adds the README as the first page."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "index.md", content=(ROOT / "README.md").read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links as the site has them; what lies outside docs/, in the repository, is named and not linked."""
    folder = ROOT if page.file.src_uri == "index.md" else ROOT / "docs"

    def there(link: re.Match[str]) -> str:
        words, (path, mark, anchor) = link[1], link[2].partition("#")
        target = (folder / path).resolve()
        if target == ROOT / "README.md":
            return f"[{words}](index.md{mark}{anchor})"
        if not target.is_relative_to(ROOT / "docs"):
            return words
        return f"[{words}]({target.relative_to(ROOT / 'docs')}{mark}{anchor})"

    return _OUTSIDE.sub(there, markdown)
