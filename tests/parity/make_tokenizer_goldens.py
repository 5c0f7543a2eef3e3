#!/usr/bin/env python3
"""Small tokenizers of DeBERTa-v3, MPNet, RoBERTa and XLM-R, and what the package `tokenizers` makes of some texts with them.

    build/test-data/venv/bin/python tests/parity/make_tokenizer_goldens.py

`modernbert` is the one of ../shared/data/golden/next/tokenizers; `deberta_5` is `deberta` as transformers 5.24 saves it. The package's Unigram trainer gives other pieces every time; what it gave is stored. Writes tests/parity/golden/tokenizers: `deberta` (the pieces of `xlmr` as transformers converts DeBERTa-v3's spm.model), `mpnet` (the demo's WordPiece), `roberta` (byte-level BPE), `xlmr` (Unigram as transformers converts a SentencePiece model, with that model) and `xlmr_older` (the layout of the files that were
published with XLM-R), all trained on the texts of examples/demo; and tokens.json, whose cases tests/parity/README.md describes. The table of replacements is a small one of our own in SentencePiece's
format, since a published one has 300 KB.
"""

import base64
import json
import pathlib
import struct

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).resolve().parent
DEMO = HERE.parent.parent / "examples/demo"
OUT = HERE / "golden/tokenizers"
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]

NAMES = {"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "mask_token": "<mask>", "pad_token": "<pad>", "sep_token": "</s>", "unk_token": "<unk>"}

TEXTS = [
    "",
    " ",
    "  ",
    "\n",
    " \n ",
    "a",
    " a",
    "  a b  ",
    "Who found the lost letter?",
    "It's we're I'll I'D don't 's ''s x'll've",
    "1,234.5 + 6/7 = 100%",
    "snake_case CamelCase",
    "tab\tand\r\nnewline\n\n end ",
    "caf\u00e9 cafe\u0301 CAFE\u0301",
    "\u00a0nbsp\u00a0\u0301x\u00a0",
    "\u3000wide\u3000 \uff21\uff22\uff23 \uff2a",
    "\ufb01ne \u00bd \u2026",
    "\u0001\u0002a\u0003b\u0001",
    "zero\u200bwidth \u200djoin",
    "\ufdfa x \ufdfa",
    "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f",
    "\U0001f1eb\U0001f1f7\U0001f1eb",
    "\u0928\u092e\u0938\u094d\u0924\u0947",
    "\uac00\u11a8 \u1100\u1161\u11a8",
    "\u4e2d\u6587 and \u65e5\u672c",
    "\u0420\u0443\u0441\u0441\u043a\u0438\u0439",
    "\u2581a \u2581 b\u2581",
    "x\u0085y \u2028z",
    "<s> </s>",
    "a <mask> b",
    "  <mask>  ",
    "\n<mask>,",
    "x<s>y<unk>",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "the " * 30,
    "\u0120 \u010a",
    "\u2c00\u1c89 1\u0661\u00b2",
    "a\u0301\u0302\u0303",
    "\u0301 x",
    "e\u0301\u0001e\u0301",
]
WORDS = [
    ["The", "letter", "'s", "end", "."],
    ["", "a", " ", "\u00a0", "b c", "caf\u00e9"],
    ["<mask>", "x<s>", "\U0001f600", "1,5"],
    ["\u0001", "\ufb01", "  two", "\u2581"],
    [],
]


def demo_texts():
    for name in ("train.json", "held_out.json"):
        for article in json.loads((DEMO / name).read_text(encoding="utf-8"))["data"]:
            for paragraph in article["paragraphs"]:
                yield paragraph["context"]
                yield from (qa["question"] for qa in paragraph["qas"])


# ------------------------------------------------------------------------------------------------------- a table of replacements


def replacements():
    rules = {c: " " for c in "\t\n\r\u00a0\u3000\u200b\u2581"}
    rules |= {chr(c): "" for c in range(1, 9)}
    rules |= {chr(0xFF21 + i): chr(0x41 + i) for i in range(26)}
    rules |= {
        "\ufb01": "fi",
        "\u00bd": "1\u20442",
        "\u2026": "...",
        "e\u0301": "\u00e9",
        "E\u0301": "\u00c9",
        "a\u0301": "\u00e1",
        "\ufdfa": "a long word for one sign",
    }
    return rules


def charsmap(rules):
    """SentencePiece's precompiled_charsmap: length, a double-array trie as Darts lays it out, replacements that end with a NUL."""
    blob, values = b"", {}
    for key, value in rules.items():
        values[key.encode()] = len(blob)
        blob += value.encode() + b"\0"
    root = {}
    for key, value in values.items():
        node = root
        for byte in key:
            node = node.setdefault(byte, {})
        node[0] = value
    units, taken = {}, {0}

    def place(at, label, node):
        base = next(b for b in range(1, 1 << 20) if all(b ^ c not in taken for c in node))
        taken.update(base ^ c for c in node)
        units[at] = (at ^ base) << 10 | (0 in node) << 8 | label
        for byte, child in node.items():
            if byte == 0:
                units[base] = child | 1 << 31
            else:
                place(base ^ byte, byte, child)

    place(0, 0, root)
    trie = b"".join(struct.pack("<I", units.get(i, 0)) for i in range((max(units) | 255) + 1))
    return struct.pack("<I", len(trie)) + trie + blob


def sentencepiece_model(pieces, table, special=(("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3))):
    """A protocol buffer with the fields that transformers reads."""

    def varint(n):
        out = b""
        while n > 127:
            out, n = out + bytes([n & 127 | 128]), n >> 7
        return out + bytes([n])

    def field(number, content):
        return varint(number << 3 | 2) + varint(len(content)) + content

    out = b""
    for text, score, kind in [*special, *((text, score, 1) for text, score in pieces)]:
        out += field(1, field(1, text.encode()) + varint(2 << 3 | 5) + struct.pack("<f", score) + varint(3 << 3) + varint(kind))
    return out + field(2, varint(3 << 3) + varint(1)) + field(3, field(1, b"tandem_demo") + field(2, table))


# -------------------------------------------------------------------------------------------------------------------- tokenizers


def save(name, tokenizer, config, normalized):
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    flags = {"lstrip": False, "normalized": normalized, "rstrip": False, "single_word": False}
    mask = {**flags, "lstrip": True, "normalized": False}
    decoder = {str(i): {"content": token, **flags, "special": True} for i, token in enumerate(SPECIAL)}
    decoder[str(tokenizer.token_to_id("<mask>"))] = {"content": "<mask>", **mask, "special": True}
    config = {"added_tokens_decoder": decoder, "clean_up_tokenization_spaces": False, "extra_special_tokens": {}, "model_max_length": 128, **NAMES, **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    full = {key: {"content": token, **(mask if key == "mask_token" else flags)} for key, token in NAMES.items()}
    plain = {key: full[key] if key == "mask_token" else token for key, token in NAMES.items()}
    (folder / "special_tokens_map.json").write_text(json.dumps(full if normalized else plain, indent=2, sort_keys=True) + "\n")
    return folder


def add_special_tokens(tokenizer, normalized):
    tokenizer.add_special_tokens([AddedToken(token, normalized=normalized) for token in SPECIAL] + [AddedToken("<mask>", lstrip=True, normalized=False)])


def make_roberta():
    tokenizer = Tokenizer(models.BPE(dropout=None, continuing_subword_prefix="", end_of_word_suffix="", fuse_unk=False))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(demo_texts(), trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=False)
    # The mask is of the vocabulary, as in RoBERTa's.
    content = json.loads(tokenizer.to_str())
    content["model"]["vocab"]["<mask>"] = len(content["model"]["vocab"])
    content["model"]["continuing_subword_prefix"] = content["model"]["end_of_word_suffix"] = ""  # as transformers writes them
    content["added_tokens"] = []
    tokenizer = Tokenizer.from_str(json.dumps(content))
    add_special_tokens(tokenizer, True)
    config = {"add_prefix_space": False, "errors": "replace", "tokenizer_class": "RobertaTokenizer", "trim_offsets": True}
    tokenizer.model.save(str(save("roberta", tokenizer, config, True)))
    return tokenizer


def make_mpnet():
    """The demo's WordPiece vocabulary between RoBERTa's special tokens."""
    words = [word for word in (DEMO / "model/vocab.txt").read_text(encoding="utf-8").splitlines() if word not in ("[PAD]", "[CLS]", "[SEP]", "[MASK]")]
    vocabulary = {word: i for i, word in enumerate([*SPECIAL, *words, "<mask>"])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100, continuing_subword_prefix="##"))
    tokenizer.normalizer = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=False)
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "[UNK]", AddedToken("<mask>", lstrip=True, normalized=False)])
    folder = OUT / "mpnet"
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in vocabulary), encoding="utf-8")
    config = {
        "do_lower_case": True,
        "model_max_length": 128,
        "strip_accents": None,
        "tokenize_chinese_chars": True,
        "tokenizer_class": "MPNetTokenizer",
        **NAMES,
        "unk_token": "[UNK]",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    return tokenizer


def unigram_pieces():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.train_from_iterator(demo_texts(), trainers.UnigramTrainer(vocab_size=500, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False))
    extra = [("\u00e9", -9.5), ("\u00e1", -9.75), ("\u2581\u4e2d", -11.25), ("fi", -7.5)]
    pieces = [piece for piece in json.loads(tokenizer.to_str())["model"]["vocab"] if piece[0] != "<unk>"] + extra
    known, out = set(), []
    for text, score in pieces:
        if text not in known:
            out.append((text, struct.unpack("<f", struct.pack("<f", score))[0]))  # as the SentencePiece file holds it
        known.add(text)
    return out


def make_xlmr(name, pieces, normalizer, pre_tokenizer, decoder):
    tokenizer = Tokenizer(models.Unigram([(token, 0.0) for token in SPECIAL] + pieces + [("<mask>", 0.0)], unk_id=3, byte_fallback=False))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoder
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s>:0 $A:0 </s>:0", pair="<s>:0 $A:0 </s>:0 </s>:0 $B:0 </s>:0", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    add_special_tokens(tokenizer, False)
    return tokenizer, save(name, tokenizer, {"tokenizer_class": "XLMRobertaTokenizer"}, False)


def make_deberta(pieces, table):
    """Ids are those of the pieces, and [MASK] is added behind them."""
    names = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}
    special = list(names.values())
    tokenizer = Tokenizer(models.Unigram([(token, 0.0) for token in special] + pieces, unk_id=3, byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Strip(), normalizers.Precompiled(table), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(prepend_scheme="always")])
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer.add_special_tokens([AddedToken(token, normalized=token == "[UNK]") for token in [*special, "[MASK]"]])
    folder = OUT / "deberta"
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "spm.model").write_bytes(sentencepiece_model(pieces, table, [(token, 0.0, 2 if token == "[UNK]" else 3) for token in special]))
    config = {"do_lower_case": False, "model_max_length": 128, "split_by_punct": False, "tokenizer_class": "DebertaV2Tokenizer"}
    config |= {**names, "bos_token": "[CLS]", "eos_token": "[SEP]", "mask_token": "[MASK]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    return tokenizer


def case(encoding, text):
    return {"text": text, "input_ids": encoding.ids, "offsets": encoding.offsets, "word_ids": encoding.word_ids}


def cases(tokenizer):
    texts = TEXTS + list(demo_texts())[:40:4]
    return {
        "texts": [case(tokenizer.encode(text), text) for text in texts],
        "words": [case(tokenizer.encode(words, is_pretokenized=True), words) for words in WORDS],
    }


def with_prefix_space(tokenizer):
    content = json.loads(tokenizer.to_str())
    content["pre_tokenizer"]["add_prefix_space"] = content["post_processor"]["add_prefix_space"] = True
    return Tokenizer.from_str(json.dumps(content))


def main():
    table, pieces, metaspace = charsmap(replacements()), unigram_pieces(), pre_tokenizers.Metaspace(prepend_scheme="always")
    precompiled = normalizers.Precompiled(table)
    assert base64.b64decode(json.loads(precompiled.__getstate__())["precompiled_charsmap"]) == table
    roberta, mpnet = make_roberta(), make_mpnet()
    converted = normalizers.Sequence([precompiled, normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "\u2581")])
    xlmr, folder = make_xlmr("xlmr", pieces, converted, metaspace, decoders.Metaspace(prepend_scheme="always"))
    (folder / "sentencepiece.bpe.model").write_bytes(sentencepiece_model(pieces, table))
    split = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace])
    older, _ = make_xlmr("xlmr_older", pieces, precompiled, split, decoders.Metaspace(prepend_scheme="always"))
    goldens = {
        "tokenizers": tokenizers.__version__,
        "deberta": cases(make_deberta(pieces, table)),
        "deberta_5": cases(Tokenizer.from_file(str(OUT / "deberta_5/tokenizer.json"))),
        "modernbert": cases(Tokenizer.from_file(str(OUT / "modernbert/tokenizer.json"))),
        "mpnet": cases(mpnet),
        "roberta": cases(roberta),
        "roberta_prefix_space": cases(with_prefix_space(roberta)),
        "xlmr": cases(xlmr),
        "xlmr_older": cases(older),
    }
    (OUT / "tokens.json").write_text(json.dumps(goldens, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
