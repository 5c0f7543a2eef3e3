#!/usr/bin/env python3
"""Writes a SQuAD file of any size out of a small one, for benches of start-up, memory and answers.

    bench/make_squad.py --questions 87599 ../shared/data/squad/squad1-train-head.json /tmp/train.json

The paragraphs are repeated; each copy begins with a number, so that no two contexts are equal and nothing is tokenized once
for many. Ids are unique and answers keep their places.
"""

import argparse
import itertools
import json
import pathlib


def copy_of(paragraph, number):
    """The paragraph with "<number>. " before its context, in raw SQuAD form."""
    prefix = f"{number}. "
    questions = []
    for question in paragraph["qas"]:
        answers = [{"text": answer["text"], "answer_start": answer["answer_start"] + len(prefix)} for answer in question["answers"]]
        questions.append({**question, "id": f"{question['id']}-{number}", "answers": answers})
    return {"context": prefix + paragraph["context"], "qas": questions}


def repeated(paragraphs, wanted):
    """Copies of the paragraphs, round after round, until they hold `wanted` questions."""
    found = 0
    for number, paragraph in enumerate(itertools.cycle(paragraphs)):
        copy = copy_of(paragraph, number)
        copy["qas"] = copy["qas"][: wanted - found]
        found += len(copy["qas"])
        yield copy
        if found >= wanted:
            return


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, required=True)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    arguments = parser.parse_args()
    articles = json.loads(arguments.source.read_text(encoding="utf-8"))["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    if arguments.questions < 1 or not any(paragraph["qas"] for paragraph in paragraphs):
        parser.error("nothing to write: --questions must be positive and the source must hold questions")
    data = [{"title": "copies", "paragraphs": list(repeated(paragraphs, arguments.questions))}]
    arguments.output.write_text(json.dumps({"version": "1.1", "data": data}, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main()
