#!/usr/bin/env python3
"""One volume of NFS for the pods of several nodes: what tandem keeps there, and the locks that keep jobs apart.

    check_shared_volume.py TANDEM

A real server (Debian's nfs-ganesha, NFSv4) in a network of its own; a client for each node, made here of libnfs and libfuse
(tests/shared_volume/nfs_mount.c), since few kernels that run tests have one. It caches attributes and entries for three seconds, as NFS
clients do. First that is shown; then model cache, features, checkpoints and results of two pods of a job on two nodes; a pod that comes
back on another node; locks between nodes, after the death of a process and of a whole node; and a server that goes.
Exits 77 (skipped) without root, namespaces, FUSE, the server, or what the client is compiled of.
"""

import fcntl
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time

from support import DEMO, ROOT, Failed, Process, Scratch, Skipped, call, expect, job_flags, many_questions, must, verdict, wait_for

TANDEM = pathlib.Path(sys.argv[1]).resolve()
INSIDE = "--inside"
ADDRESS = "10.244.9.1"
LEASE = 3  # seconds; Linux' server has 90
CACHED = 3
CONFIG = """
NFS_CORE_PARAM {{ Protocols = 4; Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; }}
NFSv4 {{ Lease_Lifetime = {lease}; Grace_Period = {lease}; Graceless = true; Minor_Versions = 0; RecoveryBackend = fs; RecoveryRoot = {folder}/recovery;
  Only_Numeric_Owners = true; Allow_Numeric_Owners = true; }}
EXPORT {{ Export_Id = 1; Path = {folder}/export; Pseudo = /volume; Access_Type = RW; Squash = No_root_squash; SecType = sys; Protocols = 4; FSAL {{ Name = VFS; }} }}
LOG {{ Default_Log_Level = WARN; }}
"""


def require(what, there):
    if not there:
        raise Skipped(f"needs {what}")


class Server:
    """The export. It is stopped with the block."""

    def __init__(self, folder):
        self.folder = folder

    def __enter__(self):
        for name in ("export", "recovery"):
            (self.folder / name).mkdir()
        config = self.folder / "ganesha.conf"
        config.write_text(CONFIG.format(folder=self.folder, lease=LEASE))
        self.process = subprocess.Popen(
            ["ganesha.nfsd", "-F", "-f", config, "-L", self.folder / "ganesha.log", "-p", self.folder / "ganesha.pid", "-N", "NIV_EVENT"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_for(self.answers, "the NFS server", 60, lambda: (self.folder / "ganesha.log").read_text())
        return self

    def answers(self):
        with socket.socket() as attempt:
            return attempt.connect_ex((ADDRESS, 2049)) == 0 or self.process.poll() is not None

    def stop(self):
        self.process.kill()
        self.process.wait()

    def __exit__(self, *_):
        self.stop()


class Node:
    """A host with the volume mounted, by a client of its own."""

    def __init__(self, folder, client, name):
        self.name, self.folder = name, folder
        self.mount = folder / name
        self.mount.mkdir()
        for _ in range(20):  # the server answers before it serves
            self.process = subprocess.Popen([client, ADDRESS, "/volume", self.mount, name, str(CACHED)], stderr=subprocess.DEVNULL)
            wait_for(lambda: os.path.ismount(self.mount) or self.process.poll() is not None, "a mount", 30)
            if self.process.poll() is None:
                return
            time.sleep(0.3)
        raise Skipped("this machine mounts no FUSE, or its server no volume")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def kill(self):
        """The whole node is gone: no process notifies the server."""
        self.process.kill()
        self.process.wait()
        call("umount", "-l", self.mount)

    def pod(self, name, *words, more=None):
        """A process for which this node's volume is at /volume."""
        inner = f'mount --bind "$1" {self.folder}/volume && shift && exec "$@"'
        variables = {"HF_HUB_OFFLINE": "1", "HOSTNAME": name, **(more or {})}
        return Process(self.folder, name, "unshare", "--mount", "--propagation", "private", "sh", "-c", inner, "pod", self.mount, *words, more=variables)


def agent(job, *flags):
    return [
        TANDEM,
        "run",
        "--nnodes",
        "1",
        "--nproc-per-node",
        "1",
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        "127.0.0.1:0",
        "--rdzv-id",
        job,
        "run_qa.py",
        *flags,
    ]


# ---- what is shown ----
def check_semantics(one, other):
    """That this is not a local disk: else the rest would show nothing."""
    (one.mount / "a").write_text("one")
    if (other.mount / "a").read_text() != "one" or (other.mount / "a").stat().st_size != 3 or (other.mount / "late").exists():
        raise Failed("a file of one node is not the other's")
    (one.mount / "a").write_text("twenty")
    (one.mount / "late").write_text("")
    if (other.mount / "a").stat().st_size != 3 or (other.mount / "late").exists():
        raise Failed("attributes and entries are not cached: this is not NFS")
    if (other.mount / "a").read_text() != "twenty":
        raise Failed("an open file shows what was there before its last close")
    with open(one.mount / "a", encoding="utf-8") as held:
        (one.mount / "a").unlink()
        if held.read() != "twenty" or not [path for path in one.mount.iterdir() if path.name.startswith(".fuse_hidden")]:
            raise Failed("what is removed while it is open does not get a hidden name")


def is_free(path):
    with open(path, "r+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def check_lock(one, other, volume):
    """Another job is refused while the first lives on another node, and comes in when its process has died."""
    output = volume / "locked"
    with one.pod("holder", *agent("holder", *job_flags(output))) as holder:
        holder.wait_for((one.mount / "locked/checkpoint-2").exists, "a checkpoint")
        with other.pod("refused", *agent("another", *job_flags(output, steps=4))) as refused:
            refused.end(1, "another job is running in", "process")
        holder.process.kill()
        holder.process.wait()
    # The agent is gone at once, its worker a moment later, when it misses the agent.
    wait_for(lambda: is_free(other.mount / "locked/.tandem-lock"), "the lock of a process that has died", 30)
    with other.pod("next", *agent("another", *job_flags(output, "--overwrite_output_dir", steps=2))) as follower:
        follower.end(0)


def check_lost_node(server_folder, client, one, volume):
    """A pod comes back on another node while the server still counts the first as alive: it waits for the lease, and reaches the same bits."""
    output, flags = volume / "moved", ["--save_total_limit", "2"]
    with Node(server_folder, client, "lost") as lost:
        with lost.pod("before", *agent("moved", *job_flags(output, *flags, steps=20))) as before:
            before.wait_for((lost.mount / "moved/checkpoint-4").exists, "a checkpoint")
            lost.kill()
            before.end(201, "does not answer")
        with one.pod("after", *agent("moved", *job_flags(output, *flags, steps=20))) as after:
            after.end(0, "Checkpoint detected", "still has the lock")
    with one.pod("undisturbed", *agent("undisturbed", *job_flags(server_folder / "undisturbed", *flags, steps=20))) as undisturbed:
        undisturbed.end(0)
    if (one.mount / "moved/model.safetensors").read_bytes() != (server_folder / "undisturbed/model.safetensors").read_bytes():
        raise Failed("other weights after the move to another node")


def check_caches(folder, one, other, volume):
    """Two pods of one job on two nodes, which download the model and make features at the same time."""
    hub = folder / "hub"
    shutil.copytree(DEMO / "model", hub / "models/org/demo")
    server = subprocess.Popen([sys.executable, ROOT / "tests/support/fake_hub.py", hub])
    try:
        wait_for((hub / "port").exists, "the hub", 30)
        endpoint = f"http://127.0.0.1:{(hub / 'port').read_text().strip()}"
        train = folder / "train.json"
        train.write_text(many_questions())
        more = {"HF_ENDPOINT": endpoint, "HF_HUB_OFFLINE": "0", "HF_HOME": f"{volume}/hf", "TANDEM_FEATURE_CACHE": f"{volume}/features"}
        words = [TANDEM, "run", "--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{ADDRESS}:23456", "--rdzv-id", "both"]
        flags = job_flags(volume / "both", "--logical_shards", "2", steps=8)
        flags[flags.index("--model_name_or_path") + 1] = "org/demo"
        flags[flags.index("--train_file") + 1] = train
        with (
            one.pod("first", *words, "--local-addr", ADDRESS, "run_qa.py", *flags, more=more) as first,
            other.pod("second", *words, "--local-addr", "10.244.9.2", "run_qa.py", *flags, more=more) as second,
        ):
            first.end(0)
            second.end(0)
            text = first.text() + second.text()
        expect(text, "2 ranks on 2 nodes", "features")
        alone = folder / "alone"
        flags[flags.index("--output_dir") + 1] = alone
        with one.pod("alone", *agent("alone", *flags), more={**more, "HF_HUB_OFFLINE": "1"}) as third:
            third.end(0, "features come from")
    finally:
        server.kill()
        server.wait()
    if (alone / "model.safetensors").read_bytes() != (folder / "export/both/model.safetensors").read_bytes():
        raise Failed("other weights than those of a job on a disk of its own")
    left = [
        path for path in (folder / "export").rglob("*") if ".tmp-" in path.name or path.name.endswith(".incomplete") or path.name.startswith(".fuse_hidden")
    ]
    features = list((folder / "export/features").glob("*.features"))
    if left or len(features) != 1:
        raise Failed(f"left on the volume: {left}; files of features: {features}")


def check_server_goes(server, one, volume):
    with one.pod("left alone", *agent("left", *job_flags(volume / "left"))) as left:
        left.wait_for((one.mount / "left/checkpoint-2").exists, "a checkpoint")
        server.stop()
        left.end(201, "does not answer", "the newest checkpoint")


def show(folder):
    client = folder / "nfs_mount"
    flags = must("pkg-config", "--cflags", "--libs", "fuse3", "libnfs", error=Skipped).split()
    must("cc", "-O1", "-o", client, ROOT / "tests/shared_volume/nfs_mount.c", *flags)
    for words in (
        "link set lo up",
        "link add pods type veth peer name unused",
        f"address add {ADDRESS}/24 dev pods",
        "address add 10.244.9.2/24 dev pods",
        "link set pods up",
        "link set unused up",
    ):
        must("ip", *words.split(), error=Skipped)
    volume = folder / "volume"
    volume.mkdir()
    with Server(folder) as server, Node(folder, client, "one") as one, Node(folder, client, "other") as other:
        check_semantics(one, other)
        check_lock(one, other, volume)
        check_lost_node(folder, client, one, volume)
        check_caches(folder, one, other, volume)
        check_server_goes(server, one, volume)
    return "caches, checkpoints and locks of several nodes on one volume of NFSv4"


def outside():
    require("root", os.geteuid() == 0)
    require("/dev/fuse", os.path.exists("/dev/fuse"))
    for program, package in (("ganesha.nfsd", "nfs-ganesha-vfs"), ("cc", "gcc"), ("pkg-config", "pkg-config"), ("ip", "iproute2")):
        require(f"{program} ({package})", shutil.which(program))
    must("pkg-config", "--exists", "fuse3", "libnfs", error=Skipped)
    spaces = ["unshare", "--mount", "--net", "--propagation", "private"]
    must(*spaces, "true", error=Skipped)
    return subprocess.run([*spaces, sys.executable, __file__, TANDEM, INSIDE], check=False).returncode


def main():
    if INSIDE in sys.argv:
        with Scratch() as folder:
            return verdict("check_shared_volume", lambda: show(folder))
    try:
        return outside()
    except Skipped as reason:
        print(f"SKIPPED: {reason}")
        return 77


if __name__ == "__main__":
    sys.exit(main())
