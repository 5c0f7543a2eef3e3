#!/usr/bin/env python3
"""Cost of the checksums of frames between hosts per step, in processor time: bench/checksum_cost.py MODEL_DIR TRAIN_FILE [--tandem PROGRAM] [-- FLAG...]

share = seconds of CRC-32C per byte * bytes that a rank sends and receives in a step / processor time of a rank's step. Processor time does not count what other programs
take, so a busy machine may measure it. A step's time is that of a run with more steps minus that of one with fewer. Two hosts of one rank each are assumed: in an all_reduce
each rank sends and receives the gradient once (f32). More hosts send up to twice as much.
"""

import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def checksum_seconds_per_byte(folder):
    program = f"{folder}/rate"
    subprocess.run(
        [
            os.environ.get("CXX", "c++"),
            "-O3",
            "-std=c++20",
            f"-I{ROOT}/src",
            ROOT / "bench/checksum_rate.cc",
            ROOT / "src/tandem/core/crc32c.cc",
            "-o",
            program,
        ],
        check=True,
    )
    rates = [float(subprocess.run([program], check=True, capture_output=True, text=True).stdout.split()[0]) for _ in range(3)]
    return statistics.median(rates) / 2**30


def processor_seconds(arguments, folder, steps):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [
        arguments.tandem,
        "run_qa",
        "--model_name_or_path",
        arguments.model,
        "--train_file",
        arguments.train_file,
        "--do_train",
        "--max_steps",
        str(steps),
        "--per_device_train_batch_size",
        "12",
        "--save_strategy",
        "no",
        "--report_to",
        "none",
        "--overwrite_output_dir",
        "--output_dir",
        f"{folder}/out",
        *arguments.flags,
    ]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def parameters(model):
    """The number of parameters in model.safetensors."""
    data = (pathlib.Path(model) / "model.safetensors").read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    total = 0
    for name, entry in header.items():
        count = 1
        for size in entry.get("shape", [0]):
            count *= size
        total += count if name != "__metadata__" else 0
    return total


def main():
    words = sys.argv[1:]
    flags = words[words.index("--") + 1 :] if "--" in words else []
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("train_file")
    parser.add_argument("--tandem", default=str(ROOT / "build/release/bin/tandem"))
    arguments = parser.parse_args(words[: len(words) - len(flags) - ("--" in words)])
    arguments.flags = flags
    with tempfile.TemporaryDirectory() as folder:
        rate = checksum_seconds_per_byte(folder)
        few, many = 2, 8
        step = statistics.median(processor_seconds(arguments, folder, many) - processor_seconds(arguments, folder, few) for _ in range(3)) / (many - few)
    moved = 2 * 4 * parameters(arguments.model)
    print(f"checksums: {1 / rate / 1e9:.1f} GB/s of one core; {moved / 1e6:.0f} MB sent and received in a step: {1e3 * rate * moved:.1f} ms")
    print(f"step: {step:.3f} s of processor time; checksums are {100 * rate * moved / step:.2f} % of it")


if __name__ == "__main__":
    main()
