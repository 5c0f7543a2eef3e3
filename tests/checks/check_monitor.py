#!/usr/bin/env python3
"""Reports of a running job to a cluster: the status server of a TrainJob, the port for Prometheus and probes, and a log of JSON lines.

    check_monitor.py TANDEM

The status server is this script: over TLS with a certificate of its own, then one that refuses, one that does not answer, and none at all; with each
the job ends well and leaves the same weights.
"""

import contextlib
import http.server
import json
import os
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO = ROOT / "examples/demo"
sys.path.append(str(ROOT / "tests/support"))

from ports import free_port  # noqa: E402 - found by the line above


class Failed(Exception):
    """The list of faults."""


def job(output, steps="8"):
    return [
        sys.argv[1],
        "run_qa",
        "--model_name_or_path",
        str(DEMO / "model"),
        "--train_file",
        str(DEMO / "train.json"),
        "--do_train",
        "--max_steps",
        steps,
        "--per_device_train_batch_size",
        "4",
        "--max_seq_length",
        "128",
        "--doc_stride",
        "32",
        "--max_train_samples",
        "200",
        "--logging_steps",
        "2",
        "--output_dir",
        str(output),
    ]


def environment(more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KUBEFLOW", "TANDEM_METRICS"))}
    return {**kept, "OMP_NUM_THREADS": "1", "TANDEM_FEATURE_CACHE": "off", **more}


@contextlib.contextmanager
def status_server(certificate=None, status=200, delay=0.0):
    """A server on a free port; gives its address and the list of what it got."""
    got = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.path, self.headers["Authorization"], json.loads(body)))
            time.sleep(delay)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"{'https' if certificate else 'http'}://localhost:{server.server_port}/apis/status", got
    finally:
        server.shutdown()


def run(output, more, most_seconds=60):
    start = time.monotonic()
    done = subprocess.run(job(output), env=environment(more), capture_output=True, text=True, timeout=100, check=False)
    seconds = time.monotonic() - start
    if done.returncode or not (output / "model.safetensors").exists():
        raise Failed(f"{output.name}: the job ended with {done.returncode}:\n{done.stderr[-2000:]}")
    if seconds > most_seconds:
        raise Failed(f"{output.name}: the job took {seconds:.0f} s")
    return done.stdout + done.stderr, (output / "model.safetensors").read_bytes()


def certificate(folder):
    """A certificate for localhost and its key in one file, or nothing without openssl."""
    if shutil.which("openssl") is None:
        print("left out: TLS (needs openssl)")
        return None
    file = folder / "server.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost",
            "-keyout",
            file,
            "-out",
            folder / "ca.pem",
        ],
        capture_output=True,
        check=True,
        timeout=60,
    )
    file.write_text(file.read_text() + (folder / "ca.pem").read_text())
    return file


def check_posts(folder, weights):
    token = folder / "token"
    token.write_text("secret-token\n")
    pem = certificate(folder)
    with status_server(pem) as (url, got):
        more = {"KUBEFLOW_TRAINER_SERVER_URL": url, "KUBEFLOW_TRAINER_SERVER_TOKEN": str(token)}
        more |= {"KUBEFLOW_TRAINER_SERVER_CA_CERT": str(folder / "ca.pem")} if pem else {}
        text, bits = run(folder / "posts", more)
        last = got[-1][2]["trainerStatus"] if got else {}
        names = {one["name"] for one in last.get("metrics", [])}
        if not got or any((path, header) != ("/apis/status", "Bearer secret-token") for path, header, _ in got):
            raise Failed(f"the server got {got[:2]}:\n{text[-1500:]}")
        if last["progressPercentage"] != 100 or last["estimatedRemainingSeconds"] != 0 or not {"total_steps", "loss", "learning_rate"} <= names:
            raise Failed(f"the last post was {last}")
        if bits != weights or any(not isinstance(one["value"], str) for one in last["metrics"]):
            raise Failed(f"other weights, or values that are not text: {last}")
        before = len(got)
        run(folder / "disabled", {**more, "DISABLE_KUBEFLOW_INTEGRATION": "TRUE"})
        if len(got) != before:
            raise Failed("DISABLE_KUBEFLOW_INTEGRATION=TRUE does not stop the posts")


def check_bad_servers(folder, weights):
    with socket.create_server(("127.0.0.1", 0)) as silent_socket, status_server(status=403) as (refusing, _), status_server(delay=30) as (slow, _):
        cases = {
            "refuses": (refusing, "status 403"),
            "sleeps": (slow, None),
            "refused": ("http://127.0.0.1:1/x", "training continues"),
            "silent": (f"http://127.0.0.1:{silent_socket.getsockname()[1]}/x", None),
            "untrusted": ("nonsense://x", "training continues"),
        }
        for name, (url, printed) in cases.items():
            text, bits = run(folder / name, {"KUBEFLOW_TRAINER_SERVER_URL": url}, most_seconds=25)
            if bits != weights:
                raise Failed(f"{name}: other weights")
            if printed and printed not in " ".join(text.split()):
                print(f"note: {name}: the job ended before the answer was known")


def get(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def check_port(folder):
    port = free_port()
    process = subprocess.Popen(
        job(folder / "port", steps="100000"), env=environment({"TANDEM_METRICS_PORT": str(port)}), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        end = time.monotonic() + 60
        while get(port, "/readyz")[0] != 200 or "tandem_loss" not in get(port, "/metrics")[1]:
            if process.poll() is not None or time.monotonic() > end:
                raise Failed(f"nothing at the port: {get(port, '/metrics')}")
            time.sleep(0.02)
        values = {}
        for line in get(port, "/metrics")[1].splitlines():
            if not line.startswith("#"):
                name, value = line.split(" ")
                values[name] = float(value)
        first = values["tandem_step"]
        if values["tandem_max_steps"] != 100000 or values["tandem_ranks"] != 1 or values["tandem_training"] != 1 or not values["tandem_loss"] > 0:
            raise Failed(f"wrong values: {values}")
        if get(port, "/healthz") != (200, "ok\n") or get(port, "/other")[0] != 404:
            raise Failed("wrong answers at /healthz or /other")
        end = time.monotonic() + 30
        while f"tandem_step {first:.0f}\n" in get(port, "/metrics")[1]:
            if time.monotonic() > end:
                raise Failed("the step does not advance")
            time.sleep(0.05)
    finally:
        process.terminate()
        process.wait(60)
    if process.returncode != 143:
        raise Failed(f"SIGTERM ended the job with {process.returncode}")


def values_at(port):
    """The metrics by name."""
    lines = [line.split(" ") for line in get(port, "/metrics")[1].splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, value in lines}


def wait_for(what, seconds=90):
    """Calls what() until it gives something that is true, and returns that."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if result := what():
            return result
        time.sleep(0.05)
    raise Failed(f"waited {seconds} s for {what.__doc__}")


@contextlib.contextmanager
def agent(words, output, port):
    """`tandem run` with these flags in front of a long job."""
    command = job(output, steps="100000")
    with open(output.with_suffix(".log"), "w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [command[0], "run", *words, "run_qa.py", *command[2:]], env=environment({"TANDEM_METRICS_PORT": str(port)}), stdout=log, stderr=log
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                raise


def check_agent_port(folder):
    port = free_port()
    with agent(["--standalone", "--nproc-per-node", "2"], folder / "agent", port) as process:

        def up():
            """the agent at its port"""
            return process.poll() is None and get(port, "/healthz") == (200, "ok\n")

        wait_for(up)
        if get(port, "/readyz")[0] != 200:
            raise Failed("an agent that is there is not ready")

        def trained():
            """a loss at the agent's port"""
            values = values_at(port)
            return "tandem_loss" in values and values

        values = wait_for(trained)
        if (values["tandem_members"], values["tandem_ranks"], values["tandem_workers"], values["tandem_lost_seconds_total"], values["tandem_max_steps"]) != (
            1,
            2,
            2,
            0,
            100000,
        ):
            raise Failed(f"wrong values of an agent: {values}")
        status = subprocess.run([sys.argv[1], "status", str(process.pid), "--json"], capture_output=True, text=True, timeout=30, check=True)
        # Stopped first: so the pause is longer than a step on a busy machine, too.
        worker = json.loads(status.stdout)["members"][0]["pid"]
        os.kill(worker, signal.SIGSTOP)
        time.sleep(1)
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)

        def healed():
            """the time that a loss has cost"""
            values = values_at(port)
            return values.get("tandem_lost_seconds_total", 0) > 0 and values["tandem_ranks"] == 2 and values

        values = wait_for(healed)
        if values["tandem_losses_total"] != 1 or values["tandem_restarts_total"] != 1 or values["tandem_view"] < 2 or values["tandem_lost_seconds_total"] > 60:
            raise Failed(f"wrong values after a loss: {values}")
    if process.returncode != 143:
        raise Failed(f"SIGTERM ended the agent with {process.returncode}")


def check_lonely_agent(folder):
    """A pod that waits for the first one is ready, or no pod would ever learn its name."""
    port = free_port()
    with agent(
        [
            "--nnodes",
            "2",
            "--node-rank",
            "1",
            "--rdzv-backend",
            "c10d",
            "--rdzv-endpoint",
            f"127.0.0.1:{free_port()}",
            "--rdzv-conf",
            "is_host=0",
            "--rdzv-id",
            "lonely",
        ],
        folder / "lonely",
        port,
    ) as process:

        def ready():
            """a waiting agent to be ready"""
            return process.poll() is None and get(port, "/readyz")[0] == 200 and get(port, "/healthz")[0] == 200

        wait_for(ready, 30)


def check_taken_port(folder, weights):
    with socket.create_server(("0.0.0.0", 0)) as taken:
        text, bits = run(folder / "taken", {"TANDEM_METRICS_PORT": str(taken.getsockname()[1])})
    if "TANDEM_METRICS_PORT" not in text or bits != weights:
        raise Failed(f"a taken port: {text[-1500:]}")


def json_lines(words, more=None, code=0):
    """The objects of a log of which every line must be one, of both streams."""
    done = subprocess.run(list(map(str, words)), env=environment(more or {}), capture_output=True, text=True, timeout=100, check=False)
    if done.returncode != code:
        raise Failed(f"{words[1:4]} ended with {done.returncode}, not {code}:\n{(done.stdout + done.stderr)[-2000:]}")
    objects = []
    for line in (done.stdout + done.stderr).splitlines():
        try:
            one = json.loads(line)
        except ValueError:
            one = None
        if not isinstance(one, dict) or not {"time", "severity", "logger", "message"} <= one.keys():
            raise Failed(f"this line of a JSON log is not such an object: {line[:300]}")
        objects.append(one)
    if not objects:
        raise Failed(f"{words[1:4]} logged nothing")
    return objects


def check_json_log(folder):
    command = job(folder / "json")
    lines = json_lines([*command, "--log_format", "json"])
    metrics = [one["metrics"] for one in lines if "metrics" in one]
    if not any("loss" in one for one in metrics) or not any("train_loss" in one for one in metrics) or not any("progress" in one for one in lines):
        raise Failed(f"no metrics or progress among {len(lines)} lines")
    # Under the agent, whichever of them is drained; two ranks, one of which is killed by what it runs.
    agent = [command[0], "run", "--nproc-per-node", "2"]
    of_ranks = json_lines([*agent, "run_qa.py", *job(folder / "ranks")[2:], "--log_format", "json"])
    if not any(one["logger"] == "tandem run" for one in of_ranks) or not any("rank" in one for one in of_ranks):
        raise Failed(f"no line of the agent, or of a rank: {of_ranks[:3]}")
    # Faults before the log exists.
    for words, more, code in (
        ([*command, "--log_format=json", "--bogus"], {}, 2),
        ([*command, "--train_file", "nowhere"], {"TANDEM_LOG_FORMAT": "json"}, 1),
        ([*agent, "run_qa.py", "--bogus"], {"TANDEM_LOG_FORMAT": "json"}, 2),
        ([*agent, "--log-format", "json", "--bogus"], {}, 2),
        ([command[0], "mpirun", "-n", "2", *command, "--log_format", "json", "--bogus"], {}, 2),
    ):
        if not any(one["severity"] == "ERROR" for one in json_lines(words, more, code) if one["logger"] == "tandem"):
            raise Failed(f"{words[1:3]}: no line names the fault")


def main():
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        try:
            weights = run(folder / "plain", {})[1]
            check_posts(folder, weights)
            check_bad_servers(folder, weights)
            check_port(folder)
            check_taken_port(folder, weights)
            check_agent_port(folder)
            check_lonely_agent(folder)
            check_json_log(folder)
        except Failed as problem:
            print(f"check_monitor: {problem}")
            return 1
    print("check_monitor: status posts, five bad servers, the port of metrics of ranks and of agents, and JSON lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
