#!/usr/bin/env python3
"""An HTTP server that behaves like the Hugging Face Hub, for tests of downloads. Standard library only.

    fake_hub.py FOLDER [CERTIFICATE KEY]   # serves FOLDER, writes its port into FOLDER/port, ends with its parent; with files in PEM
                                           # form over TLS

FOLDER/models/<name>/… and FOLDER/datasets/<name>/… are repositories; the commit of each is forty times the letter in
<repository>/.letter (default c), its branches are main and v2. Files that end in .safetensors, .bin or .parquet are large
files: the answer redirects to this server under its other name (localhost instead of 127.0.0.1), as the Hub redirects to its
store. FOLDER/faults.json: a list of {"path": part of a path, "method": …, "times": n, …} with one of
  "status": …, "headers": {…}     answers so
  "drop": n                       closes the connection after n bytes of the body
  "drip": seconds                 one byte, then as long a pause, and so on
  "corrupt": true                 other bytes of the same size
  "excess": true                  more bytes than promised
  "no_range": true                ignores Range
  "no_etag", "no_commit", "no_size": true    leaves the header out (the last one of large files)
Every request becomes a line of FOLDER/requests.log: method, host, path, authorization, range, status.
"""

import hashlib
import http.server
import json
import os
import pathlib
import ssl
import sys
import threading
import time
import urllib.parse

ROOT = pathlib.Path(sys.argv[1])
LOCK = threading.Lock()
USED = {}
LARGE = (".safetensors", ".bin", ".parquet")


def fault_for(method, path):
    try:
        faults = json.loads((ROOT / "faults.json").read_text())
    except FileNotFoundError:
        return {}
    with LOCK:
        for number, fault in enumerate(faults):
            if fault.get("path", "") in path and fault.get("method", method) == method:
                used = USED.get((number, json.dumps(fault)), 0)
                if used < fault.get("times", 1 << 30):
                    USED[(number, json.dumps(fault))] = used + 1
                    return fault
    return {}


def git_sha1(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def record(self, status):
        row = {
            "method": self.command,
            "host": self.headers.get("Host", "").split(":")[0],
            "path": self.path,
            "authorization": self.headers.get("Authorization"),
            "range": self.headers.get("Range"),
            "status": status,
        }
        with LOCK, open(ROOT / "requests.log", "a", encoding="utf-8") as log:
            log.write(json.dumps(row) + "\n")

    def answer(self, status, headers=None, body=b""):
        self.record(status)
        self.send_response(status)
        headers = dict(headers or {})
        headers.setdefault("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def problem(self, status, code, message, headers=None):
        self.answer(status, {"X-Error-Code": code, "X-Error-Message": message, **(headers or {})})

    def do_HEAD(self):
        self.serve()

    def do_GET(self):
        self.serve()

    def serve(self):
        fault = fault_for(self.command, self.path)
        if "status" in fault:
            return self.answer(fault["status"], fault.get("headers"))
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path).lstrip("/")
        if path.startswith("lfs/"):
            return self.send_content((ROOT / path[4:]).read_bytes(), fault, {})
        if path.startswith("api/"):
            return self.serve_api(path[4:])
        return self.serve_file(path, fault)

    def repository(self, kind, name):
        folder = ROOT / kind / name
        if not folder.is_dir():
            self.problem(401 if not self.headers.get("Authorization") else 404, "RepoNotFound", "Repository not found")
            return None
        if (folder / ".gated").exists() and self.headers.get("Authorization") != "Bearer good":
            self.problem(401 if not self.headers.get("Authorization") else 403, "GatedRepo", "Access is restricted")
            return None
        letter = (folder / ".letter").read_text() if (folder / ".letter").exists() else "c"
        return folder, letter * 40

    def serve_api(self, path):
        kind, _, rest = path.partition("/")
        if rest.endswith("/refs"):
            return self.answer(200, {}, json.dumps({"branches": [{"name": "main"}], "tags": [{"name": "v2"}]}).encode())
        name, _, revision = rest.partition("/revision/")
        found = self.repository(kind, name)
        if found is None:
            return None
        folder, commit = found
        if revision not in ("main", "v2", commit):
            return self.problem(404, "RevisionNotFound", "Invalid rev id")
        files = sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file() and not file.name.startswith("."))
        return self.answer(200, {}, json.dumps({"sha": commit, "siblings": [{"rfilename": name} for name in files]}).encode())

    def serve_file(self, path, fault):
        kind = "models"
        if path.startswith("datasets/"):
            kind, path = "datasets", path[9:]
        name, _, rest = path.partition("/resolve/")
        if name == "bert-old-name":  # renamed: redirects within the Hub
            return self.answer(307, {"Location": self.path.replace("bert-old-name", "google-bert/bert-new-name")})
        found = self.repository(kind, name)
        if found is None:
            return None
        folder, commit = found
        revision, _, file_name = rest.partition("/")
        if revision not in ("main", "v2", commit):
            return self.problem(404, "RevisionNotFound", "Invalid rev id")
        file = folder / file_name
        if not file.is_file():
            return self.problem(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": commit})
        content = file.read_bytes()
        headers = {} if fault.get("no_commit") else {"X-Repo-Commit": commit}
        if file.suffix in LARGE:
            headers.update(
                {
                    "X-Linked-Etag": f'"{hashlib.sha256(content).hexdigest()}"',
                    "X-Linked-Size": str(len(content)),
                    "ETag": '"of the page"',
                    "Location": f"{SCHEME}://localhost:{PORT}/lfs/{file.relative_to(ROOT)}",
                }
            )
            if fault.get("no_size"):
                del headers["X-Linked-Size"]
            return self.answer(302, headers, b"redirecting")
        if not fault.get("no_etag"):
            headers["ETag"] = f'W/"{git_sha1(content)}"'
        return self.send_content(content, fault, headers)

    def send_content(self, content, fault, headers):
        status, begin = 200, 0
        wanted = self.headers.get("Range")
        if wanted and not fault.get("no_range"):
            begin = int(wanted.removeprefix("bytes=").split("-")[0])
            if begin >= len(content):
                return self.answer(416, {"Content-Range": f"bytes */{len(content)}"})
            status = 206
            headers["Content-Range"] = f"bytes {begin}-{len(content) - 1}/{len(content)}"
        body = content[begin:]
        if fault.get("corrupt"):
            body = bytes(255 - byte for byte in body)
        if fault.get("excess"):
            body += b"more"
        if "drop" not in fault and "drip" not in fault:
            return self.answer(status, headers, body)
        self.record(status)
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True
        if "drop" in fault:
            self.wfile.write(body[: fault["drop"]])
            return None
        try:
            for byte in body:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                time.sleep(fault["drip"])
        except OSError:  # the client has given up
            pass
        return None


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_):
        pass  # clients that go away


server = Server(("127.0.0.1", 0), Handler)
PORT = server.server_address[1]
SCHEME = "https" if len(sys.argv) == 4 else "http"
if SCHEME == "https":
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*sys.argv[2:])
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
threading.Thread(target=server.serve_forever, daemon=True).start()
(ROOT / "port.tmp").write_text(str(PORT))
os.rename(ROOT / "port.tmp", ROOT / "port")
deadline = time.monotonic() + 600  # a killed test leaves no server behind
while time.monotonic() < deadline and os.getppid() != 1:
    time.sleep(0.2)
