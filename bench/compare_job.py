#!/usr/bin/env python3
"""A whole fine-tuning job, from the command to the results: tandem's default against Hugging Face's best configuration on the same cores.

    bench/compare_job.py --tcmalloc FILE [--rival_steps N] [--pad_to_max_length True|False] [--data ../shared/data/squad] [--model build/test-data/minilm]

Run it with a Python that has torch and transformers. The job: 2 epochs over squad1-train-head.json in global batches of 12, bf16, then an evaluation on xquad.en.json. tandem runs as one process with all
cores and its default padding (none). The rival is what measured best among Hugging Face's configurations for two cores: one rank per core under Gloo, autocast, fused AdamW, tcmalloc preloaded; its loop
is the Trainer's without bookkeeping, checkpoints, result files and answers, which is in its favour. With --rival_steps N it trains N steps and evaluates N batches, and the time of the whole job is
projected from their medians; the line notes that.
"""

import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

GLOBAL_BATCH, EVAL_BATCH, EPOCHS, SEQ, STRIDE = 12, 8, 2, 384, 128


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--tandem", default="build/release/bin/tandem")
    parser.add_argument("--model", default="build/test-data/minilm")
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path("../shared/data/squad"))
    parser.add_argument("--pad_to_max_length", choices=["True", "False"], default="True", help="the rival's padding; run_qa.py's default is True")
    parser.add_argument("--rival_steps", type=int, help="project the rival's time from so many steps")
    parser.add_argument("--tcmalloc", metavar="FILE", help="preload this library into the rival, as Hugging Face's guides do")
    parser.add_argument("--json", metavar="FILE", help="write the figures, as bench/record.py wants them")
    return parser.parse_args()


# --- the rival: one rank ---


def questions_of(path):
    """Questions, contexts and first answers of a raw SQuAD file."""
    for article in json.loads(path.read_text(encoding="utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                yield question["question"].lstrip(), paragraph["context"], question["answers"][0]


def features_of(tokenizer, path, padded):
    """Token ids of all windows with the labels of run_qa.py."""
    questions, contexts, answers = map(list, zip(*questions_of(path)))
    encoded = tokenizer(
        questions,
        contexts,
        truncation="only_second",
        max_length=SEQ,
        stride=STRIDE,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        padding="max_length" if padded else False,
    )
    starts, ends = [], []
    for i, offsets in enumerate(encoded["offset_mapping"]):
        answer, of_context = answers[encoded["overflow_to_sample_mapping"][i]], encoded.sequence_ids(i)
        begin, end = answer["answer_start"], answer["answer_start"] + len(answer["text"])
        inside = [t for t, (a, b) in enumerate(offsets) if of_context[t] == 1 and a < end and b > begin]
        window = [t for t, which in enumerate(of_context) if which == 1]
        whole = inside and offsets[window[0]][0] <= begin and offsets[window[-1]][1] >= end
        starts.append(inside[0] if whole else 0)
        ends.append(inside[-1] if whole else 0)
    names = ["input_ids", "attention_mask", "token_type_ids"]
    return [dict(zip(names, row), start_positions=s, end_positions=e) for *row, s, e in zip(*(encoded[name] for name in names), starts, ends)]


def rival_rank(options):
    began = float(os.environ["JOB_BEGAN"])
    import torch
    import torch.distributed as dist
    from transformers import AutoModelForQuestionAnswering, AutoTokenizer, DataCollatorWithPadding, get_linear_schedule_with_warmup

    torch.set_num_threads(1)
    torch.manual_seed(42)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    padded = options.pad_to_max_length == "True"
    train = features_of(tokenizer, options.data / "squad1-train-head.json", padded)
    evaluation = features_of(tokenizer, options.data / "xquad.en.json", padded)
    collate = DataCollatorWithPadding(tokenizer)
    model = torch.nn.parallel.DistributedDataParallel(AutoModelForQuestionAnswering.from_pretrained(options.model).train())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5, weight_decay=0.0, fused=True)
    sampler = torch.utils.data.DistributedSampler(train, world, rank, seed=42)
    loader = torch.utils.data.DataLoader(train, GLOBAL_BATCH // world, sampler=sampler, collate_fn=collate)
    steps = EPOCHS * len(loader)
    schedule = get_linear_schedule_with_warmup(optimizer, 0, steps)
    ready, times = time.time() - began, []

    def train_step(batch):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        loss.item()

    def timed(batches, run, times, most):
        begin = time.perf_counter()
        for batch in batches:
            run(batch)
            times.append(time.perf_counter() - begin)
            begin = time.perf_counter()
            if most and len(times) >= most:
                return

    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        timed(loader, train_step, times, options.rival_steps)
        if options.rival_steps:
            break
    model.eval()
    mine, eval_times = evaluation[rank::world], []

    def predict(batch):
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            model.module(**batch)

    batches = [mine[i : i + EVAL_BATCH] for i in range(0, len(mine), EVAL_BATCH)]
    timed((collate(batch) for batch in batches), predict, eval_times, options.rival_steps)
    dist.barrier()
    if rank == 0:
        print(json.dumps({"ready": ready, "steps": steps, "eval_batches": len(batches), "step": times, "eval": eval_times, "total": time.time() - began}))
    dist.destroy_process_group()


# --- both sides ---


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def rival_job(options, cores):
    began, port = time.time(), free_port()
    command = [sys.executable, __file__, *sys.argv[1:], "--side", "rank"]
    ranks = []
    for rank, core in enumerate(cores):
        environment = {
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": str(len(cores)),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": "1",
            "JOB_BEGAN": str(began),
            "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_OFFLINE": "1",
            **({"LD_PRELOAD": options.tcmalloc} if options.tcmalloc else {}),
        }
        ranks.append(subprocess.Popen(["taskset", "-c", str(core), *command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    outputs = [rank.communicate() for rank in ranks]
    for rank, (_, errors) in zip(ranks, outputs):
        if rank.returncode:
            sys.exit(f"a rank of the rival ended with {rank.returncode}:\n{errors[-3000:]}")
    return json.loads(outputs[0][0].strip().split("\n")[-1])


def tandem_job(options):
    with tempfile.TemporaryDirectory() as folder:
        command = [
            options.tandem,
            "run_qa",
            "--model_name_or_path",
            options.model,
            "--train_file",
            options.data / "squad1-train-head.json",
            "--validation_file",
            options.data / "xquad.en.json",
            "--do_train",
            "--do_eval",
            "--per_device_train_batch_size",
            GLOBAL_BATCH,
            "--learning_rate",
            "3e-5",
            "--num_train_epochs",
            EPOCHS,
            "--max_seq_length",
            SEQ,
            "--doc_stride",
            STRIDE,
            "--bf16",
            "--output_dir",
            folder + "/out",
        ]
        begin = time.perf_counter()
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        seconds = time.perf_counter() - begin
        if done.returncode:
            sys.exit(f"tandem ended with {done.returncode}:\n{done.stderr[-3000:]}")
        return seconds, json.loads(pathlib.Path(folder, "out", "all_results.json").read_text())


def compare(options):
    cores = sorted(os.sched_getaffinity(0))
    seconds, results = tandem_job(options)
    print(
        f"tandem, {len(cores)} threads: {seconds:.1f} s; training {results['train_runtime']:.1f}, evaluation {results['eval_runtime']:.1f}; "
        f"EM {results['eval_exact_match']:.2f}, F1 {results['eval_f1']:.2f}",
        flush=True,
    )
    rival = rival_job(options, cores)
    step, batch = statistics.median(rival["step"]), statistics.median(rival["eval"])
    total = rival["total"]
    how = "measured"
    if options.rival_steps:
        total = rival["ready"] + rival["steps"] * step + rival["eval_batches"] * batch
        how = f"projected from {len(rival['step'])} of {rival['steps']} steps and {len(rival['eval'])} of {rival['eval_batches']} batches"
    print(
        f"Hugging Face, {len(cores)} ranks x 1 thread, --pad_to_max_length {options.pad_to_max_length}: {total:.1f} s ({how}); start {rival['ready']:.1f}, "
        f"step {step:.3f} ({min(rival['step']):.3f} - {max(rival['step']):.3f}), evaluation batch {batch:.3f}\ntandem is {total / seconds:.2f} times as fast"
    )
    if options.json:
        padding = "all to 384" if options.pad_to_max_length == "True" else "each batch to its longest"
        pathlib.Path(options.json).write_text(
            json.dumps({"rows": [{"padding": padding, "tandem": seconds, "seconds": total, "projected": how.removeprefix("projected from ")}]})
        )


if __name__ == "__main__":
    options = parse()
    rival_rank(options) if options.side else compare(options)
