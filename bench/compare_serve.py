#!/usr/bin/env python3
"""Requests to `tandem serve` and to a server with onnxruntime, alternately on the same machine, from 1, 8 and 64 clients.

    bench/compare_serve.py [--model minilm|bert-base] [--clients 1,8,64] [--seconds 10] [--tcmalloc FILE] [--json FILE] ...

Run it with a Python that has sentence-transformers 5, onnx and onnxruntime. Each client sends `POST /embed` with a sentence of STS-B over a connection that stays open, and the next one when it has the answer.
Both servers compute in f32, and the first texts must have the same embeddings. The rival is an asyncio server of this file: requests that wait are computed together, at most --batch at a time, by the exported and
fused model of onnx_rival.py, in a thread of its own while the loop reads and writes. It does nothing else: no limits, no queue between addresses, no checks. All clients share a process with one
core's work at most; it is the same for both.
Printed are requests per second, and p50 and p99 of their milliseconds: medians over the rounds. The first tenth of the time is a warm-up.
"""

import argparse
import asyncio
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import compare_sentence_transformers as models
import onnx_rival
import rivals
from tandem_server import Server

LONGEST_START, LONGEST_ANSWER = 60, 60  # seconds
LARGEST_DIFFERENCE = 1e-5  # of a value of an embedding of length 1
FIGURES = ("rate", "p50", "p99")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    rivals.add_sides(parser, ["minilm", "bert-base"])
    parser.add_argument("--data", type=pathlib.Path, default=models.ROOT / "../shared/data")
    parser.add_argument("--clients", default="1,8,64")
    parser.add_argument("--seconds", type=float, default=10, help="of requests, per number of clients, side and round")
    parser.add_argument("--batch", type=int, default=32, help="texts that the rival computes together at most")
    rivals.add_rounds(parser)
    rivals.add_columns(parser, ["onnxruntime"])
    options = parser.parse_args()
    options.what, options.texts, options.types = "embed", "nli", "f32"
    return options


# --- the rival ---


async def read_request(reader):
    """The body of a request, None at the end of the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
    return json.loads(await reader.readexactly(length))


class Batcher:
    """Computes the texts that wait together, in a thread."""

    def __init__(self, model, size):
        self.model, self.size, self.waiting = model, size, asyncio.Queue()
        self.thread = concurrent.futures.ThreadPoolExecutor(1)

    async def embed(self, text):
        done = asyncio.get_running_loop().create_future()
        await self.waiting.put((text, done))
        return await done

    def compute(self, texts):
        import numpy

        found = self.model.batch(texts)
        return found / numpy.maximum(numpy.linalg.norm(found, axis=1, keepdims=True), 1e-12)

    async def run(self):
        while True:
            batch = [await self.waiting.get()]
            while len(batch) < self.size and not self.waiting.empty():
                batch.append(self.waiting.get_nowait())
            found = await asyncio.get_running_loop().run_in_executor(self.thread, self.compute, [text for text, _ in batch])
            for (_, done), vector in zip(batch, found):
                done.set_result(vector.tolist())


async def rival_server(options):
    batcher = Batcher(onnx_rival.Model(options.scratch / "model", options.threads, models.MAX_TOKENS), options.batch)

    async def answer(reader, writer):
        while (request := await read_request(reader)) is not None:
            body = json.dumps([await batcher.embed(request["inputs"])]).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await batcher.run()


class Rival:
    def __init__(self, options, environment):
        words = ["--side", "server", "--scratch", options.scratch, "--threads", options.threads, "--batch", options.batch, "--model", options.model]
        self.process = subprocess.Popen(
            list(map(str, [sys.executable, __file__, *words])),
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(options.threads), **environment},
        )
        self.port = int(self.process.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.stdout.close()
        self.process.wait(LONGEST_START)


# --- the clients ---


async def client(port, requests, until, taken):
    """Sends the requests one after another and adds (end, seconds) of each to `taken`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    number = 0
    while time.perf_counter() < until:
        begin = time.perf_counter()
        writer.write(requests[number % len(requests)])
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), LONGEST_ANSWER)
        length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
        body = await asyncio.wait_for(reader.readexactly(length), LONGEST_ANSWER)
        if not head.startswith(b"HTTP/1.1 200"):
            sys.exit(f"POST /embed: found {head.splitlines()[0]}, expected status 200: {body[:300]}")
        taken.append((time.perf_counter(), time.perf_counter() - begin))
        number += 1
    writer.close()
    return body


def request_bytes(text):
    body = json.dumps({"inputs": text}).encode()
    return b"POST /embed HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body


async def load(port, texts, clients, seconds):
    begin = time.perf_counter()
    taken = []
    requests = [request_bytes(text) for text in texts]
    await asyncio.gather(*(client(port, requests[i::clients], begin + seconds, taken) for i in range(clients)))
    warm = begin + seconds / 10
    times = sorted(spent for end, spent in taken if warm < end < begin + seconds)
    at = lambda share: times[min(len(times) - 1, int(share * len(times)))] * 1000
    return {"rate": len(times) / (seconds * 0.9), "p50": at(0.5), "p99": at(0.99)}


async def first_embeddings(port, texts):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    found = []
    for text in texts:
        writer.write(request_bytes(text))
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
        found.append(json.loads(await reader.readexactly(length))[0])
    writer.close()
    return found


# --- the comparison ---


def measure(options, texts, start, seen, side):
    """{clients: figures} of a server that start() starts; keeps the first embeddings in `seen`."""
    with start() as server:
        seen[side] = asyncio.run(first_embeddings(server.port, texts[:8]))
        figures = {int(count): asyncio.run(load(server.port, texts, int(count), options.seconds)) for count in options.clients.split(",")}
    print(side, {count: f"{found['rate']:.0f} a second" for count, found in figures.items()}, file=sys.stderr, flush=True)
    return figures


def check(seen):
    ours = seen["tandem", ""]
    for side, theirs in seen.items():
        worst = max(abs(a - b) for left, right in zip(ours, theirs) for a, b in zip(left, right))
        if not worst <= LARGEST_DIFFERENCE:
            sys.exit(f"{' '.join(side)}: embeddings differ by {worst:.1e}, expected at most {LARGEST_DIFFERENCE:.0e}")


def compare(options):
    rivals.run([sys.executable, models.__file__, "--side", "model", *models_words(options)], {})
    rivals.run([sys.executable, models.__file__, "--side", "export", *models_words(options)], {})
    texts = [text for pair in models.pairs_of(options) for text in pair][:1000]
    sides = {("tandem", ""): lambda: Server(options.tandem, options.scratch / "model", options.threads)}
    for name, variables in rivals.environments(options).items():
        sides["onnxruntime", name] = lambda variables=variables: Rival(options, variables)
    rounds, seen = [], {}
    for number in range(options.rounds):
        rounds.append({side: measure(options, texts, sides[side], seen, side) for side in rivals.rotated(list(sides), number)})
    check(seen)
    results = [
        {"side": side[0], "allocator": side[1], "clients": count, **{name: rivals.spread([found[side][count][name] for found in rounds]) for name in FIGURES}}
        for count in map(int, options.clients.split(","))
        for side in sides
    ]
    show(options, results)
    if options.json:
        setting = {"model": options.model, "threads": options.threads, "rounds": options.rounds, "seconds": options.seconds, "batch": options.batch}
        versions = models.versions_of("onnxruntime")
        pathlib.Path(options.json).write_text(json.dumps({**setting, "versions": versions, "results": results}))


def models_words(options):
    words = {"what": "embed", "model": options.model, "scratch": options.scratch, "threads": options.threads, "tokenizer": options.tokenizer}
    return [word for name, value in words.items() for word in (f"--{name}", value)]


def show(options, results):
    print(f"POST /embed, {options.model}, f32, {options.threads} threads, {options.rounds} rounds of {options.seconds} seconds")
    for found in results:
        ours = next(one for one in results if one["side"] == "tandem" and one["clients"] == found["clients"])
        ratio = "" if found["side"] == "tandem" else f"   tandem is {ours['rate']['median'] / found['rate']['median']:.2f} times as fast"
        name = f"{found['side']} {found['allocator']}"
        print(
            f"  {found['clients']:3} clients {name:22} {found['rate']['median']:8.1f} a second   p50 {found['p50']['median']:7.2f} ms   p99 {found['p99']['median']:7.2f} ms{ratio}"
        )


def main():
    options = parse()
    if options.side:
        return asyncio.run(rival_server(options))
    with tempfile.TemporaryDirectory() as scratch:
        options.scratch = pathlib.Path(scratch)
        compare(options)


if __name__ == "__main__":
    main()
