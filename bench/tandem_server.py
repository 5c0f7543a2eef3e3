"""`tandem serve` as a child process on a free port, for benches that send requests to it."""

import http.client
import json
import os
import re
import subprocess

LONGEST_START = 60  # seconds


class Server:
    """with Server(program, model, threads, flags) as server: server.post("/rerank", {...}). Ends the process at the end."""

    def __init__(self, program, model, threads, flags=()):
        command = [program, "serve", "--model", model, "--port", 0, "--stop_with_input", *flags]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(list(map(str, command)), stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True, env=environment)
        self.port = self.port_in_output()
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONGEST_START)

    def port_in_output(self):
        read = []
        for line in self.process.stdout:
            read.append(line)
            found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
            if found:
                return int(found[1])
        raise SystemExit(f"tandem serve exited with {self.process.wait()}:\n{''.join(read)[-2000:]}")

    def post(self, path, body):
        self.connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise SystemExit(f"POST {path} of tandem serve: found status {answer.status}, expected 200: {text[:500]}")
        return json.loads(text)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.connection.close()
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(LONGEST_START)
