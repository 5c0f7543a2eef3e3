#!/usr/bin/env python3
"""Training steps and generation of a decoder by tandem, and by PyTorch, transformers and PEFT, alternately on the same machine; see rivals.py.

    bench/compare_decoders.py [--what full|lora|generate] [--types f32,bf16] [--batch 2] [--length 512] [--variants sdpa,half] [--tcmalloc FILE] [--iomp FILE] ...

Run it with a Python that has torch, transformers, tokenizers and, for lora, peft. The model has SmolLM2-135M's shape and random weights, the tokenizer is that of examples/demo.

full, lora: seconds of a step over --batch blocks of --length tokens: forward, the loss, backward, clipping to 1.0 and AdamW; lora has adapters of rank 16 on the four projections of attention. tandem's steps are those
of a run_clm job, by the seconds in the log of each step. The rival has a loop of its own: its AdamW is fused, and its batch is the same in every step. Both leave out their first steps and give the median of the others.
generate: seconds for a new token of one text behind a prompt of --length tokens, greedy, with a cache of keys and values. Both sides generate a few and then many tokens; the difference is what counts, so neither the
start nor the prompt does. In f32 both must generate the same tokens.
Memory is the highest that the process had resident, in MiB; for tandem the job's own report.

Forms of the rival in bf16: sdpa is autocast over f32 weights, as the Trainer's --bf16; half is a frozen base, or a whole model that generates, in bf16. In f32 they are the same, so half is left out.
"""

import argparse
import json
import os
import pathlib
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import rivals

ROOT = pathlib.Path(__file__).resolve().parents[1]
SHAPE = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100000.0,
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 49151,  # not among the demo's tokens
}
LORA = {"r": 16, "lora_alpha": 32, "lora_dropout": 0.05, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]}
LEARNING_RATES = {"full": rivals.LEARNING_RATE, "lora": 1e-3}
FEW, MANY = 16, 80  # new tokens of the two runs of a side
UNITS = {"full": "a step", "lora": "a step", "generate": "a token"}
MEMORY = re.compile(r"memory used on this node: (\d+) MiB")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--scratch", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--tandem", default="build/release/bin/tandem")
    parser.add_argument("--what", choices=UNITS, default="full")
    parser.add_argument("--batch", type=int, default=2, help="blocks of a step")
    parser.add_argument("--length", type=int, default=512, help="tokens of a block, or of the prompt")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--skip", type=int, default=3, help=f"first steps that no side counts; at least {rivals.LEAST_WARM_UP}")
    parser.add_argument("--layers", type=int, default=SHAPE["num_hidden_layers"], help="fewer of them try the script out")
    parser.add_argument("--tokenizer", type=pathlib.Path, default=ROOT / "examples/demo/decoder", metavar="DIR")
    parser.add_argument("--text", type=pathlib.Path, default=ROOT / "examples/demo/stories.txt", metavar="FILE")
    parser.add_argument("--types", default="f32", help="f32,bf16")
    rivals.add_rounds(parser)
    rivals.add_columns(parser, ["sdpa", "half"])
    options = parser.parse_args()
    if options.skip < rivals.LEAST_WARM_UP:
        parser.error(f"--skip: at least {rivals.LEAST_WARM_UP} steps of warm-up")
    options.batch = 1 if options.what == "generate" else options.batch
    return options


def steps_of(options):
    return options.skip + options.steps


# --- what both sides read ---


def write_model(options):
    """The model, the text to train on, and the prompt, with the tokens of the rival's batch or prompt."""
    import torch
    from tokenizers import Tokenizer
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(42)
    folder = options.scratch / "model"
    LlamaForCausalLM(LlamaConfig(**{**SHAPE, "num_hidden_layers": options.layers})).save_pretrained(folder)
    for file in options.tokenizer.iterdir():
        shutil.copy(file, folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "model_max_length": SHAPE["max_position_embeddings"]}))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids_of = lambda text: tokenizer.encode(text, add_special_tokens=False).ids
    story = options.text.read_text()
    wanted = options.length * (options.batch * steps_of(options) + 1)
    story *= 1 + wanted // len(ids_of(story))
    (options.scratch / "text.txt").write_text(story)
    prompt = next(story[:end] for end in range(1, len(story)) if len(ids_of(story[:end])) == options.length)
    (options.scratch / "prompt.txt").write_text(prompt)
    (options.scratch / "prompt.json").write_text(json.dumps(ids_of(prompt)))
    (options.scratch / "batch.json").write_text(json.dumps(ids_of(story)[: options.batch * options.length]))


# --- tandem ---


def flags_of(values):
    return [word for name, value in values.items() for word in (f"--{name}", *(value if isinstance(value, list) else [value]))]


def tandem_train(options, kind):
    output = options.scratch / "out"
    flags = {
        "model_name_or_path": options.scratch / "model",
        "train_file": options.scratch / "text.txt",
        "validation_split_percentage": 0,
        "block_size": options.length,
        "output_dir": output,
        "per_device_train_batch_size": options.batch,
        "max_steps": steps_of(options),
        "learning_rate": LEARNING_RATES[options.what],
        "save_strategy": "no",
        "logging_steps": 1,
        "include_num_input_tokens_seen": "all",
        "report_to": "none",
    }
    if options.what == "lora":
        flags |= {"lora_r": LORA["r"], "lora_alpha": LORA["lora_alpha"], "lora_dropout": LORA["lora_dropout"], "lora_target_modules": LORA["target_modules"]}
    switches = ["--do_train", "--overwrite_output_dir"] + ["--use_peft"] * (options.what == "lora") + ["--bf16"] * (kind == "bf16")
    printed = rivals.run([options.tandem, "run_clm", *switches, *flags_of(flags)], {"OMP_NUM_THREADS": str(options.threads)})
    log = json.loads((output / "trainer_state.json").read_text())["log_history"]
    ends = [entry["train_runtime"] for entry in log if "loss" in entry]
    if len(ends) != steps_of(options):
        sys.exit(f"trainer_state.json has the logs of {len(ends)} steps, expected {steps_of(options)}")
    seen, expected = log[-1]["num_input_tokens_seen"], options.batch * options.length * steps_of(options)
    if seen != expected:
        sys.exit(f"tandem has trained on {seen} tokens, expected {expected}: not comparable")
    seconds = statistics.median(end - begin for begin, end in zip(ends[options.skip - 1 :], ends[options.skip :]))
    return {"seconds": seconds, "memory": int(MEMORY.search(printed)[1])}


def tandem_tokens(options, kind, count):
    """Seconds for `count` new tokens, the tokens, and MiB."""
    command = [options.tandem, "generate", "--model", options.scratch / "model", "--file", options.scratch / "prompt.txt", "--max_new_tokens", count, "--json"]
    process = subprocess.Popen(
        list(map(str, command + ["--bf16"] * (kind == "bf16"))),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": str(options.threads)},
    )
    printed, errors = process.stdout.read(), process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)  # for its memory
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"tandem generate ended with {process.returncode}:\n{errors[-2000:]}")
    found = json.loads(printed)
    return len(found["tokens"]) / found["tokens_per_second"], found["tokens"], usage.ru_maxrss // 1024


def tandem_generate(options, kind):
    few, _, _ = tandem_tokens(options, kind, FEW)
    many, tokens, memory = tandem_tokens(options, kind, MANY)
    keep_tokens(options, "tandem", tokens)
    return {"seconds": (many - few) / (MANY - FEW), "memory": memory}


def tandem_side(options, kind):
    return {**(tandem_generate if options.what == "generate" else tandem_train)(options, kind), "versions": {}}


# --- the rival ---


def keep_tokens(options, name, tokens):
    if len(tokens) != MANY:
        sys.exit(f"{name} generated {len(tokens)} tokens, expected {MANY}")
    (options.scratch / f"tokens_{name}.json").write_text(json.dumps(tokens))


def rival_model(options):
    import torch
    from transformers import LlamaForCausalLM

    torch.set_num_threads(options.threads)
    torch.manual_seed(42)
    half = options.side == "half"
    if half and options.what == "full":
        sys.exit("half: weights in bf16 do not train as f32 weights do")
    kind = torch.bfloat16 if half else torch.float32
    return LlamaForCausalLM.from_pretrained(options.scratch / "model", attn_implementation="sdpa", dtype=kind)


def autocast(options):
    import torch

    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.types == "bf16" and options.side == "sdpa")


def rival_train(options):
    import torch

    model = rival_model(options)
    if options.what == "lora":
        import peft

        model = peft.get_peft_model(model, peft.LoraConfig(**LORA, task_type="CAUSAL_LM"))
    model.train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=LEARNING_RATES[options.what], fused=True)
    tokens = torch.tensor(json.loads((options.scratch / "batch.json").read_text())).view(options.batch, options.length)

    def step():
        with autocast(options):
            loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    seconds, losses = [], []
    for _ in range(steps_of(options)):
        begin = time.perf_counter()
        losses.append(step())
        seconds.append(time.perf_counter() - begin)
    if not rivals.has_learned(losses):
        sys.exit(f"{options.side} {options.types}: the losses {losses} are not those of a model that learns: not comparable")
    return statistics.median(seconds[options.skip :])


def rival_generate(options):
    import torch

    model = rival_model(options).eval()
    prompt = torch.tensor([json.loads((options.scratch / "prompt.json").read_text())])

    def generate(count):
        begin = time.perf_counter()
        with torch.inference_mode(), autocast(options):
            found = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=count, do_sample=False, use_cache=True, pad_token_id=0)
        return time.perf_counter() - begin, found[0, prompt.shape[1] :].tolist()

    generate(FEW)  # memory, caches
    few, _ = generate(FEW)
    many, tokens = generate(MANY)
    keep_tokens(options, options.side, tokens)
    return (many - few) / (MANY - FEW)


def versions_of(options):
    from importlib import metadata

    return {name: metadata.version(name) for name in ["torch", "transformers"] + ["peft"] * (options.what == "lora")}


def rival_side(options):
    seconds = (rival_generate if options.what == "generate" else rival_train)(options)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps({"seconds": seconds, "memory": memory, "versions": versions_of(options)}))


def rival_flags(options, kind):
    return rivals.flags_of(options, kind, ("what", "batch", "length", "steps", "skip", "layers", "threads", "scratch", "tokenizer", "text"))


def run_rival(options, variant, kind, environment):
    return rivals.run_side(options, __file__, variant, rival_flags(options, kind), environment)


# --- the comparison ---


def forms_of(options, kind):
    return [name for name in options.variants.split(",") if name == "sdpa" or (kind == "bf16" and options.what != "full")]


def sides_of(options, kind, memory):
    """Each side notes its memory, too."""

    def noted(side, run):
        found = run()
        memory.setdefault(side, []).append(found["memory"])
        return found

    theirs = rivals.columns_of(options, lambda variant, variables: run_rival(options, variant, kind, variables))
    sides = {("tandem", ""): lambda: tandem_side(options, kind), **{side: run for side, run in theirs.items() if side[0] in forms_of(options, kind)}}
    return {side: lambda side=side, run=run: noted(side, run) for side, run in sides.items()}


def check_tokens(options, kind, sides):
    """Exits when a side has generated something else in f32; bf16 rounds in other places, so it is only printed."""
    read = lambda name: json.loads((options.scratch / f"tokens_{name}.json").read_text())
    for variant in sorted({side[0] for side in sides} - {"tandem"}):
        same = sum(a == b for a, b in zip(read("tandem"), read(variant)))
        print(f"{variant}: {same} of {MANY} tokens of {kind} are tandem's")
        if kind == "f32" and same != MANY:
            sys.exit(f"{variant}: not the same text")


def compare(options):
    rivals.run([sys.executable, __file__, "--side", "model", *rival_flags(options, "f32")], {})
    unit = UNITS[options.what]
    print(
        f"{options.what}, SmolLM2-135M's shape, {options.batch} x {options.length} tokens, {options.threads} threads, {options.rounds} rounds; seconds for {unit}, median (min - max); MiB"
    )
    results, versions = [], {}
    for kind in options.types.split(","):
        memory = {}
        sides = sides_of(options, kind, memory)
        times, found = rivals.in_turns(sides, options.rounds, kind, "seconds")
        versions.update(found)
        if options.what == "generate":
            check_tokens(options, kind, sides)
        held = {side: statistics.median(values) for side, values in memory.items()}
        results += rivals.print_times(kind, times, lambda side, held=held: (f"  {held[side]:6.0f}", {"memory": held[side]}))
    if options.json:
        setting = {name: getattr(options, name) for name in ("what", "batch", "length", "threads", "rounds", "steps", "skip")}
        setting |= {"model": "SmolLM2-135M", "lengths": "full", "rival": "peft" if options.what == "lora" else "transformers"}
        pathlib.Path(options.json).write_text(json.dumps({**setting, "versions": versions, "results": results}))


def main():
    options = parse()
    if options.side == "model":
        return write_model(options)
    if options.side:
        return rival_side(options)
    with tempfile.TemporaryDirectory() as scratch:
        options.scratch = pathlib.Path(scratch)
        compare(options)


if __name__ == "__main__":
    main()
