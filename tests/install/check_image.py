#!/usr/bin/env python3
"""Builds the image of deploy/Dockerfile around the program that is built, and runs the guides' jobs in it as podman containers.

    check_image.py BUILD_DIRECTORY [--docker]

Shows: what the image adds to its base and that no compiler is in it; a root that is read-only, 64 MB of /dev/shm and an unknown user id; every name of
the guides; the `bash -c` line of the 4.46 guide and the command list of the 4.35 guide as printed (from ../shared/data/guides), with the demo's model under the
guides' names; two containers as two pods of that job, of which one is killed, replaced and drained, with the weights of the undisturbed job; the base without
the program; pods with the variables of every other kind of job; the guides' Dockerfile on the image's base stage; a job whose pod has less memory than it
plans. Exits 77 (skipped) without podman, runc, mmdebstrap, the right to run containers, or Debian's packages. With --docker the image is built by `docker
build` and runs under a dockerd that this starts, with all but what needs two hosts; that takes some minutes.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "checks"))
from support import DEMO, GUIDES, ROOT, Failed, Scratch, Skipped, expect, questions, verdict, wait_for  # noqa: E402
from support import call as call_for  # noqa: E402

BASE = "localhost/tandem-debian:bookworm"
IMAGE = f"localhost/tandem-test:{os.getpid()}"
ENGINE = "docker" if "--docker" in sys.argv else "podman"
MOST_BYTES = 150_000_000  # of the program and its libraries, over the base
# A machine that may not raise limits and has no systemd, as many that run tests.
CONTAINERS_CONF = """[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


def call(*words, timeout=300, **options):
    return call_for(*words, timeout=timeout, **options)


class Docker:
    """A daemon of the test's own: no bridge, no rules of a firewall, files of its own."""

    def __init__(self, scratch):
        folder = scratch / "docker"
        folder.mkdir()
        os.environ["DOCKER_HOST"] = f"unix://{folder}/socket"
        with open(folder / "log", "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [
                    "dockerd",
                    "--data-root",
                    folder / "data",
                    "--exec-root",
                    folder / "exec",
                    "--pidfile",
                    folder / "pid",
                    "-H",
                    os.environ["DOCKER_HOST"],
                    "--storage-driver",
                    "vfs",
                    "--iptables=false",
                    "--ip6tables=false",
                    "--ip-forward=false",
                    "--bridge=none",
                    "--default-ulimit",
                    "nofile=4096:4096",
                ],
                stdout=log,
                stderr=log,
            )
        wait_for(lambda: self.process.poll() is not None or call("docker", "info").returncode == 0, "dockerd", 60, (folder / "log").read_text)
        if self.process.poll() is not None:
            raise Skipped(f"dockerd does not run here: {(folder / 'log').read_text()[-500:]}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)


def require_containers(scratch):
    for program in (ENGINE, "dockerd" if ENGINE == "docker" else "runc", "mmdebstrap"):
        if shutil.which(program) is None:
            raise Skipped(f"needs {program} (apt install podman buildah runc mmdebstrap; for --docker docker.io)")
    if os.geteuid() != 0:
        raise Skipped("needs root")
    config = scratch / "containers.conf"
    config.write_text(CONTAINERS_CONF)
    os.environ["CONTAINERS_CONF"] = str(config)


def build(build_directory, tag, *options):
    done = call(ROOT / "deploy/build_image.sh", "--own-base", "--engine", ENGINE, "--build", build_directory, "--tag", tag, *options)
    if done.returncode == 0:
        return
    text = done.stdout + done.stderr
    if re.search(r"Temporary failure|Could not resolve|Unable to connect|E: Unable to locate|Failed to fetch|E: apt-get update failed", text):
        raise Skipped(f"Debian's packages cannot be reached: {text[-300:]}")
    if re.search(r"Operation not permitted|permission denied|cannot clone", text):
        raise Skipped(f"this machine does not allow builds of containers: {text[-300:]}")
    raise Failed(f"build_image.sh ended with {done.returncode}:\n{text[-3000:]}")


def size(image):
    return int(call(ENGINE, "image", "inspect", "--format", "{{.Size}}", image).stdout)


def run(*words, options=(), image=IMAGE, ok=True, timeout=300):
    """Output and errors of a container, without podman's lines about a machine without systemd."""
    done = call(ENGINE, "run", "--rm", "--network", "none", "--no-healthcheck", *options, image, *words, timeout=timeout)
    text = "".join(line for line in (done.stdout + done.stderr).splitlines(True) if "level=" not in line)
    if ok and done.returncode != 0:
        raise Failed(f"{' '.join(map(str, words))[:300]}: ended with {done.returncode}:\n{text[-3000:]}")
    return text


def check_size():
    added = size(IMAGE) - size(BASE)
    if added > MOST_BYTES:
        raise Failed(f"the image adds {added} bytes to its base, more than {MOST_BYTES}")
    found = run("sh", "-c", "for name in gcc g++ cc c++ clang ld as make cmake; do command -v $name; done; ls /etc/ssh/ssh_host_* /src", ok=False)
    if "/bin/" in found or "/ssh_host_" in found.replace("ssh_host_*", ""):
        raise Failed(f"the image holds what it should not: {found}")
    print(f"image: {added / 1e6:.0f} MB over its base of {size(BASE) / 1e6:.0f} MB")


def check_restrictions(scratch):
    model = scratch / "model-with-head"
    subprocess.run([sys.executable, ROOT / "tests/support/with_head.py", DEMO / "model", model, "ForQuestionAnswering"], check=True)
    text = run(
        "bash",
        "-c",
        "id -u; tandem --version; df -k /dev/shm; touch /etc/x; tandem ask --model /model --context /text 'When?'",
        options=(
            "--read-only",
            "--user",
            "12345:0",
            "--shm-size",
            "64m",
            "--memory",
            "1g",
            "--cpus",
            "1",
            "-v",
            f"{model}:/model:ro",
            "-v",
            f"{ROOT / 'README.md'}:/text:ro",
        ),
    )
    expect(text, "12345", "tandem 0", "65536", "Read-only file system", "probability")


def check_names():
    script = """
for job in question-answering/run_qa text-classification/run_glue text-classification/run_classification token-classification/run_ner; do
  path=/workspace/transformers/examples/pytorch/$job.py
  python3 $path --help | grep -q "usage: tandem ${job#*/}" && $path --help | grep -q usage && echo "ok ${job#*/}"
  torchrun --nproc-per-node 1 $path --help | grep -q "usage: tandem ${job#*/}" && echo "torchrun ${job#*/}"
  pip install -r ${path%/*}/requirements.txt || exit 1
done
python3 -m pip install accelerate && python3 -m torch.distributed.run --help | grep 'usage: tandem run'
mpirun -n 2 tandem --version && tandem-sshd -t && echo 'sshd ok'
mpirun -n 2 hostname; echo "mpirun $?"
torchrun train.py; echo "torchrun $?"
python3 -c 'print(1)'; echo "python $?"
"""
    text = run("bash", "-c", script)
    expect(text, *(f"{how} {job}" for how in ("ok", "torchrun") for job in ("run_qa", "run_glue", "run_classification", "run_ner")))
    expect(
        text,
        "usage: tandem run",
        "sshd ok",
        "mpirun 1",
        "install the MPI",
        "torchrun 1",
        "found no torch",
        "python 127",
        "there is no Python here",
        "torchrun is 'tandem run'",
    )


def check_no_program():
    """An image that is not tandem's: the runtime logs that. Kubernetes shows it as StartError."""
    done = call(ENGINE, "run", "--rm", "--network", "none", BASE, "tandem", "run", "run_qa.py")
    if done.returncode != 127 or "tandem" not in done.stderr or "not found" not in done.stderr:
        raise Failed(f"an image without the program: {done.returncode}, {done.stderr[-500:]}")


def make_volume(scratch):
    """A job's volume; and the demo under the guides' names, where the guides' commands look for them."""
    (scratch / "squad").mkdir()
    (scratch / "squad/train.json").write_text(questions(DEMO / "train.json", 24))
    (scratch / "squad/validation.json").write_text(questions(DEMO / "held_out.json", 10))
    volume = scratch / "pvc"
    volume.mkdir(mode=0o777)
    volume.chmod(0o777)
    return volume


def guide(name):
    path = GUIDES / name
    if not path.exists():
        raise Skipped(f"needs {path}")
    return path.read_text().splitlines()


def environment_of(lines):
    """The guide's env list, and what Kubernetes and the operator of PyTorchJobs set in the pods of an elastic job."""
    values = {}
    for index, line in enumerate(lines):
        if match := re.search(r"- name: ([A-Z_]+)", line):
            if value := re.search(r'^-?\s+value: "(.*)"', lines[index + 1]):
                values[match[1]] = value[1]
    job = "transformers-pytorchjob"
    return {
        **values,
        "PET_RDZV_ENDPOINT": f"{job}-worker-0:23456",
        "PET_RDZV_BACKEND": "c10d",
        "PET_NNODES": "1:4",
        "PET_MAX_RESTARTS": "10",
        "PET_NPROC_PER_NODE": "auto",
        "KUBERNETES_SERVICE_HOST": "10.96.0.1",
        "HF_HUB_OFFLINE": "1",
    }


def pod_options(lines, scratch, volume, folder, model, worker=0, host="127.0.0.1"):
    options = [
        "--hostname",
        f"transformers-pytorchjob-worker-{worker}",
        "--add-host",
        f"transformers-pytorchjob-worker-0:{host}",
        "--shm-size",
        "64m",
        "--memory",
        "2g",
        "--cpus",
        "1",
        "-v",
        f"{volume}:/tmp/pvc-mount",
        "-v",
        f"{DEMO / 'model'}:{folder}/{model}:ro",
        "-v",
        f"{scratch / 'squad'}:{folder}/squad:ro",
    ]
    for name, value in environment_of(lines).items():
        options += ["--env", f"{name}={value}"]
    return options


def script_of_446(lines):
    """The guide's one long argument of `bash -c`."""
    begin = next(index for index, line in enumerate(lines) if line.strip() == "- >-") + 1
    end = next(index for index, line in enumerate(lines) if line.strip() == "env:")
    return "\n".join(line.strip() for line in lines[begin:end])


def check_guide_446(scratch, volume):
    lines = guide("pytorchjob-4.46.yaml")
    script = script_of_446(lines)
    text = run("/bin/bash", "-c", script, options=pod_options(lines, scratch, volume, "/workspace/transformers", "distilbert/distilbert-base-uncased"))
    expect(text, "pip installs nothing", "setvars.sh sets nothing", "libiomp5.so in LD_PRELOAD", "eval_exact_match", "OMP_NUM_THREADS is 240")
    if "cannot be preloaded" in text:
        raise Failed(f"a library of LD_PRELOAD is missing:\n{text}")
    if len(list(volume.glob("output_2*/model.safetensors"))) != 1:
        raise Failed(f"no model in output_$(date …): {sorted(volume.iterdir())}")


def check_guide_435(scratch, volume):
    lines = guide("pytorchjob-4.35.yaml")
    begin = next(index for index, line in enumerate(lines) if line.strip() == "command:") + 1
    end = next(index for index, line in enumerate(lines) if line.strip() == "env:")
    command = [re.sub(r"\s+#.*", "", line.strip().removeprefix("- ")).strip('"') for line in lines[begin:end]]
    text = run(*command, options=pod_options(lines, scratch, volume, "/workspace", "bert-large-uncased"))
    expect(text, "eval_exact_match")
    if not (volume / "output/model.safetensors").is_file():
        raise Failed(f"no model in output: {sorted(volume.iterdir())}")


def check_memory_limit(scratch):
    """requests = limits below the plan: reported with both figures before the first step."""
    (scratch / "small").mkdir(mode=0o777)
    (scratch / "small").chmod(0o777)
    options = [
        "--memory",
        "64m",
        "--memory-swap",
        "64m",
        "-v",
        f"{scratch / 'small'}:/volume",
        "-v",
        f"{DEMO / 'model'}:/model:ro",
        "-v",
        f"{scratch / 'squad'}:/data:ro",
    ]
    done = call(
        ENGINE,
        "run",
        "--rm",
        "--network",
        "none",
        "--no-healthcheck",
        *options,
        IMAGE,
        "torchrun",
        "/x/run_qa.py",
        *job_flags("small"),
        "--per_device_train_batch_size",
        "64",
        "--max_seq_length",
        "384",
        "--pad_to_max_length",
        "true",
    )
    text = " ".join((done.stdout + done.stderr).split())
    if done.returncode != 1 or list((scratch / "small").rglob("checkpoint-*")):
        raise Failed(f"a pod with less memory than the plan: {done.returncode}, {text[-2000:]}")
    expect(text, "memory", "64")


class TwoHosts:
    """Two network namespaces with a wire between them, for containers to run in."""

    addresses = ("10.77.33.1", "10.77.33.2")

    def __init__(self):
        self.names = [f"tandem-{os.getpid()}-{number}" for number in range(2)]

    def __enter__(self):
        wires = [f"tw{os.getpid() % 100000}{end}" for end in "ab"]
        done = [call("ip", "netns", "add", name) for name in self.names]
        done.append(call("ip", "link", "add", wires[0], "netns", self.names[0], "type", "veth", "peer", "name", wires[1], "netns", self.names[1]))
        for name, wire, address in zip(self.names, wires, self.addresses):
            done += [
                call("ip", "-n", name, "address", "add", f"{address}/24", "dev", wire),
                call("ip", "-n", name, "link", "set", wire, "up"),
                call("ip", "-n", name, "link", "set", "lo", "up"),
            ]
        if any(one.returncode for one in done):
            self.__exit__()
            raise Skipped("this machine has no network namespaces: " + "".join(one.stderr for one in done)[:200])
        return self

    def __exit__(self, *_):
        for name in self.names:
            call("ip", "netns", "delete", name)


def check_two_pods(scratch, folder):
    """The guide's job as two pods; one is killed and replaced, and the new one is drained (SIGTERM, as `kubectl delete` and `scale` send it), while the
    other continues. Shards and checkpoints are set, so that the bits are given."""
    lines = guide("pytorchjob-4.46.yaml")
    script = script_of_446(lines).replace("--bf16", "--bf16 --logical_shards 2 --save_steps 20 --save_total_limit 2 --num_train_epochs 12")
    (scratch / "squad/train.json").write_text(questions(DEMO / "train.json", 240))
    where = (scratch, folder, "/workspace/transformers", "distilbert/distilbert-base-uncased")
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    started = []

    def start(worker, hosts):
        name = f"tandem-test-{os.getpid()}-{len(started)}"
        started.append(name)
        done = call(
            "podman",
            "run",
            "--detach",
            "--no-healthcheck",
            "--name",
            name,
            "--network",
            f"ns:/run/netns/{hosts.names[worker]}",
            *pod_options(lines, *where, worker=worker, host=hosts.addresses[0]),
            IMAGE,
            "/bin/bash",
            "-c",
            script,
        )
        if done.returncode != 0:
            raise Failed(f"a pod does not start: {done.stderr[-1000:]}")
        return name

    def logs():
        return "\n".join(f"--- {name}\n" + "".join(call("podman", "logs", name).stdout + call("podman", "logs", name).stderr) for name in started)

    try:
        with TwoHosts() as hosts:
            first, second = start(0, hosts), start(1, hosts)
            wait_for(lambda: list(folder.glob("output_*/checkpoint-*")) or not running(first), "a checkpoint of two pods")
            if not running(first):
                raise Failed(f"the job ended before its pod could be killed:\n{logs()[-3000:]}")
            call("podman", "kill", "--signal", "KILL", second)
            joins = logs().count("with the node at")  # the first two pods may have met in a view, too
            second = start(1, hosts)
            wait_for(lambda: logs().count("with the node at") > joins or not running(first), "the pod that was replaced", 200)
            call("podman", "kill", "--signal", "TERM", second)
            wait_for(lambda: not running(second), "a drained pod's end within its grace period", 60)
            drained = call("podman", "inspect", "--format", "{{.State.ExitCode}}", second).stdout.strip()
            if drained != "143" or not running(first):
                raise Failed(f"a drained pod ended with {drained}, or the other one with it:\n{logs()[-4000:]}")
            wait_for(lambda: not running(first), "the end of the job", 200)
            code = call("podman", "inspect", "--format", "{{.State.ExitCode}}", first).stdout.strip()
            text = logs()
            if code != "0":
                raise Failed(f"worker 0 ended with {code}:\n{text[-4000:]}")
            expect(text, "without the node at", "with the node at", "leaves the job after a step")
            places = list(folder.glob("output_*"))
            if len(places) != 1:
                raise Failed(f"the pods of one job wrote to {places}:\n{text[-4000:]}")
        quiet = folder / "undisturbed"
        quiet.mkdir(mode=0o777)
        quiet.chmod(0o777)
        where = (scratch, quiet, *where[2:])
        run("/bin/bash", "-c", script, options=pod_options(lines, *where))
        models = [next(place.glob("output_*/model.safetensors")).read_bytes() for place in (folder, quiet)]
        if models[0] != models[1]:
            raise Failed("the weights of the job whose pod was replaced differ from the undisturbed job's")
    finally:
        for name in started:
            call("podman", "rm", "--force", "--time", "0", name)


# Pods of two, as each operator makes them: the name of each host, by which name the first is found, and the variables.
def master_and_worker(rank, first):
    """A PyTorchJob with a Master and no elasticPolicy."""
    return {
        "MASTER_ADDR": first,
        "MASTER_PORT": "23456",
        "WORLD_SIZE": "2",
        "RANK": str(rank),
        "PET_MASTER_ADDR": first,
        "PET_MASTER_PORT": "23456",
        "PET_NNODES": "2",
        "PET_NODE_RANK": str(rank),
        "PET_NPROC_PER_NODE": "1",
    }


def of_trainjob(rank, first):
    return {
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "1",
        "PET_NODE_RANK": str(rank),
        "PET_MASTER_ADDR": first,
        "PET_MASTER_PORT": "29500",
        "JOB_COMPLETION_INDEX": str(rank),
    }


def elastic(rank, first):
    return {
        "PET_NNODES": "2:2",
        "PET_NPROC_PER_NODE": "1",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": f"{first}:29400",
        "PET_RDZV_ID": "qa",
        "PET_MAX_RESTARTS": "10",
        "JOB_COMPLETION_INDEX": str(rank),
    }


POD_KINDS = [
    ("PyTorchJob with a Master", ("qa-master-0", "qa-worker-0"), "qa-master-0", master_and_worker, ("torchrun", "/x/run_qa.py")),
    ("the same, started without torchrun", ("qa-master-0", "qa-worker-0"), "qa-master-0", master_and_worker, ("python3", "/x/run_qa.py")),
    ("elastic PyTorchJob, started without torchrun", ("qa-worker-0", "qa-worker-1"), "qa-worker-0", elastic, ("tandem", "run_qa")),
    ("TrainJob", ("qa-node-0-0", "qa-node-0-1"), "qa-node-0-0.qa", of_trainjob, ("tandem", "run", "run_qa.py")),
    ("JobSet", ("qa-node-0-0", "qa-node-0-1"), "qa-node-0-0.qa", elastic, ("tandem", "run", "run_qa.py")),
    ("Indexed Job", ("qa-0", "qa-1"), "qa-0.qa", elastic, ("tandem", "run", "run_qa.py")),
]


def job_flags(output):
    return (
        "--model_name_or_path",
        "/model",
        "--train_file",
        "/data/train.json",
        "--do_train",
        "--max_steps",
        "8",
        "--per_device_train_batch_size",
        "4",
        "--max_seq_length",
        "128",
        "--doc_stride",
        "32",
        "--logical_shards",
        "2",
        "--output_dir",
        f"/volume/{output}",
    )


class Pods:
    """Containers on two hosts that see one volume; all are removed in the end."""

    def __init__(self, scratch):
        self.volume = scratch / "matrix"
        self.volume.mkdir(mode=0o777)
        self.volume.chmod(0o777)
        self.mounts = ["-v", f"{self.volume}:/volume", "-v", f"{DEMO / 'model'}:/model:ro", "-v", f"{scratch / 'squad'}:/data:ro"]
        self.names = []

    def start(self, hosts, host, host_name, words, variables=(), options=()):
        name = f"tandem-pod-{os.getpid()}-{len(self.names)}"
        self.names.append(name)
        settings = [word for pair in dict(variables).items() for word in ("--env", "=".join(pair))]
        done = call(
            "podman",
            "run",
            "--detach",
            "--no-healthcheck",
            "--name",
            name,
            "--network",
            f"ns:/run/netns/{hosts.names[host]}",
            "--hostname",
            host_name,
            "--env",
            "KUBERNETES_SERVICE_HOST=10.96.0.1",
            *settings,
            *options,
            *self.mounts,
            IMAGE,
            *words,
        )
        if done.returncode != 0:
            raise Failed(f"a pod does not start: {done.stderr[-1000:]}")
        return name

    def end(self, names, what):
        for name in names:
            wait_for(lambda one=name: not running(one), f"the end of a pod of {what}", 60)
        logs = "".join(one.stdout + one.stderr for one in (call("podman", "logs", name) for name in names))
        codes = [call("podman", "inspect", "--format", "{{.State.ExitCode}}", name).stdout.strip() for name in names]
        if codes != ["0"] * len(names):
            raise Failed(f"{what}: the pods ended with {codes}:\n{logs[-3000:]}")
        return logs

    def weights(self, output):
        return (self.volume / output / "model.safetensors").read_bytes()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for name in self.names:
            call("podman", "rm", "--force", "--time", "0", name)


def check_pod_kinds(scratch):
    """One job under the variables of every kind of pods; each must be of two ranks and leave the weights of a single process."""
    with TwoHosts() as hosts, Pods(scratch) as pods:
        run("tandem", "run_qa", *job_flags("alone"), options=pods.mounts)
        for number, (what, names, first, variables, words) in enumerate(POD_KINDS):
            found = [word for address, name in zip(hosts.addresses, (first, "qa-other")) for word in ("--add-host", f"{name}:{address}")]
            started = [pods.start(hosts, rank, names[rank], (*words, *job_flags(f"kind{number}")), variables(rank, first), found) for rank in (0, 1)]
            expect(pods.end(started, what), "2 ranks on")
            if pods.weights(f"kind{number}") != pods.weights("alone"):
                raise Failed(f"{what}: other weights than those of a single process")
        check_mpi_job(hosts, pods, scratch)


def check_mpi_job(hosts, pods, scratch):
    """An MPIJob: a launcher and two workers with the operator's key in ~/.ssh and its host file."""
    keys = scratch / "keys"
    keys.mkdir()
    call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", keys / "id_ed25519")
    shutil.copy(keys / "id_ed25519.pub", keys / "authorized_keys")
    for path in keys.iterdir():
        os.chown(path, 1000, 0)
        path.chmod(0o600)
    os.chown(keys, 1000, 0)
    (scratch / "hostfile").write_text("qa-worker-0.qa.default.svc:1\nqa-worker-1.qa.default.svc:1\n")
    options = ["-v", f"{keys}:/home/tandem/.ssh:ro", "-v", f"{scratch / 'hostfile'}:/etc/mpi/hostfile:ro"]
    for worker, address in enumerate(hosts.addresses):
        options += ["--add-host", f"qa-worker-{worker}.qa.default.svc:{address}"]
    workers = [pods.start(hosts, worker, f"qa-worker-{worker}", ("tandem-sshd",), {}, options) for worker in (0, 1)]
    launcher = pods.start(
        hosts,
        0,
        "qa-launcher",
        ("mpirun", "-f", "/etc/mpi/hostfile", "-n", "2", "-ppn", "1", "tandem", "run_qa", *job_flags("mpi")),
        {"I_MPI_HYDRA_HOST_FILE": "/etc/mpi/hostfile"},
        options,
    )
    try:
        expect(pods.end([launcher], "MPIJob"), "2 ranks on")
    except Failed as problem:
        raise Failed(f"{problem}\nworker 0: {call('podman', 'logs', workers[0]).stderr[-800:]}") from None
    if pods.weights("mpi") != pods.weights("alone"):
        raise Failed("MPIJob: other weights than those of a single process")


def running(container):
    return call("podman", "inspect", "--format", "{{.State.Running}}", container).stdout.strip() == "true"


# The guide of 4.46, from FROM on; its archive of transformers is one that this test makes.
GUIDES_DOCKERFILE = """FROM {base}
COPY archive.tar.gz /tmp/archive.tar.gz
RUN apt-get update -y && \\
    apt-get install -y --no-install-recommends --fix-missing \\
    google-perftools \\
    libomp-dev
WORKDIR /workspace
ARG HF_TRANSFORMERS_VER="4.46.0"
RUN pip install --no-cache-dir \\
    transformers==${{HF_TRANSFORMERS_VER}} && \\
    mkdir transformers && \\
    curl -sSL --retry 5 file:///tmp/archive.tar.gz | tar -C transformers --strip-components=1 -xzf -
"""


def check_guides_dockerfile(scratch, build_directory):
    build(build_directory, f"{IMAGE}-base", "--target", "base")
    folder = scratch / "theirs"
    scripts = folder / "transformers-4.46.0/examples/pytorch/question-answering"
    scripts.mkdir(parents=True)
    (scripts / "run_qa.py").write_text("raise SystemExit('this is the script of transformers')\n")
    call("tar", "-C", folder, "-czf", folder / "archive.tar.gz", "transformers-4.46.0")
    (folder / "Dockerfile").write_text(GUIDES_DOCKERFILE.format(base=f"{IMAGE}-base"))
    done = call(ENGINE, "build", "--network", "host", "-t", f"{IMAGE}-theirs", folder, timeout=200)
    if done.returncode != 0:
        raise Failed(f"the guides' Dockerfile does not build: {(done.stdout + done.stderr)[-2000:]}")
    text = run("torchrun", "/workspace/transformers/examples/pytorch/question-answering/run_qa.py", "--help", image=f"{IMAGE}-theirs")
    expect(text, "usage: tandem run_qa")


def show(build_directory, scratch):
    require_containers(scratch)
    if ENGINE == "podman":
        return show_image(build_directory, scratch)
    with Docker(scratch):
        return show_image(build_directory, scratch)


def show_image(build_directory, scratch):
    build(build_directory, IMAGE)
    check_size()
    check_restrictions(scratch)
    check_names()
    check_no_program()
    volume = make_volume(scratch)
    check_guide_446(scratch, volume)
    check_guide_435(scratch, volume)
    check_memory_limit(scratch)
    if ENGINE == "podman":
        check_two_pods(scratch, scratch / "pods")
        check_pod_kinds(scratch)
    check_guides_dockerfile(scratch, build_directory)
    return f"the guides' lines ran in the image of {ENGINE}"


def main():
    build_directory = pathlib.Path(sys.argv[1]).resolve()
    try:
        with Scratch() as scratch:
            return verdict("check_image", lambda: show(build_directory, scratch))
    finally:
        if ENGINE == "podman" and shutil.which("podman"):
            call("podman", "rmi", "--force", IMAGE, f"{IMAGE}-base", f"{IMAGE}-theirs")


if __name__ == "__main__":
    sys.exit(main())
