"""./dev bench training: hocket's training layer beside PyTorch's, as tables and JSON.

Runs build/bin/training-lab and perf/training/ddp.py again and again, in turn, and compares medians
of steps. docs/BENCHMARKS.md says what the figures mean.
"""

import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BUILD_DIR", ROOT / "build"))
HOSTS = os.environ.get("HOSTS_RUN", str(ROOT / "tests/rig/hosts"))
HERE = pathlib.Path(__file__).resolve().parent
TITLES = {
    "mlp": "MLP 8 x 1024^2",
    "tensors": "64 tensors, 2 MB",
    "gpt10m": "GPT 10.9 M",
    "gpt85m": "GPT 85 M",
}
# Rounds of one run, and steps of a turn (the first does not count).
PLANS = {"mlp": (10, 3), "tensors": (50, 6), "gpt10m": (6, 3), "gpt85m": (3, 2)}


def environment():
    return {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def run(command, extra=None):
    """The JSON of the last line that the command prints."""
    ended = subprocess.run(
        list(map(str, command)),
        env={**environment(), **(extra or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=900,
    )
    if ended.returncode != 0:
        raise RuntimeError(f"{command[0]} exited with {ended.returncode}:\n{ended.stderr[-2000:]}")
    return json.loads(ended.stdout.strip().splitlines()[-1])


def lab(ranks, *arguments):
    start = [BUILD / "bin/hocket-run", "-n", ranks, BUILD / "bin/training-lab"]
    return run([*start, "--interface", "lo", "--address", "127.0.0.1", *arguments])


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def python_ddp(python, ranks, *arguments):
    """Ranks of ddp.py; the JSON of rank 0."""
    common = {
        **environment(),
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    started = [
        subprocess.Popen(
            [python, "-B", str(HERE / "ddp.py"), *map(str, arguments)],
            env={**common, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        outputs = [process.communicate(timeout=900) for process in started]
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
    if any(process.returncode for process in started):
        raise RuntimeError("ddp.py failed:\n" + "\n".join(err[-2000:] for _, err in outputs))
    return json.loads(outputs[0][0].strip().splitlines()[-1])


class Samples:
    """Steps of all runs, by workload, ranks and mode. Python's own `none` is `python-none`."""

    def __init__(self):
        self.of = {}

    def add(self, result, prefix=""):
        for mode, parts in result["samples"].items():
            name = prefix + mode if mode == "none" else mode
            kept = self.of.setdefault((result["workload"], result["ranks"], name), {})
            for part, values in parts.items():
                kept.setdefault(part, []).extend(values)

    def has(self, workload, ranks, mode):
        return (workload, ranks, mode) in self.of

    def median(self, workload, ranks, mode, part="step"):
        return statistics.median(self.of[workload, ranks, mode][part])

    def exposed(self, workload, ranks, mode):
        """ms of a step beyond the same step without communication: the median of the differences
        of neighbours, which a machine that changes its speed disturbs least."""
        base = "python-none" if mode == "python" else "none"
        pairs = zip(self.of[workload, ranks, mode]["step"], self.of[workload, ranks, base]["step"])
        return statistics.median(with_ - without for with_, without in pairs)


def table(title, columns, rows):
    print(f"\n{title}")
    cells = [columns, *[[str(cell) for cell in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    for row in cells:
        line = [row[0].ljust(widths[0])]
        line += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
        print("  " + "  ".join(line))
    sys.stdout.flush()


def verdict(ok):
    return "met" if ok else "MISSED"


def measure_steps(options, samples, workload, ranks, modes):
    rounds, burst = PLANS[workload]
    if options.quick:
        rounds = max(2, rounds // 3)
    arguments = ["--workload", workload, "--rounds", rounds, "--burst", burst, "--warmup", 2]
    if ranks > 2:
        arguments += ["--rows", 1 if workload.startswith("gpt") else 16]
    for _ in range(1 if options.quick else options.repeat):
        samples.add(lab(ranks, *arguments, "--modes", ",".join(modes)))
        if options.python and ranks == 2:
            samples.add(python_ddp(options.python, ranks, *arguments), "python-")


def parity(options, results):
    rows = []
    for workload in options.workloads:
        if workload == "gpt85m" and options.quick:
            continue
        found = lab(2, "--workload", workload, "--parity")
        results.append(found)
        bits = "same bits" if found["bit_equal"] else "DIFFERENT"
        equal = "equal" if found["ranks_equal"] else "DIFFERENT"
        ok = found["bit_equal"] and found["ranks_equal"] and found["full_batch"] <= 1e-5
        rows.append([TITLES[workload], bits, f"{found['full_batch']:.1e}", equal, verdict(ok)])
    columns = ["parity, 2 ranks", "half-batches one by one", "full batch", "ranks", "target"]
    title = "Gradients of 2 ranks beside those of one process (targets: same bits, 1e-5)"
    table(title, columns, rows)


def exposed(options, samples):
    rows = []
    for workload in options.workloads:
        if not samples.has(workload, 2, "hocket"):
            continue
        ours = samples.exposed(workload, 2, "hocket")
        none = samples.median(workload, 2, "none")
        floor = samples.exposed(workload, 2, "barrier")
        peers = {
            mode: samples.exposed(workload, 2, mode)
            for mode in ("reducer", "python")
            if samples.has(workload, 2, mode)
        }
        row = [TITLES[workload], f"{none:.2f}", f"{floor:+.2f}", f"{ours:+.2f}"]
        row += [f"{peers[mode]:+.2f}" if mode in peers else "-" for mode in ("reducer", "python")]
        if workload == "tensors":
            ratio = 1 + ours / none
            row += [f"{ratio:.2f} x the step; <= 1.30", verdict(ratio <= 1.3)]
        elif peers:
            best = min(peers.values())
            beyond = (ours - floor) / max(best - floor, 1e-9)
            target = f"{ours / best:.2f} of the best peer; <= 0.33 ({beyond:.2f} beyond a barrier)"
            row += [target, verdict(ours <= best / 3)]
        else:
            row += ["no peer", "-"]
        rows.append(row)
    columns = ["ms a step, 2 ranks", "none", "barrier", "hocket", "Reducer", "Python DDP"]
    columns += ["target", ""]
    table("Exposed communication: what it adds to a step without it", columns, rows)


def with_optimizer(options, workload, arguments, modes):
    """Steps of the modes in turns, and of DataParallel: one process, as many rows. The memory of a
    rank is that of a run with this mode alone."""
    rounds = 1 if options.quick else PLANS[workload][0]
    samples, memory = Samples(), {}
    for _ in range(1 if options.quick else options.repeat):
        together = lab(2, *arguments, rounds, "--modes", ",".join(modes))
        samples.add(together)
        alone = ["--modes", "dp", "--replicas", 2, "--rows", 2 * together["rows"]]
        dp = lab(1, *arguments, rounds, *alone)
        samples.add({**dp, "ranks": 2})
    memory["dp"] = dp["pss"], dp["computed_bytes"]["dp"], dp["freed"]
    for mode in [*modes, "none"]:
        result = lab(2, *arguments, 1, "--modes", mode)
        memory[mode] = result["pss"], result["computed_bytes"][mode], result["freed"]
    return samples, memory


def strategies(options):
    """Steps with an optimizer, and memory: PSS, and what memory_of() computes."""
    modes = ["hocket", "fused", "zero1", "zero2"] + ["reducer"] * options.reducer
    titles = {"hocket": "DDP, libtorch's AdamW", "fused": "DDP, hocket's AdamW", "zero1": "ZeRO-1"}
    titles |= {"zero2": "ZeRO-2", "reducer": "c10d Reducer, libtorch's AdamW"}
    titles |= {"dp": "DataParallel, one process"}
    found = []
    for workload in [each for each in options.workloads if each.startswith("gpt")]:
        rounds, burst = PLANS[workload]
        arguments = ["--workload", workload, "--burst", burst, "--warmup", 1, "--rounds"]
        samples, memory = with_optimizer(options, workload, arguments, modes)
        # Libraries, activations and the rest of a process: what the mode `none` has beyond its
        # parameters, gradients and state.
        rest = memory["none"][0] - memory["none"][1]
        rows = []
        for mode in [*modes, "dp"]:
            step = samples.median(workload, 2, mode)
            optimizer = samples.median(workload, 2, mode, "optimizer")
            pss, computed, freed = memory[mode]
            row = {"mode": mode, "step_ms": step, "optimizer_ms": optimizer, "pss": pss}
            row |= {"computed": computed, "rest": rest, "freed": freed}
            found.append({"workload": workload, **row})
            mib = [f"{bytes_ / 2**20:.0f}" for bytes_ in (freed, pss, computed)]
            difference = f"{(pss - computed - rest) / 2**20:+.0f}"
            rows.append([titles[mode], f"{step:.0f}", f"{optimizer:.0f}", *mib, difference])
        columns = [f"{TITLES[workload]}, 2 ranks", "step, ms", "optimizer, ms"]
        columns += ["freed, MiB", "PSS", "computed", "PSS - computed - rest"]
        table("Steps with an optimizer, and the memory of a rank", columns, rows)
        print(f"  rest: the {rest / 2**20:.0f} MiB that a rank without communication has besides")
        checkpointed = Samples()
        checkpointed.add(lab(2, *arguments, rounds, "--modes", "none,checkpointed"))
        ratio = checkpointed.median(workload, 2, "checkpointed")
        ratio /= checkpointed.median(workload, 2, "none")
        activations = lab(1, "--workload", workload, "--activations")
        found.append({"checkpointed": ratio, **activations})
        saved = activations["plain"] - activations["checkpointed"]
        right = "as computed" if saved == activations["computed"] else "NOT AS COMPUTED"
        print(f"  with checkpointed activations a step takes {ratio:.2f} x as long (target: 1.35)")
        print(f"  and its forward keeps {saved} of {activations['plain']} bytes less, {right}")
    return found


def scaling(samples):
    rows = []
    for workload, ranks, mode in sorted(samples.of):
        if mode != "hocket" or not workload.startswith("gpt"):
            continue
        none = samples.median(workload, ranks, "none")
        share = none / (none + samples.exposed(workload, ranks, "hocket"))
        others = ["-", "-"]
        for place, other in enumerate(("barrier", "reducer")):
            if samples.has(workload, ranks, other):
                others[place] = f"{none / (none + samples.exposed(workload, ranks, other)):.1%}"
        target = verdict(share >= 0.97) if ranks == 2 else "reported"
        row = [TITLES[workload], ranks, f"{none:.1f}", others[0], f"{share:.1%}", others[1], target]
        rows.append(row)
    columns = ["throughput of a rank", "ranks", "none, ms", "barrier", "hocket", "Reducer"]
    columns += [">= 97 % at 2"]
    table("Throughput of a rank with communication, in parts of that without", columns, rows)


def overlap_figures(samples):
    """The fractions for each mode that was measured beside `none` over the shaped link."""
    found = []
    for mode in ("hocket", "reducer"):
        if not samples.has("gpt10m", 2, mode):
            continue
        backward = samples.median("gpt10m", 2, "none", "backward")
        alone = samples.median("gpt10m", 2, mode, "alone")
        together = samples.median("gpt10m", 2, mode, "backward")
        # Until the gradients are computed; what follows is a wait, in which a rank may poll.
        cpu = samples.median("gpt10m", 2, mode, "computed_cpu")
        cpu -= samples.median("gpt10m", 2, "none", "computed_cpu")
        hidden = backward + alone - together
        found.append(
            {
                "mode": mode,
                "backward_ms": backward,
                "communication_ms": alone,
                "together_ms": together,
                "processor_ms": cpu,
                "hidden": hidden / min(backward, alone),
                "hidden_of_what_waits": hidden / min(backward, max(alone - cpu, 1e-9)),
            }
        )
    return found


def overlap(options):
    """On the first of two hosts with a shaped link: prints JSON."""
    modes = "none,hocket" + (",reducer" if options.reducer else "")
    start = [BUILD / "bin/hocket-run", "-n", 2, "--hosts", "h1:1,h2:1"]
    start += ["--ssh", os.environ["HOSTS_RSH"], "--env", "OMP_NUM_THREADS=1"]
    command = [*start, BUILD / "bin/training-lab", "--interface", "eth1", "--address", "10.77.1.1"]
    command += ["--workload", "gpt10m", "--modes", modes, "--alone", "--burst", 1]
    command += ["--bucket-mb", options.bucket_mb, "--warmup", 2]
    print(json.dumps(run([*command, "--rounds", 3 if options.quick else 10])))


def measure_overlap(options, samples):
    """Shapes a link so that the communication alone takes as long as backward alone."""
    if os.geteuid() != 0:
        return print("\nOverlap: left out, because only root may make namespace hosts")
    backward_ms = samples.median("gpt10m", 2, "none", "backward")
    bits = 8 * 4 * 10_900_000
    rate = round(bits / 0.957 / (backward_ms / 1e3) / 1e6)  # 0.957: payload of a shaped link
    again = [sys.executable, "-B", __file__, "--stage", "overlap", "--bucket-mb", options.bucket_mb]
    again += ["--quick"] * options.quick + ["--no-reducer"] * (not options.reducer)
    shaped = Samples()
    result = run([HOSTS, "--hosts", 2, "--rate", f"{rate}mbit", "--", *again])
    shaped.add(result)
    found = overlap_figures(shaped)
    rows = []
    for each in found:
        share, waiting = each["hidden"], each["hidden_of_what_waits"]
        row = [each["mode"]]
        row += [f"{each[key]:.0f}" for key in list(each)[1:5]]
        target = verdict(waiting >= 0.7) if each["mode"] == "hocket" else ""
        rows.append([*row, f"{share:.0%}", f"{waiting:.0%}", target])
    columns = ["ms", "backward", "communication", "both", "its processor time", "hidden"]
    columns += ["less processor time", ">= 70 %"]
    bucket = result["bucket_mb"]
    title = f"Overlap: GPT 10.9 M, two hosts, {rate} Mbit/s, {bucket:g} MiB a bucket"
    table(title, columns, rows)
    return {"rate_mbit": rate, "bucket_mb": bucket, "modes": found, "samples": stored(shaped)}


def stored(samples):
    return [
        {"workload": workload, "ranks": ranks, "mode": mode, "parts": parts}
        for (workload, ranks, mode), parts in samples.of.items()
    ]


def parse():
    parser = argparse.ArgumentParser(prog="perf/bench training", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few steps: shows that all works")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each case")
    parser.add_argument("--workloads", default="mlp,tensors,gpt10m,gpt85m")
    parser.add_argument("--parts", default="parity,steps,strategies,scaling,overlap")
    parser.add_argument("--python", help="a Python that has torch 2.13; default: build/peers/gloo")
    parser.add_argument("--no-reducer", dest="reducer", action="store_false")
    parser.add_argument("--bucket-mb", type=float, default=0, help="of the overlap; 0: by cost")
    parser.add_argument("--json", default=str(BUILD / "training.json"))
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.workloads = options.workloads.split(",")
    options.parts = options.parts.split(",")
    python = BUILD / "peers/gloo/bin/python"
    if options.python is None and python.exists():
        options.python = str(python)
    return options


def main():
    options = parse()
    if options.stage == "overlap":
        return overlap(options)
    if not (BUILD / "bin/training-lab").exists():
        sys.exit("bench: no training-lab: it is built where libtorch was found (HOCKET_TORCH)")
    modes = ["none", "barrier", "hocket"] + ["reducer"] * options.reducer
    samples, out = Samples(), {"parity": []}
    if "parity" in options.parts:
        parity(options, out["parity"])
    needed = set(options.workloads if "steps" in options.parts else [])
    if "overlap" in options.parts:
        needed.add("gpt10m")
    for workload in sorted(needed, key=list(TITLES).index):
        print(f"... {TITLES[workload]}, 2 ranks", file=sys.stderr)
        measure_steps(options, samples, workload, 2, modes)
    if "scaling" in options.parts:
        for ranks in (4, 8):
            print(f"... GPT 10.9 M, {ranks} ranks", file=sys.stderr)
            measure_steps(options, samples, "gpt10m", ranks, modes)
    if "steps" in options.parts:
        exposed(options, samples)
    if "strategies" in options.parts:
        out["strategies"] = strategies(options)
    if "scaling" in options.parts:
        scaling(samples)
    if "overlap" in options.parts:
        out["overlap"] = measure_overlap(options, samples)
    out["steps"] = stored(samples)
    with open(options.json, "w") as file:
        json.dump(out, file)
    print(f"\nAll samples: {options.json}")


if __name__ == "__main__":
    main()
