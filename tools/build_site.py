#!/usr/bin/env python3
"""Makes the documentation site: all pages of docs/ and what they link to, and the comm interface.

    tools/build_site.py OUT

OUT/index.html is the README. OUT/api, made by doxygen from tools/Doxyfile, describes the C header
and the public headers of comm. The site needs no network: a browser opens it from files. Fails on a
warning of mkdocs or doxygen, and on a link of any page that leads to no file or no anchor.

Needs mkdocs of PyPI in the Python that runs it, or in build/test-data/venv, and doxygen. Exits 77
without them.
"""

import html.parser
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV_PYTHON = ROOT / "build" / "test-data" / "venv" / "bin" / "python"
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def linked_files(page):
    """Files of the project that a page links to."""
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        path = (page.parent / target).resolve()
        if "://" not in target and path.is_file() and path.is_relative_to(ROOT):
            yield path


def stage(folder):
    """Copies the README, the pages of docs/, and all that they link to, directly or not."""
    waiting = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
        if path.suffix == ".md":
            fresh = sorted(set(linked_files(path)) - seen)
            seen.update(fresh)
            waiting += fresh


def navigation():
    """The tables of docs/README.md, then the interface of comm, designs and results."""
    docs = ROOT / "docs"
    parts = [{"tandem": "README.md"}]
    for section in re.split(r"^## ", (docs / "README.md").read_text(encoding="utf-8"), flags=re.M)[1:]:
        title, _, body = section.partition("\n")
        pages = re.findall(r"\[([^\]]+)\]\(([^)#]+\.md)\)", body)
        parts.append({title.strip(): [{name: os.path.relpath((docs / path).resolve(), ROOT)} for name, path in pages]})
    parts.append({"Interface of comm": "api/index.html"})
    for title, name in (("Design notes", "design"), ("Results", "results")):
        parts.append({title: [str(path.relative_to(ROOT)) for path in sorted((docs / name).glob("*.md"))]})
    return parts


def anchor_of(title, _separator):
    """Anchors as GitHub makes them, which the documents use."""
    return re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")


def build_pages(pages, out):
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    empty = pages.parent / "mkdocs.yml"
    empty.write_text("site_name: tandem\n")
    build(
        load_config(
            str(empty),
            docs_dir=str(pages),
            site_dir=str(out),
            strict=True,
            use_directory_urls=False,
            theme={"name": "readthedocs", "highlightjs": False, "include_homepage_in_sidebar": False},
            plugins=["search"],
            markdown_extensions=["tables", "fenced_code", {"toc": {"slugify": anchor_of}}],
            nav=navigation(),
            validation={"links": {"not_found": "warn", "anchors": "warn", "absolute_links": "warn", "unrecognized_links": "warn"}},
        )
    )
    (out / "404.html").unlink()  # of a web server's root


class Page(html.parser.HTMLParser):
    """Links and anchors of one page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.anchors.update(value for name, value in attributes if name == "id" or (tag == "a" and name == "name"))
        self.links += [value for name in ("href", "src") if (value := values.get(name))]


def broken_links(site):
    pages = {path.resolve(): Page(path) for path in site.rglob("*.html")}
    for path, page in pages.items():
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc or link == "#":
                continue
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            anchor = urllib.parse.unquote(parts.fragment)
            if not target.exists():
                yield f"{path.relative_to(site)}: {link} leads to no file"
            elif anchor and target in pages and anchor not in pages[target].anchors:
                yield f"{path.relative_to(site)}: {link} leads to no anchor"


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    try:
        import mkdocs  # noqa: F401
    except ImportError:
        if VENV_PYTHON.exists() and Path(sys.executable) != VENV_PYTHON:
            os.execv(VENV_PYTHON, [str(VENV_PYTHON), *sys.argv])
        print("SKIPPED: needs mkdocs (scripts/fetch_python_packages.sh)")
        raise SystemExit(77) from None
    if not shutil.which("doxygen"):
        print("SKIPPED: needs doxygen (apt install doxygen)")
        raise SystemExit(77)
    site = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as scratch:
        pages = Path(scratch) / "pages"
        stage(pages)
        subprocess.run(["doxygen", "tools/Doxyfile"], cwd=ROOT, check=True, env={**os.environ, "OUT": str(pages)})
        build_pages(pages, site)
    broken = list(broken_links(site))
    for line in broken:
        print(line)
    print(f"build_site: {len(list(site.rglob('*.html')))} pages, {len(broken)} broken links")
    raise SystemExit(1 if broken else 0)


if __name__ == "__main__":
    main()
