#!/usr/bin/env python3
"""Output of `tandem manifest` and findings of `--check`.

    check_manifest.py TANDEM

- The files of deploy/kubernetes are what the command in their first line prints, and --check finds nothing in them.
- Files that are broken in the ways of BROKEN are refused: the line and the fix are named.
- The guides' files (../shared/data/guides): the fix of each is found, and with it nothing is left.
- With the packages of scripts/fetch_python_packages.sh: the files hold against the published definitions
  (../shared/data/crds, kubernetes-validate), and kubectl takes them: `kustomize` for each folder,
  `create --dry-run=client` against a server that knows the names of the kinds and nothing else. The script reports missing parts.
"""

import http.server
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "deploy/kubernetes"
SHARED = ROOT.parent / "shared/data"
VENV = ROOT / "build/test-data/venv"
PROBLEMS = []

JOB = "--image tandem:1 --pvc data -- run_qa --model_name_or_path m --do_train"
RWO = """apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: data
spec:
  accessModes: [ReadWriteOnce]
  resources:
    requests:
      storage: 1Gi
---
"""
# (what is broken, the manifest's command, text, what takes its place, the text of the finding)
BROKEN = [
    (
        "a stray '-'",
        "pytorchjob",
        '                  value: "/tmp/pvc-mount/features"',
        '-                  value: "/tmp/pvc-mount/features"',
        "remove the '-'",
    ),
    ("a tab", "pytorchjob", "    minReplicas: 1", "\tminReplicas: 1", "replace each tab"),
    ("no blank behind a colon", "pytorchjob", "  name: tandem\nspec:", "  name:tandem\nspec:", "the object has no name"),
    ("min > max", "pytorchjob", "minReplicas: 1", "minReplicas: 5", "minReplicas 5 is more than maxReplicas 4"),
    ("replicas > max", "pytorchjob", "      replicas: 4", "      replicas: 7", "7 replicas are not between"),
    (
        "limits without requests",
        "pytorchjob",
        "                requests:\n                  cpu: 8\n                  memory: 32Gi\n",
        "",
        "add requests: cpu: 8",
    ),
    (
        "requests below limits",
        "pytorchjob",
        "requests:\n                  cpu: 8\n                  memory: 32Gi",
        "requests:\n                  cpu: 8\n                  memory: 1Gi",
        "write memory: 32Gi",
    ),
    ("a container of another name", "pytorchjob", "- name: pytorch", "- name: trainer", "write name: pytorch"),
    ("no /dev/shm", "pytorchjob", "                - name: dshm\n                  mountPath: /dev/shm\n", "", "medium: Memory"),
    (
        "a mount without a volume",
        "pytorchjob",
        "- name: volume\n                  mountPath",
        "- name: volum\n                  mountPath",
        "there is no volume 'volum'",
    ),
    ("output_dir on the pod's disk", "pytorchjob", '"/tmp/pvc-mount/tandem"', '"/home/tandem/out"', "gone with the pod"),
    ("a variable twice", "pytorchjob", "- name: TANDEM_FEATURE_CACHE", "- name: HF_HOME", "HF_HOME is set twice"),
    ("a field twice", "pytorchjob", "    maxReplicas: 4\n", "    maxReplicas: 4\n    maxReplicas: 4\n", "remove one of the two"),
    ("a Master in an elastic job", "pytorchjob", "    Worker:\n", "    Master:\n", "an elastic job has no Master"),
    ("a replica of no kind", "pytorchjob", "    Worker:\n", "    worker:\n", "write Worker or Master"),
    ("a rendezvous that tandem does not have", "pytorchjob", "rdzvBackend: c10d", "rdzvBackend: etcd-v2", "write rdzvBackend: c10d"),
    ("processes of GPUs", "pytorchjob", 'nprocPerNode: "auto"', 'nprocPerNode: "gpu"', "without GPUs"),
    ("a placeholder", "pytorchjob", 'image: "tandem:1"', "image: <image name>:<tag>", "fill in the name"),
    ("a name that no host can have", "pytorchjob", "  name: tandem\nspec", "  name: My_Job\nspec", "small letters"),
    (
        "more threads than CPUs",
        "pytorchjob",
        '- name: TANDEM_FEATURE_CACHE\n                  value: "/tmp/pvc-mount/features"',
        '- name: OMP_NUM_THREADS\n                  value: "240"',
        "more than the 8 CPUs",
    ),
    ("writers on ReadWriteOnce", "pytorchjob", "apiVersion: kubeflow.org/v1\n", RWO + "apiVersion: kubeflow.org/v1\n", "ReadWriteMany"),
    ("an MPIJob without launcher", "mpijob", "    Launcher:\n", "    launcher:\n", "spec.mpiReplicaSpecs.Launcher: the field is missing"),
    ("a Job that restarts in place", "job", "restartPolicy: Never", "restartPolicy: OnFailure", "with a podFailurePolicy takes Never"),
    ("a Job without indexes", "job", "completionMode: Indexed", "completionMode: NonIndexed", "write completionMode: Indexed"),
    ("a Job that runs in turns", "job", "completions: 4", "completions: 8", "not all ranks would run together"),
    ("a Service with an address", "job", "clusterIP: None", "clusterIP: 10.0.0.9", "no headless Service"),
    ("a secret that is not base64", "secret", 'stringData:\n  token: "', 'data:\n  token: "-', "not in base64"),
]


def problem(text):
    PROBLEMS.append(text)
    print(f"check_manifest: {text}")


def tandem(*words, text=None):
    return subprocess.run([sys.argv[1], "manifest", *words], input=text, capture_output=True, text=True, timeout=30, check=False)


def check_files():
    files = [path for path in sorted(MANIFESTS.rglob("*.yaml")) if path.name != "kustomization.yaml"]
    for path in files:
        first, rest = path.read_text().split("\n", 1)
        made = tandem(*shlex.split(first.removeprefix("# tandem manifest ")))
        if made.stdout != rest:
            problem(f"{path.relative_to(ROOT)} is not what its first line makes: {made.stderr}")
        checked = tandem("--check", str(path))
        if checked.returncode != 0:
            problem(checked.stdout)
    return files


def check_broken():
    for what, kind, text, instead, expected in BROKEN:
        words = shlex.split(JOB) if kind in ("pytorchjob", "mpijob", "job") else []
        whole = tandem(kind, *words).stdout
        if text not in whole:
            problem(f"{what}: the manifest has no '{text}'")
            continue
        broken = whole.replace(text, instead, 1)
        checked = tandem("--check", "-", text=broken)
        lines = [line for line in checked.stdout.splitlines() if expected in line]
        if checked.returncode != 1 or not lines:
            problem(f"{what}: expected '{expected}', found exit code {checked.returncode} and\n{checked.stdout}{checked.stderr}")
        elif not re.match(r"-:\d+: .*; fix: ", lines[0]):
            problem(f"{what}: '{lines[0]}' names no line or no fix")
        elif what == "min > max" and not lines[0].startswith(f"-:{broken[: broken.index(instead)].count(chr(10)) + 1}:"):
            problem(f"{what}: '{lines[0]}' names another line")


def check_guides():
    for name, wanted in (("pytorchjob-4.35.yaml", ":60: this is not YAML"), ("pytorchjob-4.46.yaml", ":19: spec.")):
        path = SHARED / "guides" / name
        if not path.exists():
            print(f"left out: needs {path}")
            continue
        found = tandem("--check", str(path)).stdout
        if wanted not in found:
            problem(f"{name}: expected '{wanted}' in\n{found}")
        mended = re.sub(r"(?m)^-( +value:)", r"\1", path.read_text()).replace("<image name>:<tag>", "tandem:1")
        checked = tandem("--check", "-", text=mended)
        if checked.returncode != 0:
            problem(f"{name}, mended: {checked.stdout}")


MERGING_JOB = """apiVersion: batch/v1
kind: Job
metadata: {name: x}
spec:
  template:
    spec:
      restartPolicy: Never
      %s
"""
POD = "containers: [{name: a, image: tandem:1, command: [tandem, run_qa]}]"
NO_IMAGE = "containers: [{name: a, command: [tandem, run_qa]}]"
# Merge keys: (what, the pod, whether it is a good one).
MERGES = (
    ("a map", f"x-pod: &pod {{{POD}}}\n      <<: *pod", None),
    ("an inline map", f"<<: {{{POD}}}", None),
    ("a list of maps, of which the first wins", f"<<: [{{{POD}}}, {{{NO_IMAGE}}}]", None),
    ("a field of the map itself wins", f"<<: {{{NO_IMAGE}}}\n      {POD}", None),
    ("a merged mistake is found", f"<<: {{{NO_IMAGE}}}", "containers[0].image: no image"),
    ("text", "<<: text", "behind << a map"),
    ("a quoted name is a name", f'"<<": {{{NO_IMAGE}}}', None),
)


def check_merge_keys():
    path = SHARED / "reported/F16_manifest_merge_key/job.yaml"
    if not path.exists():
        print(f"left out: needs {path}")
    elif (checked := tandem("--check", str(path))).returncode != 0:
        problem(f"merge keys of the reported manifest: {checked.stdout}")
    for what, pod, wanted in MERGES:
        found = tandem("--check", "-", text=MERGING_JOB % pod).stdout
        if wanted not in found if wanted else re.search(r"<<|no image", found):
            problem(f"merge key, {what}: found\n{found}")


def check_hostile():
    deep = "a: " + "[" * 5000
    laughs = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 10)}]\n" for i in range(12))
    for what, text in (
        ("deep", deep),
        ("many", laughs),
        ("empty", ""),
        ("bytes", "\x01\x02"),
        ("a list", "- 1\n- 2\n"),
        ("no alias", "a: *b\n"),
        ("a scalar", "x"),
    ):
        checked = tandem("--check", "-", text=text)
        if checked.returncode != 1 or "; fix: " not in checked.stdout:
            problem(f"{what}: exit code {checked.returncode}, '{checked.stdout[:300]}'")


class Definitions:
    """Published schemas: those of Kubernetes by name, those of custom resources by their tree."""

    def __init__(self, root):
        self.root = root

    def resolve(self, schema):
        while True:
            if "$ref" in schema:
                schema = self.root["$defs"][schema["$ref"].split("/")[-1]]
            elif len(schema.get("allOf", [])) == 1 and "properties" not in schema:
                schema = schema["allOf"][0]
            else:
                return schema


# Objects of Kubernetes itself, and the custom ones with the file of each.
CORE = {
    "batch/v1 Job": "batch.v1.Job",
    "v1 Service": "core.v1.Service",
    "v1 PersistentVolumeClaim": "core.v1.PersistentVolumeClaim",
    "v1 PersistentVolume": "core.v1.PersistentVolume",
    "v1 Pod": "core.v1.Pod",
    "v1 Secret": "core.v1.Secret",
    "v1 ConfigMap": "core.v1.ConfigMap",
    "networking.k8s.io/v1 NetworkPolicy": "networking.v1.NetworkPolicy",
    "policy/v1 PodDisruptionBudget": "policy.v1.PodDisruptionBudget",
    "autoscaling/v2 HorizontalPodAutoscaler": "autoscaling.v2.HorizontalPodAutoscaler",
}
CUSTOM = {
    "kubeflow.org/v1 PyTorchJob": "kubeflow.org_pytorchjobs.v1.yaml",
    "kubeflow.org/v2beta1 MPIJob": "kubeflow.org_mpijobs.v2beta1.yaml",
    "trainer.kubeflow.org/v1alpha1 TrainJob": "trainer.kubeflow.org_trainjobs.yaml",
    "trainer.kubeflow.org/v1alpha1 TrainingRuntime": "trainer.kubeflow.org_trainingruntimes.yaml",
    "trainer.kubeflow.org/v1alpha1 ClusterTrainingRuntime": "trainer.kubeflow.org_clustertrainingruntimes.yaml",
    "jobset.x-k8s.io/v1alpha2 JobSet": "jobset.x-k8s.io_jobsets.v1alpha2.yaml",
}


def custom_schemas(yaml):
    """The published schemas of the custom objects, by object."""
    schemas = {}
    for name, file in CUSTOM.items():
        path = SHARED / "crds" / file
        if not path.exists():
            print(f"left out: needs {path}")
            continue
        versions = yaml.safe_load(path.read_text())["spec"]["versions"]
        wanted = name.split(" ")[0].split("/")[1]
        schemas[name] = next(version for version in versions if version["name"] == wanted)["schema"]["openAPIV3Schema"]
    return schemas


def hold(value, schema, definitions, path):
    """Holds a value against a published schema: fields, types, choices."""
    schema = definitions.resolve(schema)
    if isinstance(value, dict):
        fields, names = schema.get("properties", {}), schema.get("additionalProperties")
        for name in schema.get("required", []):
            if name not in value:
                problem(f"{path}: {name} is missing")
        for name, one in value.items():
            if name in fields:
                hold(one, fields[name], definitions, f"{path}.{name}")
            elif isinstance(names, dict):
                hold(one, names, definitions, f"{path}.{name}")
            elif fields and not schema.get("x-kubernetes-preserve-unknown-fields"):
                problem(f"{path}: there is no field {name}")
    elif isinstance(value, list):
        for one in value:
            hold(one, schema.get("items", {}), definitions, path + "[]")
    elif "enum" in schema and value not in schema["enum"]:
        problem(f"{path}: {value} is none of {schema['enum']}")
    else:
        kinds = schema.get("type")
        kinds = kinds if isinstance(kinds, list) else [kinds]
        kind = {bool: "boolean", int: "integer", str: "string", float: "number"}.get(type(value))
        if kinds != [None] and kind not in kinds and not (kind == "integer" and "number" in kinds) and not schema.get("x-kubernetes-int-or-string"):
            problem(f"{path}: {value!r} is no {kinds}")


class NamesOfKinds(http.server.BaseHTTPRequestHandler):
    """The requests of kubectl before a dry run: which kinds a cluster has."""

    groups = {}
    for one in (*CORE, *CUSTOM):
        version, kind = one.split(" ")
        plural = {"NetworkPolicy": "networkpolicies"}.get(kind, kind.lower() + "s")
        groups.setdefault(version, []).append(
            {"name": plural, "singularName": kind.lower(), "namespaced": kind != "ClusterTrainingRuntime", "kind": kind, "verbs": ["create", "get", "list"]}
        )

    def do_GET(self):
        path = self.path.split("?")[0].strip("/")
        if path == "api":
            answer = {"kind": "APIVersions", "versions": ["v1"]}
        elif path == "apis":
            names = [version.split("/") for version in self.groups if "/" in version]
            versions = [{"name": group, "versions": [{"groupVersion": f"{group}/{version}", "version": version}]} for group, version in names]
            answer = {"kind": "APIGroupList", "apiVersion": "v1", "groups": versions}
        else:
            version = path.removeprefix("apis/").removeprefix("api/")
            if version not in self.groups:
                self.send_error(404)
                return
            answer = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": self.groups[version]}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def check_kubectl(files, folder):
    kubectl = VENV / "bin/kubectl"
    if not kubectl.exists():
        print("left out: needs kubectl (scripts/fetch_python_packages.sh)")
        return
    # With a token, which users make.
    copy = pathlib.Path(folder) / "kubernetes"
    shutil.copytree(MANIFESTS, copy)
    (copy / "pytorchjob-with-token/token").write_text("0123456789abcdef")
    for kustomization in sorted(copy.glob("*/kustomization.yaml")):
        done = subprocess.run([kubectl, "kustomize", kustomization.parent], capture_output=True, text=True, timeout=60, check=False)
        checked = tandem("--check", "-", text=done.stdout)
        if done.returncode or checked.returncode:
            problem(f"kubectl kustomize {kustomization.parent.name}: {done.stderr}{checked.stdout}")
        if "with-token" in str(kustomization) and not ("kind: Secret" in done.stdout and "name: TANDEM_JOB_TOKEN" in done.stdout):
            problem(f"kubectl kustomize {kustomization.parent.name}: no token in\n{done.stdout}")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), NamesOfKinds)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        command = [
            kubectl,
            "--server",
            f"http://127.0.0.1:{server.server_port}",
            f"--cache-dir={folder}",
            "create",
            "--dry-run=client",
            "--validate=false",
            "-o",
            "name",
        ]
        for path in files:
            done = subprocess.run(
                [*command, "-f", path], capture_output=True, text=True, timeout=60, check=False, env={"HOME": folder, "KUBECONFIG": f"{folder}/none"}
            )
            if done.returncode or not done.stdout:
                problem(f"kubectl create --dry-run=client {path.name}: {done.stderr}")
    finally:
        server.shutdown()


def check_published(files):
    sys.path[:0] = [str(path) for path in VENV.glob("lib/python3*/site-packages")]
    try:
        import kubernetes_validate
        import yaml
    except ImportError as missing:
        print(f"left out: the comparison with the published schemas ({missing}; scripts/fetch_python_packages.sh)")
        return
    data = pathlib.Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
    newest = max(data.glob("v*-local"), key=lambda path: [int(number) for number in re.findall(r"\d+", path.name)])
    core = json.loads((newest / "_definitions.json").read_text())
    schemas = custom_schemas(yaml)
    for path in files:
        for value in yaml.safe_load_all(path.read_text()):
            name = f"{value['apiVersion']} {value['kind']}"
            where = f"{path.parent.name}/{path.name}: {name}"
            if name in CORE:
                hold(value, core["$defs"][f"io.k8s.api.{CORE[name]}"], Definitions(core), where)
            elif name in schemas:
                hold(value, schemas[name], Definitions(None), where)


def main():
    files = check_files()
    check_broken()
    check_guides()
    check_merge_keys()
    check_hostile()
    check_published(files)
    with tempfile.TemporaryDirectory() as folder:
        check_kubectl(files, folder)
    print(f"check_manifest: {len(files)} manifests, {len(BROKEN)} ways to break them, {len(PROBLEMS)} problems")
    return 1 if PROBLEMS else 0


if __name__ == "__main__":
    sys.exit(main())
