#!/usr/bin/env python3
"""The guide's PyTorchJob in a cluster that this script plays: real kubectl creates it, looks at it, reads its logs, scales and deletes it.

    check_cluster.py TANDEM

The cluster is an API server with the paths that kubectl asks for, and an operator that follows the published rules of Kubeflow's training operator 1.9 for
elastic jobs: variables, names of pods, restarts, status. A pod is a process with a host name of its own, in a root that is this machine's under the files of
deploy/image; its name resolves once it runs. All of it lives in namespaces of mounts, host names and network. There are no limits on CPU and memory, and all
pods share one network; tests/install/check_image.py has pods as containers.
Exits 77 (skipped) without root, overlay file systems, kubectl (scripts/fetch_python_packages.sh) or ../shared/data/guides.
"""

import http.server
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time

from support import DEMO, GUIDES, ROOT, Failed, Scratch, Skipped, call, must, questions, verdict, wait_for

GUIDE = GUIDES / "pytorchjob-4.46.yaml"
VENV = ROOT / "build/test-data/venv"
INSIDE = "--inside"
JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
PODS = "/api/v1/namespaces/default/pods"
NAME = "transformers-pytorchjob"


def make_network():
    """One device with an address for each pod: ranks of several nodes do not meet over loopback."""
    for words in (
        "link set lo up",
        "link add pods type veth peer name unused",
        *(f"address add 10.244.7.{10 + index}/24 dev pods" for index in range(4)),
        "link set pods up",
        "link set unused up",
    ):
        must("ip", *words.split(), error=Skipped)


# ---- the root of the pods ----
def make_image(scratch, tandem):
    """This machine's files under those of the image, as deploy/Dockerfile puts them there."""
    root = scratch / "root"
    for name in ("root", "image", "volume"):
        (scratch / name).mkdir()
    call("mount", "-t", "tmpfs", "none", scratch / "image")
    for name in ("upper", "work"):
        (scratch / "image" / name).mkdir()
    must("mount", "-t", "overlay", "-o", f"lowerdir=/,upperdir={scratch}/image/upper,workdir={scratch}/image/work", "none", root, error=Skipped)
    shutil.copytree(ROOT / "deploy/image", root, dirs_exist_ok=True, symlinks=True)
    shutil.copy(tandem, root / "usr/local/bin/tandem")
    # Where the guide preloads them from; a library that this machine lacks stays a line of the log.
    for path, pattern in (("usr/lib/x86_64-linux-gnu/libtcmalloc.so.4.5.9", "libtcmalloc.so.4"), ("usr/local/lib/libiomp5.so", "libgomp.so.1")):
        found = sorted(pathlib.Path("/usr/lib").glob(f"*/{pattern}"))
        if found and not (root / path).exists():
            (root / path).symlink_to(found[0])
    for name in ("pip3", "python3"):  # the image has none
        (root / "usr/bin" / name).unlink(missing_ok=True)
    for name in ("proc", "dev", "sys"):
        call("mount", "--rbind", f"/{name}", root / name)
    for name in ("tmp", "dev/shm"):
        call("mount", "-t", "tmpfs", "none", root / name)
    (root / "tmp/pvc-mount").mkdir()
    call("mount", "--bind", scratch / "volume", root / "tmp/pvc-mount")
    must("chroot", root, "/usr/local/bin/tandem-guide-paths", "/workspace/transformers")
    place = root / "workspace/transformers"
    shutil.copytree(DEMO / "model", place / "distilbert/distilbert-base-uncased")
    (place / "squad").mkdir()
    for name, source, count in (("train", "train", 100), ("validation", "held_out", 10)):
        (place / f"squad/{name}.json").write_text(questions(DEMO / f"{source}.json", count))
    return root


# ---- pods ----
class Pod:
    def __init__(self, cluster, job, index):
        self.job, self.index = job, index
        self.name = f"{job['metadata']['name']}-worker-{index}"
        self.uid = f"{self.name}-{time.monotonic_ns()}"
        self.template = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
        self.log = cluster.scratch / f"{self.uid}.log"
        self.created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.restarts = 0
        self.kill_at = None  # it is being deleted
        self.cluster = cluster
        self.start()

    def environment(self):
        """As the operator sets it for elastic jobs; the template's values come first."""
        policy = self.job["spec"]["elasticPolicy"]
        name = self.job["metadata"]["name"]
        container = self.template["spec"]["containers"][0]
        values = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "KUBERNETES_SERVICE_HOST": "10.96.0.1", "HF_HUB_OFFLINE": "1"}
        values |= {one["name"]: one["value"] for one in container.get("env", [])}
        values |= {
            "PET_RDZV_ENDPOINT": f"{name}-worker-0:23456",
            "PET_RDZV_BACKEND": policy["rdzvBackend"],
            "PET_NPROC_PER_NODE": self.job["spec"].get("nprocPerNode", "auto"),
            "PET_NNODES": f"{policy['minReplicas']}:{policy['maxReplicas']}",
            "PET_MAX_RESTARTS": str(policy["maxRestarts"]),
        }
        if "rdzvId" in policy:
            values["PET_RDZV_ID"] = policy["rdzvId"]
        return values

    def start(self):
        container = self.template["spec"]["containers"][0]
        words = [*container.get("command", []), *container.get("args", [])]
        inner = 'hostname "$1" && exec chroot "$2" env -i "${@:3}"'
        variables = [f"{name}={value}" for name, value in self.environment().items()]
        with open(self.log, "ab") as file:
            self.process = subprocess.Popen(
                ["unshare", "--uts", "bash", "-c", inner, "pod", self.name, str(self.cluster.root), *variables, *words],
                stdout=file,
                stderr=file,
                stdin=subprocess.DEVNULL,
            )
        self.ended_at = None

    def delete(self):
        if self.kill_at is None:
            self.kill_at = time.monotonic() + self.template["spec"].get("terminationGracePeriodSeconds", 30)
            if self.process.poll() is None:
                self.process.terminate()

    def phase(self):
        code = self.process.poll()
        return "Running" if code is None else "Succeeded" if code == 0 else "Failed"

    def object(self):
        code = self.process.poll()
        state = {"running": {}} if code is None else {"terminated": {"exitCode": code if code >= 0 else 128 - code}}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self.name,
                "namespace": "default",
                "uid": self.uid,
                "creationTimestamp": self.created,
                "labels": {"training.kubeflow.org/job-name": self.job["metadata"]["name"]},
            },
            "spec": self.template["spec"],
            "status": {"phase": self.phase(), "containerStatuses": [{"name": "pytorch", "restartCount": self.restarts, "ready": code is None, "state": state}]},
        }


class Cluster:
    """Objects, and the loop of the operator. One lock for all."""

    def __init__(self, scratch, root):
        self.scratch, self.root = scratch, root
        self.lock = threading.RLock()
        self.jobs, self.pods = {}, {}
        self.version = 0
        self.ended = []  # (pod, exit code), in order
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.loop)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()
        for pod in self.pods.values():
            if pod.process.poll() is None:
                pod.process.kill()
            pod.process.wait()

    def loop(self):
        while not self.stop.wait(0.1):
            with self.lock:
                for job in list(self.jobs.values()):
                    self.reconcile(job)
                self.sweep()
                self.write_names()

    def pods_of(self, job):
        return [pod for pod in self.pods.values() if pod.job is job]

    def reconcile(self, job):
        worker = job["spec"]["pytorchReplicaSpecs"]["Worker"]
        status = job["status"]
        ended = status["conditions"][-1]["type"] in ("Succeeded", "Failed")
        for index in range(worker["replicas"] if not ended else 0):
            name = f"{job['metadata']['name']}-worker-{index}"
            if name not in self.pods:
                self.pods[name] = Pod(self, job, index)
        for pod in self.pods_of(job):
            if pod.index >= worker["replicas"]:
                pod.delete()
            elif pod.kill_at is None and not ended:
                self.look_at(job, worker, pod)
        phases = [pod.phase() for pod in self.pods_of(job)]
        status["replicaStatuses"] = {"Worker": {"active": phases.count("Running"), "succeeded": phases.count("Succeeded"), "failed": phases.count("Failed")}}

    def look_at(self, job, worker, pod):
        code = pod.process.poll()
        if code is None:
            return
        code = code if code >= 0 else 128 - code
        policy = worker.get("restartPolicy", "Never")
        if code == 0:  # of any worker of an elastic job
            self.condition(job, "Succeeded")
        elif policy in ("OnFailure", "Always"):
            pod.ended_at = pod.ended_at or time.monotonic()
            if time.monotonic() > pod.ended_at + 1:
                pod.restarts += 1
                self.ended.append((pod.name, code))
                pod.start()
        elif policy == "ExitCode" and code >= 128:
            pod.delete()
        else:
            self.condition(job, "Failed")

    def condition(self, job, kind):
        job["status"]["conditions"].append({"type": kind, "status": "True"})

    def sweep(self):
        """Removes deleted pods that have ended, and kills those whose grace period is over."""
        for name, pod in list(self.pods.items()):
            if pod.kill_at is None:
                continue
            if pod.process.poll() is not None:
                self.ended.append((name, pod.process.returncode if pod.process.returncode >= 0 else 128 - pod.process.returncode))
                del self.pods[name]
            elif time.monotonic() > pod.kill_at:
                pod.process.kill()

    def write_names(self):
        """The names that resolve: those of pods that run."""
        lines = ["127.0.0.1 localhost"] + [f"10.244.7.{10 + pod.index} {pod.name}" for pod in self.pods.values() if pod.phase() == "Running"]
        (self.root / "etc/hosts").write_text("\n".join(lines) + "\n")

    # ---- what kubectl asks for ----
    def answer(self, method, path, query, body):
        """(status, object or text)"""
        with self.lock:
            if fixed := self.discovery(path):
                return 200, fixed
            for place, objects in ((JOBS, self.jobs), (PODS, {name: pod.object() for name, pod in self.pods.items()})):
                if path == place:
                    return self.answer_list(method, objects, query, body)
                if path.startswith(place + "/"):
                    name, _, more = path.removeprefix(place + "/").partition("/")
                    if name not in objects:
                        return 404, failure(404, "NotFound", f'"{name}" not found')
                    return self.answer_one(method, name, more, objects, body)
        return 404, failure(404, "NotFound", "the server could not find the requested resource")

    def discovery(self, path):
        resource = {"namespaced": True, "verbs": ["create", "delete", "get", "list", "patch", "watch"]}
        return {
            "/api": {"kind": "APIVersions", "versions": ["v1"]},
            "/apis": {
                "kind": "APIGroupList",
                "apiVersion": "v1",
                "groups": [
                    {
                        "name": "kubeflow.org",
                        "versions": [{"groupVersion": "kubeflow.org/v1", "version": "v1"}],
                        "preferredVersion": {"groupVersion": "kubeflow.org/v1", "version": "v1"},
                    }
                ],
            },
            "/api/v1": {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": "v1",
                "resources": [
                    {**resource, "name": "pods", "singularName": "pod", "kind": "Pod", "shortNames": ["po"]},
                    {**resource, "name": "pods/log", "singularName": "", "kind": "Pod"},
                ],
            },
            "/apis/kubeflow.org/v1": {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": "kubeflow.org/v1",
                "resources": [
                    {**resource, "name": "pytorchjobs", "singularName": "pytorchjob", "kind": "PyTorchJob"},
                    {**resource, "name": "pytorchjobs/scale", "singularName": "", "kind": "Scale", "group": "autoscaling", "version": "v1"},
                ],
            },
        }.get(path)

    def answer_list(self, method, objects, query, body):
        if method == "POST":
            job = json.loads(body)
            name = job["metadata"]["name"]
            if name in self.jobs:
                return 409, failure(409, "AlreadyExists", f'"{name}" already exists')
            job["metadata"] |= {"namespace": "default", "uid": f"{name}-uid", "resourceVersion": "1"}
            job["status"] = {"conditions": [{"type": "Created", "status": "True"}], "replicaStatuses": {}}
            self.jobs[name] = job
            return 201, job
        wanted = re.search(r"metadata\.name(?:%3D|=)([\w.-]+)", query)
        items = [one for name, one in objects.items() if not wanted or name == wanted[1]]
        return 200, {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}

    def answer_one(self, method, name, more, objects, body):
        one = objects[name]
        if more == "log":
            return 200, self.pods[name].log.read_text(errors="replace")
        if more == "scale":
            worker = one["spec"]["pytorchReplicaSpecs"]["Worker"]
            if method in ("PATCH", "PUT"):
                worker["replicas"] = json.loads(body)["spec"]["replicas"]
            return 200, {
                "kind": "Scale",
                "apiVersion": "autoscaling/v1",
                "metadata": {"name": name, "namespace": "default", "resourceVersion": "1"},
                "spec": {"replicas": worker["replicas"]},
                "status": {"replicas": worker["replicas"]},
            }
        if method == "DELETE":
            for pod in list(self.pods.values()):
                if pod.name == name or pod.job is one:
                    pod.delete()
            self.jobs.pop(name, None) if one.get("kind") == "PyTorchJob" else None
            return 200, {"kind": "Status", "apiVersion": "v1", "status": "Success", "details": {"name": name, "uid": one["metadata"]["uid"]}}
        return 200, one


def failure(code, reason, message):
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message}


def serve(cluster):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def respond(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            path, _, query = self.path.partition("?")
            status, answer = cluster.answer(self.command, path.rstrip("/"), query, body)
            text = answer if isinstance(answer, str) else json.dumps(answer)
            self.send_response(status)
            self.send_header("Content-Type", "text/plain" if isinstance(answer, str) else "application/json")
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = respond

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


class Kubectl:
    def __init__(self, folder, port):
        self.words = [str(VENV / "bin/kubectl"), "--server", f"http://127.0.0.1:{port}", f"--cache-dir={folder}/cache"]
        self.environment = {"HOME": str(folder), "KUBECONFIG": f"{folder}/none", "PATH": "/usr/bin:/bin"}

    def __call__(self, *words, ok=True):
        done = call(*self.words, *words, timeout=90, env=self.environment)
        if ok and done.returncode:
            raise Failed(f"kubectl {' '.join(map(str, words))}: {done.stdout}{done.stderr}")
        return done.stdout

    def logs(self, pod):
        return " ".join(self("logs", pod, ok=False).split())


def logs_of(cluster):
    return lambda: "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-1500:]}" for path in sorted(cluster.scratch.glob("*.log")))


def names_of_pods(kubectl):
    return sorted(kubectl("get", "pods", "-o", "name").split())


def check_guide(cluster, kubectl, folder, text):
    """As printed, with the image's name filled in: from create to Succeeded and delete."""
    file = folder / "guide.yaml"
    file.write_text(text)
    if "created" not in kubectl("create", "--validate=false", "-f", file):
        raise Failed("kubectl create does not report that the job was created")
    wait_for(lambda: len(names_of_pods(kubectl)) == 4, "four pods", 30, logs_of(cluster))
    wait_for(
        lambda: "Succeeded" in kubectl("get", "pytorchjob", NAME, "-o", "jsonpath={.status.conditions[*].type}"), "the job's success", 150, logs_of(cluster)
    )
    logs = "".join(kubectl.logs(pod) for pod in names_of_pods(kubectl))
    for words in ("eval_exact_match", "torchrun is 'tandem run'", "pip installs nothing"):
        if words not in logs:
            raise Failed(f"no '{words}' in the logs of the pods: {logs[-3000:]}")
    if len(list((cluster.scratch / "volume").glob("output_*/model.safetensors"))) != 1:
        raise Failed("not one model on the volume")
    kubectl("delete", "pytorchjob", NAME)
    wait_for(lambda: not names_of_pods(kubectl), "the pods to go", 60, logs_of(cluster))


def check_life(cluster, kubectl, folder, text):
    """A long job: a pod is deleted and comes back, the job is scaled down and up, and deleted while it trains."""
    file = folder / "long.yaml"
    file.write_text(text.replace("--num_train_epochs 2", "--num_train_epochs 100000 --save_steps 100000"))
    kubectl("create", "--validate=false", "-f", file)

    def computes(count):
        """Whether so many workers are in the newest view, by worker 0's log."""

        def condition():
            counts = re.findall(r"view \d+: (\d) of 4 workers continue", kubectl.logs(f"{NAME}-worker-0"))
            return counts and counts[-1] == str(count)

        wait_for(condition, f"a view of {count} workers", 150, logs_of(cluster))

    computes(4)
    kubectl("delete", "pod", f"{NAME}-worker-2", "--wait=false")
    wait_for(lambda: (f"{NAME}-worker-2", 143) in cluster.ended, "the deleted pod to be drained", 60, logs_of(cluster))
    computes(4)  # it has come back
    kubectl("scale", "pytorchjob", NAME, "--replicas", "2")
    wait_for(lambda: len(names_of_pods(kubectl)) == 2, "two pods", 60, logs_of(cluster))
    computes(2)
    kubectl("scale", "pytorchjob", NAME, "--replicas", "3")
    computes(3)
    kubectl("delete", "pytorchjob", NAME)
    wait_for(lambda: not names_of_pods(kubectl), "the pods to go", 90, logs_of(cluster))
    codes = [code for _, code in cluster.ended]
    if any(code not in (0, 143) for code in codes):
        raise Failed(f"pods that were deleted ended with {cluster.ended}")


def show(tandem, scratch):
    make_network()
    root = make_image(scratch, tandem)
    text = re.sub(r"image: <[^\n]*", "image: tandem:1", GUIDE.read_text())
    with Cluster(scratch, root) as cluster:
        server = serve(cluster)
        kubectl = Kubectl(scratch, server.server_port)
        check_guide(cluster, kubectl, scratch, text)
        check_life(cluster, kubectl, scratch, text)
        server.shutdown()
    return "kubectl created, watched, scaled and deleted the guide's job"


def inside(tandem):
    with Scratch() as scratch:
        return verdict("check_cluster", lambda: show(tandem, scratch))


def main():
    tandem = pathlib.Path(sys.argv[1]).resolve()
    if INSIDE in sys.argv:
        return inside(tandem)
    for what, there in (
        ("root", os.geteuid() == 0),
        ("kubectl (scripts/fetch_python_packages.sh)", (VENV / "bin/kubectl").exists()),
        (str(GUIDE), GUIDE.exists()),
        ("ip (iproute2)", shutil.which("ip") is not None),
    ):
        if not there:
            print(f"SKIPPED: needs {what}")
            return 77
    spaces = ["unshare", "--mount", "--net", "--propagation", "private"]
    if call(*spaces, "true").returncode:
        print("SKIPPED: this machine makes no namespaces")
        return 77
    return subprocess.run([*spaces, sys.executable, __file__, tandem, INSIDE], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
