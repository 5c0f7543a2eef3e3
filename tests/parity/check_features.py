#!/usr/bin/env python3
"""Questions in twelve languages become the same features in tandem and in the package `tokenizers` with the official script's code.

    check_features.py TANDEM [MODEL...]

For each model directory (default: as in check_tokenizers.py) the questions below, their contexts cut into overlapping windows, go through `tandem inspect features` and through
prepare_train_features() of run_qa.py over the package, which reads the same tokenizer.json: ids, offsets and the labels of every window must be equal. Contexts are written with composed and with
decomposed characters, and once with what people paste (line breaks, no-break spaces). Runs itself again with the Python of build/test-data/venv (scripts/fetch_python_packages.sh); exits 77, which means
skipped, when that is absent.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import unicodedata

import check_tokenizers  # restarts this program with the venv's Python if need be

MAX_LENGTH, STRIDE = 128, 24  # longer than 128 tokens no sequence of the small models may be
# Question, context, answer.
QUESTIONS = {
    "fi": (
        "Milloin lautta lähtee Turusta?",
        "Lautta Maarianhaminaan lähtee Turun satamasta joka aamu kello 8.45, ja matka kestää viisi ja puoli tuntia. Liput myydään terminaalissa.",
        "kello 8.45",
    ),
    "tr": (
        "İstanbul'dan kalkan tren nereye gidiyor?",
        "Sabah saat altıda İstanbul'dan kalkan yüksek hızlı tren Eskişehir üzerinden Ankara'ya gider. Işıklı köprünün üstünden geçişi yirmi dakika sürer.",
        "Ankara'ya",
    ),
    "vi": (
        "Chợ nổi Cái Răng nằm ở đâu?",
        "Chợ nổi Cái Răng nằm trên sông Hậu, cách trung tâm thành phố Cần Thơ khoảng sáu cây số. Người ta họp chợ từ lúc mờ sáng đến chín giờ.",
        "trên sông Hậu",
    ),
    "el": (
        "Πόσο ψηλός είναι ο Όλυμπος;",
        "Ο Όλυμπος είναι το ψηλότερο βουνό της Ελλάδας· η κορυφή του, ο Μύτικας, έχει ύψος 2.917 μέτρα. Πρώτη φορά ανέβηκαν εκεί το 1913.",
        "2.917 μέτρα",
    ),
    "ru": (
        "Когда открыли мост?",
        "Мост через реку открыли 12 июня 1967 года; ещё через три года по нему пошли трамваи. Его длина — 1 216 метров, ширина — 28 метров.",
        "12 июня 1967 года",
    ),
    "ar": (
        "متى بُنيت المكتبة؟",
        "بُنيت المكتبة القديمة في المدينة سنة ١٩٢٨، ثم جُدّدت بعد الحرب. يزورها كل عام أكثر من مئة ألف قارئ، وفيها ٣٥٠ مخطوطة.",
        "سنة ١٩٢٨",
    ),
    "he": (
        "כמה תחנות יש בקו?",
        "בקו הרכבת הקלה יש עשרים ושלוש תחנות, והנסיעה מקצה לקצה אורכת ארבעים וחמש דקות. הַקַּו נפתח בשנת 2011 ומשרת את צפון העיר.",
        "עשרים ושלוש תחנות",
    ),
    "hi": ("झील कितनी गहरी है?", "यह झील समुद्र तल से १,९३८ मीटर ऊपर है और इसकी सबसे अधिक गहराई सत्ताईस मीटर है। सर्दियों में यहाँ प्रवासी पक्षी आते हैं।", "सत्ताईस मीटर"),
    "th": ("ตลาดเปิดกี่โมง", "ตลาดน้ำเปิดทุกวันเสาร์และอาทิตย์ตั้งแต่หกโมงเช้าถึงบ่ายสามโมง ผู้คนพายเรือมาขายผลไม้และก๋วยเตี๋ยว ค่าเรือคนละ ๑๐๐ บาท", "หกโมงเช้า"),
    "ja": (
        "城はいつ建てられましたか。",
        "この城は1609年に築かれ、天守は国宝に指定されている。城下町の通りには江戸時代の商家がﾆｼﾞｭｳ軒ほど残り、毎年およそ四十万人が訪れる。",
        "1609年",
    ),
    "ko": (
        "섬까지 배로 얼마나 걸립니까?",
        "항구에서 섬까지는 쾌속선으로 한 시간 십오 분이 걸리고, 하루에 네 번 다닌다. 섬에는 약 1,200명이 살며 등대는 1910년에 세워졌다.",
        "한 시간 십오 분",
    ),
    "ka": (
        "რამდენი კილომეტრია გზა?",
        "სამხედრო გზა თბილისიდან ვლადიკავკაზამდე 208 კილომეტრია და ჯვრის უღელტეხილზე 2 379 მეტრამდე ადის. ზამთარში ის ხშირად იკეტება.",
        "208 კილომეტრია",
    ),
}


def rows():
    """Every context three times over, so that it takes several windows; the answer is in its middle copy."""
    pasted = lambda text: text.replace(", ", ",\u00a0\n").replace(". ", ".\r\n\t")
    for language, texts in QUESTIONS.items():
        for form, change in (("NFC", lambda text: text), ("NFD", lambda text: unicodedata.normalize("NFD", text)), ("pasted", pasted)):
            question, context, answer = map(change, texts)
            assert answer in context, language
            whole = "  ".join([context] * 3)
            yield {
                "id": f"{language}-{form}",
                "question": "  " + question,
                "context": whole,
                "answers": {"text": [answer], "answer_start": [len(context) + 2 + context.index(answer)]},
            }


def label(offsets, sequences, cls_index, row):
    """The script's: the places of the first and last token of the answer, or twice that of the first token."""
    begin = row["answers"]["answer_start"][0]
    end = begin + len(row["answers"]["text"][0])
    first = 0
    while sequences[first] != 1:
        first += 1
    last = len(sequences) - 1
    while sequences[last] != 1:
        last -= 1
    if not (offsets[first][0] <= begin and offsets[last][1] >= end):
        return cls_index, cls_index
    while first < len(offsets) and offsets[first][0] <= begin:
        first += 1
    while offsets[last][1] >= end:
        last -= 1
    return first - 1, last + 1


def expected(tokenizer, row):
    encoding = tokenizer.encode(row["question"].lstrip(), row["context"])
    for window in [encoding, *encoding.overflowing]:
        sequences, real = window.sequence_ids, sum(window.attention_mask)
        start, end = label(window.offsets, sequences, 0, row)
        offsets = [list(window.offsets[i]) if sequences[i] == 1 else [-1, -1] for i in range(real)]
        yield {"id": row["id"], "n_real": real, "input_ids": window.ids[:real], "offsets": offsets, "start": start, "end": end}


def check(tandem, model):
    tokenizer = check_tokenizers.tokenizers.Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.enable_truncation(MAX_LENGTH, stride=STRIDE, strategy="only_second")
    tokenizer.enable_padding(length=MAX_LENGTH)
    questions = list(rows())
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "questions.json"
        file.write_text(json.dumps({"data": questions}), encoding="utf-8")
        command = [
            tandem,
            "inspect",
            "features",
            "--full",
            "--set",
            "train",
            "--model",
            str(model),
            "--max_seq_length",
            str(MAX_LENGTH),
            "--doc_stride",
            str(STRIDE),
            "--pad_to_max_length",
            "true",
            str(file),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return 0, [f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-1000:]}"]
    found = [json.loads(line) for line in done.stdout.splitlines()[1:]]
    wanted = [window for row in questions for window in expected(tokenizer, row)]
    findings = [] if len(found) == len(wanted) else [f"{len(found)} windows, expected {len(wanted)}"]
    for got, want in zip(found, wanted):
        different = [key for key in want if got[key] != want[key]]
        if different:
            findings.append(f"{want['id']}: {different[0]} is {got[different[0]]}, expected {want[different[0]]}")
    return len(wanted), findings


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tandem")
    parser.add_argument("models", nargs="*", type=pathlib.Path, default=check_tokenizers.MODELS)
    options = parser.parse_args()
    failed = False
    for model in options.models:
        if not (model / "tokenizer.json").exists():
            print(f"{model}: not there")
            continue
        windows, findings = check(options.tandem, model)
        print(f"{model.name}: {windows} windows of {len(QUESTIONS)} languages, {len(findings)} different")
        for finding in findings[:5]:
            print(f"  {finding}")
        failed = failed or bool(findings)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
