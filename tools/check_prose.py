#!/usr/bin/env python3
"""Checks the language of documents, comments and messages: docs/glossary.md, "Language".

    tools/check_prose.py [FILE...]     # default: every file of the checkout
    tools/check_prose.py --self-test

Rules, by the number that a finding shows:
  opening   a sentence that is no question begins with Who, Whoever, Whose, Whom, Nobody, What, or a bare Of
  idiom     a phrase of the list below, each with what to write instead
  length    a sentence of a document has more than 25 words
  columns   a line of a document has more than 100 columns (tables, code and lines without a blank are exempt)
  name      a retired identifier, or a retired word in the name of a test
"""

import io
import itertools
import pathlib
import re
import subprocess
import sys
import tokenize

ROOT = pathlib.Path(__file__).resolve().parents[1]
WORDS = 25
COLUMNS = 100
# These quote the phrases that the rules refuse.
EXEMPT = {"tools/check_prose.py", "tools/check_commit_message.py", "CODE_OF_CONDUCT.md", "LICENSE"}

OPENING = re.compile(r"(?:Who|Whoever|Whose|Whom|Nobody|What(?!'))\b|Of (?!course\b)")
INVERSION = re.compile(r"(?:Is|Are|Was|Were|Does|Has|Have) (?:the|a|an|it|there) [^?]*$")
IDIOMS = (
    (r"\bin vain\b", "repeated failed …"),
    (r"\bfor ever\b", "forever"),
    (r"\bgo(?:es|ing)? on from\b", "resume from"),
    (r"\bgets? on\b", "still running, progress"),
    (r"\bis (?:none|nobody)\b", "is not a …, invalid, unknown"),
    (r"\bknows? of no\b", "unknown"),
    (r"\bhas got\b", "has"),
    (r"\bat hand\b", "available"),
    (r"\bin turns\b", "alternately"),
    (r"\bby itself alone\b", "alone"),
    (r"\b(?:is|are) dear\b", "expensive"),
    (r"\bgreets?\b", "handshake"),
    (r"\bknock(?:s|ing|ed)?\b", "probe, connect"),
    (r"(?<![Tt]here )\b(?:is|are|was|were) no (?!longer|more|less|fewer|other)\w", "is not a …"),
    (r"\bwhoever\b", "the rank that …, the process that …"),
    (r"\bthe place of\b", "replaces, instead of"),
    (r"\bgive(?:s|n)? words\b", "log, send"),
    (r"(?<![$:])\b(?:[Nn]obody|[Ww]ho(?:ever|m))\b", "no rank, the process that …"),
    (r"\b(?:go|goes|going|gone|went) on\b", "continue, resume"),
    (
        r"(?<!message )(?<![:.])\b(?:says?|said|saying|tells?|told|telling|hears?|heard|speaks?|spoken)\b(?!\()",
        "log, print, report, send; a text states, lists, has",
    ),
)
# Programs and their parts are not persons: "the rank that waits", not "who waits". A sentence about one of these may use the word.
WHO = re.compile(r"\bwho\b(?!')")
PERSONS = re.compile(r"\b(?:people|persons?|users?|readers?|developers?|maintainers?|operators?|administrators?|authors?|attackers?)\b", re.I)
# Identifiers of C++ that have a standard word: folders ("" is everywhere), what the words of an identifier must not be, and what to write instead. A word counts
# inside compounds (own_card, AgentCard) and in the plural. Exceptions follow from the folders: hub and report have data-set and model cards, models have families,
# plugins have libfabric's fabrics, kernels have vector lanes, the schedules of learning rates have torch's patience.
PROTOCOL = ("src/tandem/comm/", "src/tandem/elastic/", "src/tandem/launch/", "src/tandem/rendezvous/")
RETIRED_NAMES = (
    (("",), "vigil", "BootstrapMonitor"),
    (("",), "lobby", "PendingConnections"),
    (("",), "reunion", "ShrinkAgreement"),
    (("",), "roster", "ShrinkPeers"),
    (("",), "seat", "AgentChannel, WorkerChannel"),
    (("",), "keeper", "ElasticCallbacks"),
    (("",), "founder", "bootstrap node"),
    (("",), "comer", "joining node"),
    (("",), "asker", "requester"),
    (("",), "crier", "broadcast fan-out"),
    (("",), "levelled", "synced"),
    (("",), "lesson", "TransferMessage"),
    (("",), "nap", "poll_timeout"),
    (("",), "knock", "probe"),
    (("",), "stillness", "IdleTime"),
    (("",), "voice", "LogPrefix"),
    (("",), "sibling", "local_processes"),
    (("",), "twin", "reference"),
    (("",), "guest", "connection, client"),
    (("",), "stranger", "unauthenticated_peer"),
    (("",), "standin", "proxy"),
    (PROTOCOL, "hello", "handshake"),
    (PROTOCOL, "card", "PeerInfo, info"),
    (PROTOCOL, "door", "ListenAddress"),
    (PROTOCOL, "account", "TrainingProgress"),
    (PROTOCOL, "holding", "NodeState"),
    (PROTOCOL, "patience", "timeout, max_wait"),
    (PROTOCOL, "helper", "daemon, ProgressThread"),
    (("src/tandem/elastic/", "tests/membership/"), "fact", "AppMessage"),
    (("src/tandem/elastic/",), "boundary", "reconfiguration point"),
    (("src/tandem/comm/collectives/",), "lane", "rail"),
    (("src/tandem/comm/collectives/",), "family", "context"),
    (("src/tandem/job/", "src/tandem/dist/", "src/tandem/elastic/"), "account", "TrainingProgress"),
    *((("",), word, "log, send, report, receive") for word in ("say", "said", "tell", "told", "hear", "heard", "speak", "speaker")),
)
# Retired as names of their own; in_place, place_workers and the like are the field's.
RETIRED_WHOLE = {name: "location, position, address, index, path" for name in ("place", "place_", "places", "places_", "Place")}
# Words that a test's name must not have: programs do not say anything, and a test names the rank, node or worker.
RETIRED_IN_TESTS = {
    **dict.fromkeys(("say", "says", "said", "tell", "tells", "told", "hear", "hears", "heard", "speak", "speaks"), "log, report, name, state"),
    **dict.fromkeys(("nobody", "who", "whoever", "whom", "somebody", "everybody", "anybody"), "the rank, node, worker or peer"),
    **dict.fromkeys(("stranger", "strangers", "guest", "guests"), "unauthenticated peer, connection"),
}
RETIRED_PHRASES_IN_TESTS = {
    "GoOn": "continue, resume",
    "GoesOn": "continue, resume",
    "ForEver": "forever",
    "InVain": "repeated failed …",
    "AtHand": "available",
}
TEST_NAME = re.compile(r"\bTEST(?:_F|_P)?\(\s*\w+,\s*(\w+)\s*\)")
# Test names are sentences, and these identifiers mean something else.
NAME_EXCEPTIONS = re.compile(r"[a-z]*_?family_?[a-z]*|ss_family|sa_family|[A-Z]\w{18,}|RankCores|kBoundary\w*")

SUFFIXES = {
    ".md": "markdown",
    ".cc": "c",
    ".h": "c",
    ".c": "c",
    ".py": "python",
    ".sh": "shell",
    ".cmake": "shell",
    ".yaml": "shell",
    ".yml": "shell",
    ".txt": "shell",
}


def kind_of(path):
    if path.name == "CMakeLists.txt" or path.suffix in (".cmake", ".sh", ".yaml", ".yml"):
        return "shell"
    return SUFFIXES.get(path.suffix) if path.suffix != ".txt" else None


# ---- what is prose in a file: (line number, text) of each block ---------------------------------------------------------------------------------------


def markdown_blocks(text):
    """Paragraphs and items, code left out; each cell of a table is a block."""
    block, begin, code = [], 0, False
    for number, line in enumerate([*text.split("\n"), ""], 1):
        stripped = line.strip()
        if stripped.startswith("```"):
            code = not code
            stripped = ""
        elif code:
            continue
        starts = not stripped or stripped.startswith(("#", "|", "<!--")) or re.match(r"(?:[-*]|\d+\.) ", stripped)
        if block and starts:
            yield begin, " ".join(block)
            block = []
        if stripped.startswith("|"):
            for cell in stripped.strip("|").split("|"):
                yield number, cell.strip()
        elif stripped and not stripped.startswith(("<!--", "#")):
            begin = begin if block else number
            block.append(re.sub(r"^(?:[-*]|\d+\.) ", "", stripped))


C_COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|R"([^\s()\\]*)\(.*?\)\1"|\'(?:[^\'\\\n]|\\.)+\'', re.S)


def c_blocks(text):
    """Comments, those of following lines joined, and string literals that are sentences."""
    block, begin, last = [], 0, -2
    for match in C_COMMENT.finditer(text):
        number = text.count("\n", 0, match.start()) + 1
        if not match[0].startswith("//"):
            if match[0].startswith('"') and " " in match[0]:
                yield number, match[0].strip('"')
            continue
        if block and number != last + 1:
            yield begin, " ".join(block)
            block = []
        begin = begin if block else number
        block.append(match[0].lstrip("/ "))
        last = number
    if block:
        yield begin, " ".join(block)


def hash_blocks(lines):
    block, begin = [], 0
    for number, line in enumerate([*lines, ""], 1):
        stripped = line.strip()
        if stripped.startswith("#") and not stripped.startswith("#!"):
            begin = begin if block else number
            block.append(stripped.lstrip("# "))
        elif block:
            yield begin, " ".join(block)
            block = []


def python_blocks(text):
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")
        elif token.type == tokenize.STRING and token.string.startswith(('"""', 'r"""')):
            yield token.start[0], token.string.strip('r"')


def blocks_of(kind, text):
    if kind == "markdown":
        return markdown_blocks(text)
    if kind == "c":
        return c_blocks(text)
    if kind == "python":
        return python_blocks(text)
    return hash_blocks(text.split("\n"))


# ---- rules ------------------------------------------------------------------------------------------------------------------------------------------


def plain(sentence):
    """Without links and emphasis."""
    sentence = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", sentence)
    return re.sub(r"\*{1,3}(?=\S)|(?<=\S)\*{1,3}", "", sentence).replace("`", "").lstrip("([ ").rstrip()


def sentences_of(text):
    # A code span counts as one word, and a period in it ends nothing; nor does one behind a single letter or an abbreviation.
    text = re.sub(r"`[^`]*`", "`code`", text)
    return [plain(part) for part in re.split(r"(?<=[.!?])(?<!\b\w\.)(?<!e\.g\.)(?<!i\.e\.)\**\s+(?=[A-Z`*\[(])|(?<=[。！？])", text) if part.strip()]


def findings_in_block(text, document):
    for sentence in sentences_of(text):
        # Two words without an end are data: "Who is", a prompt.
        if OPENING.match(sentence) and not sentence.endswith("?") and not re.fullmatch(r"\w+ \w+", sentence):
            yield "opening", sentence
        if INVERSION.match(sentence) and not sentence.endswith("?") and "," in sentence:
            yield "idiom", f"{sentence}  (inversion; write: if …)"
        for pattern, instead in IDIOMS:
            if re.search(pattern, sentence):
                yield "idiom", f"{sentence}  (write: {instead})"
        if WHO.search(sentence) and not sentence.endswith("?") and not PERSONS.search(sentence):
            yield "idiom", f"{sentence}  (write: the rank that …, which)"
        if document and len(sentence.split()) > WORDS:
            yield "length", f"{len(sentence.split())} words: {sentence}"


def long_lines(text):
    code = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip().startswith("```"):
            code = not code
        if not code and len(line) > COLUMNS and not line.lstrip().startswith("|") and " " in line.strip(" -*") and not line.startswith("<!--"):
            yield number


def findings_of(name, text):
    kind = kind_of(pathlib.Path(name))
    for number, block in blocks_of(kind, text):
        for rule, what in findings_in_block(block, kind == "markdown"):
            yield f"{name}:{number}: {rule}: {what[:150]}"
    if kind == "markdown":
        for number in long_lines(text):
            yield f"{name}:{number}: columns: more than {COLUMNS}"
    if kind == "python":
        for number, finding in retired_python_names(text):
            yield f"{name}:{number}: name: {finding}"
    if kind == "c":
        for number, finding in (*retired_names(name, text), *retired_test_names(text)):
            yield f"{name}:{number}: name: {finding}"


def words_of(identifier):
    """agent_card, kAgentCards → agent, card(s); StandIn → standin, too."""
    words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", identifier)]
    return {form for word in [*words, *(a + b for a, b in itertools.pairwise(words))] for form in (word, word.removesuffix("s"))}


def retired_names(name, text):
    rules = [(word, instead) for folders, word, instead in RETIRED_NAMES if name.startswith(folders)]
    code = C_COMMENT.sub(lambda match: "\n" * match[0].count("\n"), text)
    seen = set()
    for match in re.finditer(r"\b[A-Za-z_]\w*", code):
        if match[0] in seen or NAME_EXCEPTIONS.fullmatch(match[0]):
            continue
        seen.add(match[0])
        words = words_of(match[0])
        if match[0] in RETIRED_WHOLE:
            yield code.count("\n", 0, match.start()) + 1, f"{match[0]}: is retired (write: {RETIRED_WHOLE[match[0]]})"
        for word, instead in rules:
            if word in words:
                yield code.count("\n", 0, match.start()) + 1, f"{match[0]}: '{word}' is retired (write: {instead})"


def retired_python_names(text):
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and token.string in RETIRED_IN_TESTS:
            yield token.start[0], f"{token.string}: is retired (write: {RETIRED_IN_TESTS[token.string]})"


def retired_test_names(text):
    for match in TEST_NAME.finditer(text):
        number = text.count("\n", 0, match.start()) + 1
        for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", match[1]):
            if word.lower() in RETIRED_IN_TESTS:
                yield number, f"{match[1]}: '{word}' is retired (write: {RETIRED_IN_TESTS[word.lower()]})"
        for phrase, instead in RETIRED_PHRASES_IN_TESTS.items():
            if re.search(rf"{phrase}(?![a-z])", match[1]):
                yield number, f"{match[1]}: '{phrase}' is retired (write: {instead})"


# ---- the program ------------------------------------------------------------------------------------------------------------------------------------


def files():
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"], capture_output=True, check=True).stdout
    for name in sorted(listed.decode().split("\0")):
        if name and name not in EXEMPT and kind_of(pathlib.Path(name)) and (ROOT / name).is_file():
            yield name


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def check_all():
    findings, checked = [], 0
    for name in files():
        findings += findings_of(name, read(name))
        checked += 1
    for finding in findings:
        print(finding)
    print(f"check_prose: {checked} files, {len(findings)} findings")
    return 1 if findings else 0


def self_test():
    cases = {
        "a.md": [
            ("opening", "Who is in no view waits."),
            ("opening", "Text. Of those that wait none is called."),
            ("idiom", "It waits in vain."),
            ("length", "word " * 26 + "."),
            ("columns", "a " * 60),
            ("idiom", "Is the drop within the tolerance, it is the result."),
            ("length", "| a | " + "word " * 26 + "|"),
        ],
        "a.cc": [
            ("opening", "// What is accepted is whole.\n"),
            ("opening", "// What a bench prints: a table.\n"),
            ("opening", "// Nobody waits.\nint a;\n"),
            ("opening", "// A rank ends.\n// Whose it is, ends.\n"),
            ("idiom", 'f("the header is none of ours");'),
            ("idiom", "// The agent tells the worker.\n"),
            ("idiom", "// A rank logs it; nobody waits.\n"),
            ("idiom", 'f("2 of 3 workers go on");'),
            ("idiom", "// It waits for the rank who comes next.\n"),
        ],
        "a.py": [("name", "said = run()\n"), ("idiom", "# knocks at the door\n"), ("opening", '"""Whoever calls this."""\n')],
        "a.sh": [("idiom", "# waits for ever\n"), ("idiom", "# 5 is no list of names\n")],
    }
    for name, wrong in cases.items():
        for rule, text in wrong:
            assert any(f": {rule}: " in finding for finding in findings_of(name, text)), (name, rule, text)
    for name, text in (
        ("src/tandem/launch/a.h", "struct AgentCard {};"),
        ("a.cc", "Lobby lobby_;"),
        ("src/tandem/elastic/a.cc", "send(own_cards);"),
        ("a.h", "class StandIns;"),
        ("a.cc", "void say(int a);"),
        ("a.cc", "bool begin_told_ = false;"),
        ("a.h", "std::string place(int row);"),
        ("a_test.cc", "TEST(Links, NobodyWaits) {}"),
        ("a_test.cc", "TEST_F(Links, AnAgentSaysWhy) {}"),
        ("a_test.cc", "TEST_P(Links, TheOthersGoOn) {}"),
    ):
        assert any(": name: " in finding for finding in findings_of(name, text)), (name, text)
    for name, text in (
        ("src/tandem/hub/a.h", "struct DatasetCard {};"),
        ("a.cc", '// The lobby.\nf("lobby");'),
        ("a.cc", "place_workers(in_place);"),
        ("src/tandem/elastic/a.cc", "TEST(Links, ALobbyThatIsFullRefusesMore) {}"),
        ("a_test.cc", "TEST(Links, TheWholeIsGoodOnly) {}"),
    ):
        assert not [finding for finding in findings_of(name, text) if ": name: " in finding], (name, text)
    for name, text in (
        ("a.md", "A rank waits. `Who is` it? See [Who](a.md).\n\n```\nNobody " + "a " * 80 + "\n```\n"),
        ("a.cc", "// A rank of the job.\nint whose = 0;\n"),
        ("a.md", "Who wins? The first rank."),
        ("a.md", "What is a shard? A batch. It depends on what is open."),
        ("a.cc", 'f(" Who? ");'),
        ("a.cc", 'f("Who is ");'),
        ("a.md", "This page is for people who run jobs. Call `tell(name)` and `say`."),
        ("a.cc", 'f("[t3]$ $nobody ${rank");'),
    ):
        assert not list(findings_of(name, text)), list(findings_of(name, text))
    print("check_prose: self-test passed")
    return 0


def main():
    if "--self-test" in sys.argv:
        return self_test()
    named = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    if named:
        found = [finding for name in named for finding in findings_of(name, pathlib.Path(name).read_text(encoding="utf-8"))]
        print("\n".join(found))
        return 1 if found else 0
    return check_all()


if __name__ == "__main__":
    sys.exit(main())
