#!/usr/bin/env python3
"""Counts what a new extension touches: which files outside its own name the youngest of each kind.

    tools/check_extensions.py               # exits 1 where the table in docs/architecture.md has something else
    tools/check_extensions.py --write       # writes that table anew
    tools/check_extensions.py --self-test

Tests, documents and comments do not count.
"""

import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENT = "docs/architecture.md"
BEGIN, END = "<!-- made by tools/check_extensions.py --write -->\n", "<!-- end of extensions -->\n"
FOLDERS = ("src", "apps", "cmake")
# The new parts: an example, the paths of its own files, and the files that name it elsewhere.
EXTENSIONS = {
    "task": ("token classification", r"tasks/token_classification/", r"token_?classification"),
    "head": ("…ForSequenceClassification's", r"models/heads/sequence_head\.", r"sequence_head\.(?:h|cc)|make_sequence_head"),
    "kind of layer": ("BERT's", r"models/layers/post_norm/", r"post_?norm"),
    "family": ("ELECTRA", r"models/families/electra\.cc", r"kelectra\b|electra\.cc"),
    "tokenizer model": ("Unigram", r"text/(?:unigram|sentencepiece)", r"unigram"),
    "kernel": ("int8 products on AVX2", r"kernels/int8_avx2\.", r"int8_?avx2"),
    "instruction set": ("AVX512_VNNI", r"kernels/(?:simd/)?\w*avx512vnni", r"avx512_?vnni"),
}
COMMENT = re.compile(r"//[^\n]*")
COMMENT_OF_CMAKE = re.compile(r"#[^\n]*")


def is_test(path):
    return re.search(r"(?:^|[_/])(?:test|double)_|_test|_probe", path) is not None


def code(path):
    """A file's text without comments."""
    comment = COMMENT if path.suffix in (".h", ".cc") else COMMENT_OF_CMAKE
    return comment.sub("", path.read_text())


def sources(root):
    """The text of every file that is built, by its path."""
    paths = (p for folder in FOLDERS for p in (root / folder).rglob("*") if p.suffix in (".h", ".cc", ".cmake") or p.name == "CMakeLists.txt")
    return {str(p.relative_to(root)): code(p) for p in sorted(paths) if not is_test(str(p.relative_to(root)))}


def touched(texts, own, names):
    """(how many files are the extension's own, which others name it)."""
    its = [path for path in texts if re.search(own, path)]
    return len(its), [path for path, text in texts.items() if path not in its and re.search(names, text, re.IGNORECASE)]


def table(root, extensions):
    texts = sources(root)
    rows = ["| a new … | for example | files of its own | others that name it |", "|---|---|---|---|"]
    for kind, (example, own, names) in extensions.items():
        count, others = touched(texts, own, names)
        rows.append(f"| {kind} | {example} | {count} | {len(others)}: {', '.join(f'`{path}`' for path in others)} |")
    return "\n".join(rows) + "\n"


def self_test():
    files = {
        "src/tandem/text/unigram.cc": "unigram",
        "src/tandem/text/table.cc": "&kUnigramType",
        "src/tandem/text/other.cc": "x; // as Unigram does",
        "src/tandem/text/other_test.cc": "Unigram",
        "src/tandem/text/CMakeLists.txt": "# unigram\n",
    }
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        made = table(root, {"model": ("Unigram", r"text/unigram", r"unigram")})
        assert made.endswith("| model | Unigram | 1 | 1: `src/tandem/text/table.cc` |\n"), made
    print("check_extensions: self-test passed")
    return 0


def main():
    if "--self-test" in sys.argv:
        return self_test()
    document = (ROOT / DOCUMENT).read_text()
    made = table(ROOT, EXTENSIONS)
    if "--write" in sys.argv:
        before, rest = document.split(BEGIN)
        (ROOT / DOCUMENT).write_text(before + BEGIN + made + END + rest.split(END)[1])
        return 0
    if BEGIN + made + END in document:
        print(f"check_extensions: {len(EXTENSIONS)} kinds")
        return 0
    print(f"{DOCUMENT}: new extensions touch other files than it lists; tools/check_extensions.py --write, and look at what came to it")
    return 1


if __name__ == "__main__":
    sys.exit(main())
