#!/usr/bin/env python3
"""llama.cpp's converter accepts what `tandem merge` writes, and the GGUF file has the same values.

    check_gguf.py TANDEM

For Llama, Qwen3 and GPT-2 of the shared golden data: tandem trains an adapter and merges it, convert_hf_to_gguf.py reads the directory, and every tensor of the GGUF file is compared
with the merged safetensors, bit by bit. The converter recognizes a BPE tokenizer by a hash of the tokens of one text, and refuses others. It does not know the small tokenizers of the
golden data, so the name of the pre-tokenizer is given here. Needs scripts/fetch_llama_cpp.sh and build/test-data/torch-venv; exits 77, which means skipped, without them.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared/data/golden/next"
VENV_PYTHON = ROOT / "build/test-data/torch-venv/bin/python"
CONVERTER = ROOT / "build/test-data/llama.cpp"
os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}

try:
    import sentencepiece  # noqa: F401  the converter looks for its models first
    import torch
    import transformers  # noqa: F401
    from safetensors.torch import load_file
except ImportError:
    if not VENV_PYTHON.exists() or os.environ.get("TANDEM_CHECK_IN_VENV"):
        print("SKIPPED: needs packages: scripts/fetch_torch.sh && build/test-data/torch-venv/bin/pip install safetensors sentencepiece")
        sys.exit(77)
    os.execve(VENV_PYTHON, [str(VENV_PYTHON), *sys.argv], {**os.environ, "TANDEM_CHECK_IN_VENV": "1"})
for place, source in ((CONVERTER, "scripts/fetch_llama_cpp.sh"), (SHARED, "the shared test data")):
    if not place.exists():
        print(f"SKIPPED: needs {source}: {place} is absent")
        sys.exit(77)

TANDEM = str(pathlib.Path(sys.argv[1]).resolve())
TEXT = "The Valgull carries glass. Since 1655 the Salwave has been at sea.\n" * 20
# The converter with a name for pre-tokenizers that it does not know.
CONVERT = """
import sys
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/gguf-py"]
from conversion import base
recognized = base.TextModel.get_vocab_base_pre
def named(self, tokenizer):
    try:
        return recognized(self, tokenizer)
    except NotImplementedError:
        return "gpt-2"
base.TextModel.get_vocab_base_pre = named
import convert_hf_to_gguf
sys.argv = ["convert_hf_to_gguf.py", *sys.argv[2:]]
convert_hf_to_gguf.main()
"""
# Names of llama.cpp for those of transformers. GPT-2's matrices are turned.
NAMES = [
    (r"(model\.embed_tokens|transformer\.wte)\.weight", "token_embd.weight"),
    (r"transformer\.wpe\.weight", "position_embd.weight"),
    (r"(model\.norm|transformer\.ln_f)\.", "output_norm."),
    (r"lm_head\.weight", "output.weight"),
    (r"(model\.layers|transformer\.h)\.(\d+)\.", r"blk.\2."),
    (r"input_layernorm|ln_1", "attn_norm"),
    (r"post_attention_layernorm|ln_2", "ffn_norm"),
    (r"attn\.c_attn", "attn_qkv"),
    (r"self_attn\.([qk])_norm", r"attn_\1_norm"),
    (r"self_attn\.([qkv])_proj", r"attn_\1"),
    (r"self_attn\.o_proj|attn\.c_proj", "attn_output"),
    (r"mlp\.gate_proj", "ffn_gate"),
    (r"mlp\.up_proj|mlp\.c_fc", "ffn_up"),
    (r"mlp\.down_proj|mlp\.c_proj", "ffn_down"),
]
findings = []


def run(words, what):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{what} ended with {done.returncode}:\n{done.stderr[-3000:]}")


def renamed(name):
    for pattern, replacement in NAMES:
        name = re.sub(pattern, replacement, name)
    return name


def interleaved(weight, heads):
    """llama.cpp rotates neighbouring rows of a head, transformers the two halves."""
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def expected_tensors(family, merged):
    for name, tensor in load_file(merged / "model.safetensors").items():
        if family == "gpt2" and name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
            tensor = tensor.T
        if family == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            tensor = interleaved(tensor, 4 if name.endswith("q_proj.weight") else 2)
        yield renamed(name), tensor


def compare(family, merged, file):
    sys.path.insert(0, str(CONVERTER / "gguf-py"))
    from gguf import GGUFReader

    reader = GGUFReader(file)
    found = {tensor.name: torch.from_numpy(tensor.data.copy()) for tensor in reader.tensors}
    count = 0
    for name, tensor in expected_tensors(family, merged):
        count += 1
        if name not in found:
            findings.append(f"{family}: {name} is not among {sorted(found)}")
        elif not torch.equal(found[name].reshape(tensor.shape), tensor.float()):
            findings.append(f"{family}: {name} has other values")
    architecture = reader.fields["general.architecture"].contents()
    print(f"{family}: {count} tensors, architecture {architecture}, pre-tokenizer {reader.fields['tokenizer.ggml.pre'].contents()}")
    if architecture != family:
        findings.append(f"{family}: found the architecture {architecture}")


def check(family, folder):
    base, rows, adapter, merged = SHARED / f"models/tiny-{family}", folder / "text.txt", folder / f"{family}-adapter", folder / f"{family}-merged"
    rows.write_text(TEXT)
    words = ["--use_peft", "--lora_target_modules", "all-linear", "--do_train", "--max_steps", 4, "--learning_rate", "1e-2", "--block_size", 32]
    run([TANDEM, "run_clm", "--model_name_or_path", base, "--train_file", rows, "--output_dir", adapter, *words], "tandem run_clm")
    run([TANDEM, "merge", adapter, "--output_dir", merged], "tandem merge")
    if family == "gpt2":  # the converter needs a key that transformers 4.57 does not write
        config = json.loads((merged / "config.json").read_text())
        (merged / "config.json").write_text(json.dumps(config | {"n_ctx": config["n_positions"]}))
    file = folder / f"{family}.gguf"
    run([sys.executable, "-c", CONVERT, CONVERTER, merged, "--outfile", file, "--outtype", "f32"], f"convert_hf_to_gguf.py of {family}")
    compare(family, merged, file)


with tempfile.TemporaryDirectory() as temporary:
    for model in ("llama", "qwen3", "gpt2"):
        check(model, pathlib.Path(temporary))
print("\n".join(findings) or "check_gguf: no findings")
sys.exit(bool(findings))
