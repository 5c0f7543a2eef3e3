#!/usr/bin/env python3
"""Makes examples/demo: the small model, the small question set of scripts/demo.sh, and small sets of texts and words with labels.

    examples/make_demo.py [DIRECTORY]          # default: examples/demo next to this file

The texts are small stories about invented people, towns and ships. A paragraph has five facts about one or two of them, each
kind of fact once; a question asks for one fact, in words that are often not those of the text. Names are made of syllables,
and no name of the held-out file occurs in the training file: what a model learns is to look up, not to remember.

The same sentences make two further data sets: topics (a sentence and its kind of fact) for text classification, and
names (the words of a few sentences, with tags for people, towns, rivers and ships) for token classification.

A decoder has 24 such stories to read (stories.txt), and the questions on them with answers (stories_questions.jsonl). It is
trained from nothing by scripts/demo_lora.sh; its tokenizer is a byte-level BPE of these texts.

The encoder is a BERT of a few hundred thousand parameters that has learnt nothing yet. Its weights are random, with two
choices that let it learn quickly: linear layers start at the scale 1/sqrt(inputs) rather than BERT's 0.02 (which suits wide
layers), and positions start as sinusoids, so that neighbouring words look alike to the attention from the first step.

Needs only the Python standard library. The output is the same bytes on every machine: an own generator, integer arithmetic
for the random weights, rounding for the sinusoids. A test runs it and compares.
"""

import json
import math
import pathlib
import re
import struct
import sys

# ---------------------------------------------------------------------------------------------------------------- random


class Random:
    """SplitMix64 (Steele, Lea, Flood 2014): the same numbers in every Python."""

    def __init__(self, seed):
        self.state = seed

    def bits(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        return z ^ (z >> 31)

    def below(self, n):
        return self.bits() * n >> 64

    def choice(self, items):
        return items[self.below(len(items))]

    def shuffled(self, items):
        items = list(items)
        for i in range(len(items) - 1, 0, -1):
            j = self.below(i + 1)
            items[i], items[j] = items[j], items[i]
        return items

    def normal(self):
        """Nearly normal: the number of ones among 64 fair bits has the mean 32 and the standard deviation 4."""
        return (self.bits().bit_count() - 32) / 4


# ------------------------------------------------------------------------------------------------------------------ texts

# The sound of a name shows its kind, as in real languages: a first and a last syllable for every kind.
FIRST = {
    "person": "bel dor fen har jor kel lor mar nal pel ras sel tal vin".split(),
    "town": "bar cor dal for gel lan mor nor ver wal".split(),
    "river": "bor fal hal lar ren tor win yar".split(),
    "ship": "cal gar kal mel nel rin sal val".split(),
}
LAST = {
    "person": "a an as en er ia ik il in ir is ka ko la mi na no or us".split(),
    "town": "burg by dale field ford haven mouth stead ton wick".split(),
    "river": "brook creek flow rill stream water".split(),
    "ship": "bird gull queen star wave wind".split(),
}

WORDS = {
    "animal": "dog cat horse goat parrot donkey goose rabbit".split(),
    "building": "tower bridge castle market library temple mill harbour".split(),
    "colour": "red green blue yellow white black brown grey".split(),
    "food": "soup bread cheese honey apples plums fish rice".split(),
    "goods": "salt wool glass paper copper silk wine tea".split(),
    "instrument": "flute violin drum harp trumpet guitar piano horn".split(),
    "job": "baker smith weaver painter miller teacher sailor tailor doctor farmer".split(),
    "year": [str(year) for year in range(1500, 1900)],
}

# kind → fact → (list of words or kind of name that the answer is from, statements, questions). {x}: subject, {y}: answer.
FACTS = {
    "person": {
        "birthplace": ("town", ["{x} was born in {y}.", "{y} is the place where {x} was born."], ["Where was {x} born?", "In which place was {x} born?"]),
        "job": ("job", ["{x} works as a {y}.", "By trade {x} is a {y}."], ["What does {x} work as?", "What is the trade of {x}?"]),
        "instrument": (
            "instrument",
            ["{x} plays the {y}.", "The {y} is what {x} plays on Sundays."],
            ["What does {x} play?", "Which instrument is played by {x}?"],
        ),
        "food": ("food", ["{x} likes to eat {y}.", "Every day {x} eats {y}."], ["What does {x} like to eat?", "What does {x} eat every day?"]),
        "friend": (
            "person",
            ["{x} is a friend of {y}.", "A good friend of {x} is called {y}."],
            ["Who is a friend of {x}?", "What is the friend of {x} called?"],
        ),
        "year": ("year", ["{x} married in {y}.", "The wedding of {x} was in {y}."], ["When did {x} marry?", "In which year was the wedding of {x}?"]),
        "animal": ("animal", ["{x} keeps a {y} at home.", "The pet of {x} is a {y}."], ["Which animal does {x} keep?", "What is the pet of {x}?"]),
    },
    "town": {
        "river": (
            "river",
            ["{x} lies on the river {y}.", "The river at {x} is called {y}."],
            ["On which river does {x} lie?", "What is the river at {x} called?"],
        ),
        "mayor": ("person", ["The mayor of {x} is {y}.", "{x} elected {y} as its mayor."], ["Who is the mayor of {x}?", "Whom did {x} elect as mayor?"]),
        "goods": ("goods", ["{x} sells {y}.", "Traders come to {x} for its {y}."], ["What does {x} sell?", "What do traders come to {x} for?"]),
        "building": ("building", ["{x} is proud of its {y}.", "Guests of {x} visit the old {y}."], ["What is {x} proud of?", "What do guests of {x} visit?"]),
        "founded": (
            "year",
            ["{x} was founded in {y}.", "The first house of {x} was built in {y}."],
            ["When was {x} founded?", "In which year was the first house of {x} built?"],
        ),
        "colour": (
            "colour",
            ["The flag of {x} is {y}.", "People of {x} wave a {y} flag."],
            ["Which colour has the flag of {x}?", "Which flag do people of {x} wave?"],
        ),
    },
    "ship": {
        "captain": ("person", ["The captain of the {x} is {y}.", "{y} commands the {x}."], ["Who is the captain of the {x}?", "Who commands the {x}?"]),
        "cargo": ("goods", ["The {x} carries {y}.", "The cargo of the {x} is {y}."], ["What does the {x} carry?", "What is the cargo of the {x}?"]),
        "port": ("town", ["The {x} sails to {y}.", "The home port of the {x} is {y}."], ["Where does the {x} sail to?", "What is the home port of the {x}?"]),
        "launched": (
            "year",
            ["The {x} was launched in {y}.", "Since {y} the {x} has been at sea."],
            ["When was the {x} launched?", "Since when has the {x} been at sea?"],
        ),
        "sails": (
            "colour",
            ["The sails of the {x} are {y}.", "The {x} is known by its {y} sails."],
            ["Which colour are the sails of the {x}?", "Which sails is the {x} known by?"],
        ),
    },
}
FACTS_PER_PARAGRAPH = 5
TRAIN_PARAGRAPHS, HELD_OUT_PARAGRAPHS = 1200, 60
STORIES = 24
TRAIN_TOPICS, TRAIN_NAMES, HELD_OUT_ROWS = 2000, 1500, 300


def split_names(random):
    """kind → names (two syllables), first those of the training file, then those that only the held-out file uses."""
    train, held_out = {}, {}
    for kind, endings in LAST.items():
        names = random.shuffled([(first + last).capitalize() for first in FIRST[kind] for last in endings])
        cut = len(names) // 4
        train[kind], held_out[kind] = names[cut:], names[:cut]
    return train, held_out


class Teller:
    """Tells paragraphs and asks about them, with the given names."""

    def __init__(self, random, names):
        self.random, self.words = random, WORDS | names

    def other(self, domain, taken):
        """A word of the domain that is not taken."""
        while (word := self.random.choice(self.words[domain])) in taken:
            pass
        return word

    def paragraph(self, paragraph_id):
        """One paragraph and its questions, in the form of a SQuAD paragraph. No fact occurs twice, so its kind finds it."""
        kind = self.random.choice(sorted(FACTS))
        first = self.other(kind, ())
        subjects = first, self.other(kind, (first,))
        context, questions = "", []
        for number, fact in enumerate(self.random.shuffled(sorted(FACTS[kind]))[:FACTS_PER_PARAGRAPH]):
            domain, statements, question_forms = FACTS[kind][fact]
            subject, answer = self.random.choice(subjects), self.other(domain, subjects)
            before, after = self.random.choice(statements).format(x=subject, y="\0").split("\0")
            context += (" " if context else "") + before
            answers = [{"text": answer, "answer_start": len(context)}]
            context += answer + after
            questions.append({"id": f"{paragraph_id}-{number}", "answers": answers, "question": self.random.choice(question_forms).format(x=subject)})
        return {"context": context, "qas": questions}

    def file(self, title, count):
        paragraphs = [self.paragraph(f"{title}-{i}") for i in range(count)]
        return {"version": "1.1", "data": [{"title": title, "paragraphs": paragraphs}]}


def tell_stories(teller, count):
    """Stories, and (question, answer) of all their facts; no question occurs twice."""
    stories, answers = [], {}
    while len(stories) < count:
        paragraph = teller.paragraph("story")
        asked = {question["question"]: question["answers"][0]["text"] for question in paragraph["qas"]}
        if not asked.keys() & answers.keys():
            stories.append(paragraph["context"])
            answers |= asked
    return stories, list(answers.items())


class Labeller:
    """Tells single sentences with labels, with the given names."""

    def __init__(self, random, names):
        self.random, self.words = random, WORDS | names

    def sentence(self):
        """(fact, statement with {x} and {y}, the word and its kind for each of the two)"""
        kind = self.random.choice(sorted(FACTS))
        fact = self.random.choice(sorted(FACTS[kind]))
        domain, statements, _ = FACTS[kind][fact]
        return fact, self.random.choice(statements), {"x": self.word(kind), "y": self.word(domain)}

    def word(self, kind):
        """(word, kind); every second person has two names."""
        word = self.random.choice(self.words[kind])
        if kind == "person" and self.random.below(2):
            word += " " + self.random.choice(self.words[kind])
        return word, kind

    def topics(self, count):
        """A CSV file of sentences, each with its kind of fact."""
        lines = ["sentence,label"]
        for _ in range(count):
            fact, statement, words = self.sentence()
            lines.append(statement.format(**{place: word for place, (word, _) in words.items()}) + "," + fact)
        return "".join(line + "\n" for line in lines)

    def tagged(self, words, kind):
        if kind not in LAST:
            return [(word, "O") for word in words]
        return [(word, ("I-" if number else "B-") + kind) for number, word in enumerate(words)]

    def names(self, count):
        """JSON lines of the words of one to three sentences, each word with its tag."""
        lines = []
        for _ in range(count):
            pairs = []
            for _ in range(1 + self.random.below(3)):
                _, statement, words = self.sentence()
                for part in statement.replace(".", " .").split():
                    place = part.strip("{}") if part.startswith("{") else None
                    pairs += self.tagged(words[place][0].split(), words[place][1]) if place else [(part, "O")]
            lines.append(json.dumps({"tokens": [word for word, _ in pairs], "ner_tags": [tag for _, tag in pairs]}))
        return "".join(line + "\n" for line in lines)


# ------------------------------------------------------------------------------------------------------------- vocabulary

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def make_vocabulary():
    """Special tokens, single characters (so that nothing is unknown), syllables, and the words of the templates."""
    characters = "abcdefghijklmnopqrstuvwxyz0123456789"
    words = {word for domain, words in WORDS.items() if domain != "year" for word in words}
    for facts in FACTS.values():
        for _, sentences, questions in facts.values():
            for text in sentences + questions:
                words.update(word.strip(".?").lower() for word in text.split() if "{" not in word)
    years = [f"1{digit}" for digit in range(5, 9)] + [f"##{n:02d}" for n in range(100)]
    endings = ["##" + last for kind in LAST.values() for last in kind]
    tokens = SPECIAL + list(".,?!'\"()-:;") + list(characters) + ["##" + c for c in characters]
    tokens += [first for kind in FIRST.values() for first in kind] + endings + years + sorted(words)
    return list(dict.fromkeys(tokens))


def tokenizer_json(vocabulary):
    """The file of the `tokenizers` library: a lower-casing BERT tokenizer."""
    ids = {token: number for number, token in enumerate(vocabulary)}

    def special(token, type_id):
        return {"SpecialToken": {"id": token, "type_id": type_id}}

    def sequence(name, type_id):
        return {"Sequence": {"id": name, "type_id": type_id}}

    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": ids[token], "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
            for token in SPECIAL
        ],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [special("[CLS]", 0), sequence("A", 0), special("[SEP]", 0)],
            "pair": [special("[CLS]", 0), sequence("A", 0), special("[SEP]", 0), sequence("B", 1), special("[SEP]", 1)],
            "special_tokens": {token: {"id": token, "ids": [ids[token]], "tokens": [token]} for token in ("[CLS]", "[SEP]")},
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": ids},
    }


TOKENIZER_CONFIG = {
    "clean_up_tokenization_spaces": True,
    "cls_token": "[CLS]",
    "do_lower_case": True,
    "mask_token": "[MASK]",
    "model_max_length": 128,
    "pad_token": "[PAD]",
    "sep_token": "[SEP]",
    "strip_accents": None,
    "tokenize_chinese_chars": True,
    "tokenizer_class": "BertTokenizer",
    "unk_token": "[UNK]",
}

# ---------------------------------------------------------------------------------------------------------------- encoder

HIDDEN, LAYERS, HEADS, INTERMEDIATE, POSITIONS = 128, 2, 4, 256, 128


DECODER_SPECIAL = ["<unk>", "<s>", "</s>"]  # ids as in new Llama models
DECODER_MERGES = 250
DECODER_CONFIG = {"bos_token": "<s>", "eos_token": "</s>", "model_max_length": 128, "pad_token": "<unk>", "tokenizer_class": "PreTrainedTokenizerFast"}


def byte_letters():
    """GPT-2's letter for each byte: itself if it is visible, else the next letter behind Latin-1."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in visible]
    return {byte: chr(byte) for byte in visible} | {byte: chr(256 + number) for number, byte in enumerate(others)}


def merged(word, pair):
    """The parts of a word with every such pair as one part."""
    parts = []
    for part in word:
        if parts and (parts[-1], part) == pair:
            parts[-1] += part
        else:
            parts.append(part)
    return tuple(parts)


def byte_pair_merges(text, count):
    """The most frequent pairs of neighbouring parts, one after another; of equally frequent ones the last in the alphabet."""
    letters = byte_letters()
    words = {}
    for word in re.findall(r" ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+", text):
        parts = tuple(letters[byte] for byte in word.encode())
        words[parts] = words.get(parts, 0) + 1
    merges = []
    for _ in range(count):
        pairs = {}
        for word, times in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] = pairs.get(pair, 0) + times
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        rewritten = {}
        for word, times in words.items():
            parts = merged(word, best)
            rewritten[parts] = rewritten.get(parts, 0) + times
        words = rewritten
    return merges


def decoder_tokenizer_json(text):
    merges = byte_pair_merges(text, DECODER_MERGES)
    tokens = [*DECODER_SPECIAL, *byte_letters().values(), *(first + second for first, second in merges)]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": number, "content": token} | flags for number, token in enumerate(DECODER_SPECIAL)]
    bytes_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False}
    model |= {"byte_fallback": False, "ignore_merges": False, "vocab": {token: number for number, token in enumerate(tokens)}, "merges": merges}
    parts = {"normalizer": None, "pre_tokenizer": bytes_level, "post_processor": None, "decoder": bytes_level, "model": model}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added} | parts


def make_config(vocabulary):
    return {
        "architectures": ["BertModel"],
        "attention_probs_dropout_prob": 0.0,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0,
        "hidden_size": HIDDEN,
        "initializer_range": 0.02,
        "intermediate_size": INTERMEDIATE,
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": POSITIONS,
        "model_type": "bert",
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "pad_token_id": 0,
        "type_vocab_size": 2,
        "vocab_size": len(vocabulary),
    }


def random_matrix(random, rows, columns, scale):
    return (rows, columns), [random.normal() * scale for _ in range(rows * columns)]


def sinusoids(scale):
    """Position p, column pair i: sin and cos of p / 100^(2i/HIDDEN), rounded to 1/1024 (Vaswani et al. 2017; 100 suits
    short texts)."""
    values = []
    for position in range(POSITIONS):
        for column in range(HIDDEN):
            angle = position / 100 ** (column // 2 * 2 / HIDDEN)
            value = math.sin(angle) if column % 2 == 0 else math.cos(angle)
            values.append(round(value * 1024) / 1024 * scale)
    return (POSITIONS, HIDDEN), values


def make_weights(random, vocabulary):
    """name → (shape, values) of a bare BertModel without pooler, in the names of Hugging Face."""
    weights = {}

    def linear(name, outputs, inputs):
        weights[name + ".weight"] = random_matrix(random, outputs, inputs, inputs**-0.5)
        weights[name + ".bias"] = (outputs,), [0.0] * outputs

    def layer_norm(name):
        weights[name + ".weight"] = (HIDDEN,), [1.0] * HIDDEN
        weights[name + ".bias"] = (HIDDEN,), [0.0] * HIDDEN

    weights["embeddings.word_embeddings.weight"] = random_matrix(random, len(vocabulary), HIDDEN, 1.0)
    weights["embeddings.position_embeddings.weight"] = sinusoids(1.0)
    weights["embeddings.token_type_embeddings.weight"] = random_matrix(random, 2, HIDDEN, 0.5)
    layer_norm("embeddings.LayerNorm")
    for number in range(LAYERS):
        layer = f"encoder.layer.{number}."
        for part in ("query", "key", "value"):
            linear(layer + "attention.self." + part, HIDDEN, HIDDEN)
        linear(layer + "attention.output.dense", HIDDEN, HIDDEN)
        layer_norm(layer + "attention.output.LayerNorm")
        linear(layer + "intermediate.dense", INTERMEDIATE, HIDDEN)
        linear(layer + "output.dense", HIDDEN, INTERMEDIATE)
        layer_norm(layer + "output.LayerNorm")
    return weights


def safetensors_bytes(weights):
    """u64 header length, JSON header padded to 8 bytes, then the f32 values, little endian."""
    header, data = {"__metadata__": {"format": "pt"}}, bytearray()
    for name, (shape, values) in weights.items():
        begin = len(data)
        data += struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [begin, len(data)]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(data)


# ------------------------------------------------------------------------------------------------------------------- main


def main():
    target = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent / "demo"
    model = target / "model"
    model.mkdir(parents=True, exist_ok=True)
    vocabulary = make_vocabulary()

    def write_json(path, value, **style):
        path.write_text(json.dumps(value, **style) + "\n", encoding="utf-8")

    train_names, held_out_names = split_names(Random(1))
    write_json(target / "train.json", Teller(Random(2), train_names).file("train", TRAIN_PARAGRAPHS))
    write_json(target / "held_out.json", Teller(Random(3), held_out_names).file("held-out", HELD_OUT_PARAGRAPHS))
    for name, names, topics, sentences in (("train", train_names, TRAIN_TOPICS, TRAIN_NAMES), ("held_out", held_out_names, HELD_OUT_ROWS, HELD_OUT_ROWS)):
        seed = 5 if name == "train" else 6
        (target / f"topics_{name}.csv").write_text(Labeller(Random(seed), names).topics(topics), encoding="utf-8")
        (target / f"names_{name}.json").write_text(Labeller(Random(seed + 2), names).names(sentences), encoding="utf-8")
    stories, answers = tell_stories(Teller(Random(9), train_names), STORIES)
    rows = "".join(json.dumps({"prompt": question, "completion": f" {answer}."}) + "\n" for question, answer in answers)
    (target / "stories.txt").write_text("".join(story + "\n" for story in stories), encoding="utf-8")
    (target / "stories_questions.jsonl").write_text(rows, encoding="utf-8")
    decoder = target / "decoder"
    decoder.mkdir(exist_ok=True)
    text = "\n".join([*stories, *(f"{question} {answer}." for question, answer in answers)])
    write_json(decoder / "tokenizer.json", decoder_tokenizer_json(text), separators=(",", ":"), ensure_ascii=False)
    write_json(decoder / "tokenizer_config.json", DECODER_CONFIG, indent=2)
    (model / "vocab.txt").write_text("".join(token + "\n" for token in vocabulary), encoding="utf-8")
    write_json(model / "tokenizer.json", tokenizer_json(vocabulary), separators=(",", ":"))
    write_json(model / "tokenizer_config.json", TOKENIZER_CONFIG, indent=2)
    write_json(model / "config.json", make_config(vocabulary), indent=2, sort_keys=True)
    (model / "model.safetensors").write_bytes(safetensors_bytes(make_weights(Random(4), vocabulary)))


if __name__ == "__main__":
    main()
