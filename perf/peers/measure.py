"""Measures hocket and its peers and writes one file of results (perf/bench peers --help).

A case is a transport, a number of ranks and a collective. In each round every configuration of
every peer (backends.py) is started once per case, in turn, and goes through all sizes. Standard
library only; over TCP it runs on the first of namespace hosts (tests/rig/hosts).
"""

import argparse
import contextlib
import datetime
import json
import os
import platform
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import backends
from results import is_far, middle_of

COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather",
               "scatter", "alltoall", "barrier", "all_gather_v", "reduce_scatter_v", "gather_v",
               "scatter_v", "alltoall_v", "latency"]
SIZES = "8 64 512 4K 16K 64K 128K 512K 2M 8M 32M 64M 128M".split()
QUICK_SIZES = "8 4K 128K 2M".split()
RAW_BYTES = 8
# A configuration that took so many times its peer's best is not run again.
HOPELESS = 1.5
TERMINATE_S = 3
METHOD = [
    "fp32, sums, root 0, blocking calls. A size is that of the larger of input and output; the "
    "block of a rank has at least one element. Out of place, except broadcast, and all-reduce "
    "and reduce by Gloo, whose interface in libtorch has no other form. The collectives whose "
    "names end with _v: blocks of three halves and of one half of the equal ones, in turn. "
    "latency: half a round trip of a message between the two ranks of a pair.",
    "One program (perf/peers/peer_bench.cc) measures all libraries. Above 4 KiB an iteration is "
    "one call, at or below 4 KiB a batch of 64 calls, each on buffers of its own. Between "
    "iterations, outside the timed stretch, every rank reads all results, rewrites all inputs "
    "and waits at a barrier that belongs to the program.",
    "A round starts every configuration of every library once per case, in turn. A library's "
    "figure is the median over rounds of the median over iterations of the mean over ranks, in "
    "its best configuration for that size. In the first round all results are held against a "
    "reference. A row has only what was measured while the cores of the machine were equally near, "
    "if the best configuration of each library was; the program's own barrier shows that.",
    "shm: all ranks on one host. tcp: each rank on a host of its own, network namespaces joined "
    "by a bridge; all share this machine's cores. both: half of the ranks on each of two hosts.",
    "hocket alloc: buffers from hocketMemAlloc. MPI's buffers are ordinary memory, or in one of "
    "its configurations MPI_Alloc_mem's, whichever is faster. Gloo is called from C++ through "
    "libtorch's process group, as PyTorch calls it.",
]


def parse_size(text):
    match = re.fullmatch(r"([0-9]+)([KMG]?)(?:iB|B)?", text)
    if not match:
        raise argparse.ArgumentTypeError(f"'{text}' is no size; examples: 8, 4K, 64M")
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]


def some_of(choices):
    def parse(text):
        words = text.split(",")
        for word in words:
            if word not in choices:
                raise argparse.ArgumentTypeError(f"'{word}' is none of {', '.join(choices)}")
        return words

    return parse


def arguments():
    parser = argparse.ArgumentParser(prog="perf/bench peers", allow_abbrev=False)
    parser.add_argument("--quick", action="store_true",
                        help="one round, 2 and 4 ranks, four sizes, one configuration of each "
                             "peer: shows that all of it works")
    parser.add_argument("--rounds", type=int, help="default 5")
    parser.add_argument("--seconds", type=float, help="for a size and configuration, default 0.15")
    parser.add_argument("--offset", type=int, default=0, metavar="FLOATS",
                        help="between the start of a page and each buffer (default 0; malloc "
                             "returns long blocks 4 floats behind the start of a page)")
    parser.add_argument("--limit", type=float, default=60, metavar="S",
                        help="a configuration that needs more for one size is ended (default 60)")
    parser.add_argument("--sizes", type=lambda text: [parse_size(s) for s in text.split(",")],
                        help=f"default {','.join(SIZES)}")
    parser.add_argument("--ranks", type=lambda text: [int(n) for n in text.split(",")],
                        help="default 2,4,8")
    parser.add_argument("--transports", type=some_of(backends.TRANSPORTS),
                        default=["shm", "tcp"])
    parser.add_argument("--collectives", type=some_of(COLLECTIVES), default=COLLECTIVES)
    parser.add_argument("--peers", type=some_of(backends.PEERS), default=backends.PEERS)
    parser.add_argument("--json", type=Path, default=backends.PREFIX / "results.json",
                        help="where the results go (default build/peers/results.json)")
    chosen = parser.parse_args()
    chosen.rounds = chosen.rounds or (1 if chosen.quick else 5)
    chosen.seconds = chosen.seconds or (0.05 if chosen.quick else 0.15)
    chosen.ranks = chosen.ranks or ([2, 4] if chosen.quick else [2, 4, 8])
    sizes = QUICK_SIZES if chosen.quick else SIZES
    chosen.sizes = sorted(set(chosen.sizes or [parse_size(size) for size in sizes]))
    return chosen


def say(text):
    print(text, file=sys.stderr, flush=True)


def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def machine():
    cpu = dict(line.split(":", 1) for line in output_of("lscpu").splitlines() if ":" in line)
    memory = int(re.search(r"MemTotal: *(\d+)", Path("/proc/meminfo").read_text())[1]) / 2**20
    facts = {name: cpu[name].strip() for name in
             ["Model name", "Hypervisor vendor", "L2 cache", "L3 cache"] if name in cpu}
    return {
        "cores": os.cpu_count(),
        **facts,
        "memory": f"{memory:.0f} GiB",
        "kernel": platform.release(),
        "load at the start": f"{os.getloadavg()[0]:.1f}",
    }


class Runner:
    """Starts a configuration and reads the lines that the program prints, one for each size."""

    def __init__(self, options):
        self.options = options

    def run(self, peer, transport, ranks, setting, collective, sizes, check):
        """Ascending results, and why some sizes have none (empty: all have)."""
        # Hosts have a /dev/shm each; the temporary directory they share.
        one_host = transport in backends.ONE_HOST
        shared = "/dev/shm" if one_host and os.access("/dev/shm", os.W_OK) else None
        with tempfile.TemporaryDirectory(prefix="bench.", dir=shared) as directory:
            session = Path(directory, "session")
            session.touch()
            words = ["--collective", collective, "--sizes", ",".join(map(str, sizes)),
                     "--memory", setting.memory, "--seconds", str(self.options.seconds),
                     "--offset", str(self.options.offset), "--session", str(session),
                     *(["--check"] if check else [])]
            job = backends.Job(peer, transport, ranks, setting, tuple(words),
                               os.path.join(directory, "meeting"))
            with open(os.path.join(directory, "stderr"), "w+") as errors:
                lines, why = self.lines_of(job.commands(), job.environment(), errors, directory,
                                           len(sizes))
                if not why and len(lines) < len(sizes):
                    errors.seek(0)
                    said = [line.strip() for line in errors if re.search("[a-z]", line)]
                    why = " / ".join(said[-4:]) or "no result"
        return lines, why

    def lines_of(self, commands, environment, errors, marker, wanted):
        """The JSON lines of commands that start together and end by themselves."""
        selector, running, pending, lines = selectors.DefaultSelector(), [], {}, []
        for command in commands:
            process = subprocess.Popen(command, env={**os.environ, **environment},
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=errors, start_new_session=True)
            running.append(process)
            selector.register(process.stdout, selectors.EVENT_READ)
            pending[process.stdout] = b""
        deadline = time.monotonic() + self.options.limit
        why = ""
        while pending and len(lines) < wanted and not why:
            ready = selector.select(max(0, deadline - time.monotonic()))
            if not ready:
                why = f"more than {self.options.limit:.0f} s for one size"
            for key, _ in ready:
                data = os.read(key.fd, 65536)
                if not data:
                    selector.unregister(key.fileobj)
                    del pending[key.fileobj]
                    continue
                *whole, pending[key.fileobj] = (pending[key.fileobj] + data).split(b"\n")
                found = [json.loads(line) for line in whole if line.startswith(b"{")]
                lines += found
                if found:
                    deadline = time.monotonic() + self.options.limit
        self.end(running, marker, patience=0 if why else 20)
        return lines, why

    @staticmethod
    def end(running, marker, patience):
        """Waits, then kills all processes with marker in their command, on other hosts too."""
        limit = time.monotonic() + patience
        for process in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0, limit - time.monotonic()))
        for number in (signal.SIGTERM, signal.SIGKILL):
            left = [process for process in running if process.poll() is None]
            for process in left:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
            for process in left:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(TERMINATE_S)
        for _ in range(50):
            if not Runner.kill_all_with(marker):
                break
            time.sleep(0.1)
        for process in running:
            process.stdout.close()

    @staticmethod
    def kill_all_with(marker):
        """True if there was a process with marker in its command."""
        found = False
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and marker.encode() in (entry / "cmdline").read_bytes():
                    found = True
                    os.kill(int(entry.name), signal.SIGKILL)
        return found

    def raw_socket(self):
        """Half a round trip between two hosts over one socket that both sides poll."""
        program, at = str(backends.PROGRAMS / "raw-pingpong"), "10.77.1.2:7301"
        listen = [os.environ["HOSTS_RSH"], "h2", program, "--listen", at]
        connect = [program, "--connect", at]
        common = ["--bytes", str(RAW_BYTES)]
        with tempfile.TemporaryFile("w+") as errors:
            lines, why = self.lines_of(
                [listen + common, connect + common + ["--seconds", str(self.options.seconds)]],
                {}, errors, at, 1)
        return lines, why or ("" if lines else "no result")


class Measurement:
    def __init__(self, options, peers):
        self.options, self.peers, self.runner = options, peers, Runner(options)
        self.results, self.failures, self.versions = [], [], {}

    def cases(self):
        for transport in self.options.transports:
            for ranks in self.options.ranks:
                for collective in self.options.collectives:
                    if collective != "latency" or ranks % 2 == 0:  # between the ranks of pairs
                        yield transport, ranks, collective

    def hopeful_sizes(self, case, peer, config, number):
        """In later rounds, those at which the configuration was near its library's best. What was
        measured with far cores does not count: another configuration may be best with near ones."""
        sizes = [0] if case[2] == "barrier" else self.options.sizes
        if number == 1:
            return sizes
        earlier = [r for r in self.results if r["round"] < number and r["peer"] == peer
                   and (r["transport"], r["ranks"], r["collective"]) == case]
        measured = {r["bytes"] for r in earlier if r["config"] == config}
        sizes = [size for size in sizes if size in measured]
        if peer == "hocket":  # its two kinds of memory are two columns
            return sizes
        middle_us = middle_of(self.results)
        own, best = {}, {}  # size: the least time
        for r in earlier:
            if not is_far(r, middle_us):
                for least in [best, own] if r["config"] == config else [best]:
                    least[r["bytes"]] = min(r["p50_us"], least.get(r["bytes"], r["p50_us"]))
        return [size for size in sizes
                if size not in own or own[size] <= HOPELESS * best[size]]

    def record(self, case, peer, config, number, lines, why):
        transport, ranks, collective = case
        named = {"transport": transport, "ranks": ranks, "collective": collective, "peer": peer,
                 "config": config, "round": number}
        for line in lines:
            version = line.pop("version", "")
            if version:
                self.versions[peer] = version
            self.results.append({**named, **line})
        if why:
            self.failures.append({**named, "after_sizes": len(lines), "why": why})
            say(f"# {transport}, {ranks} ranks, {collective}: {peer} {config}: {why}")

    def measure_case(self, case, number):
        transport, ranks, collective = case
        crowded = ranks > os.cpu_count()
        turns = [(peer, config, setting) for peer in self.peers for config, setting in
                 backends.configurations(peer, transport, crowded, self.options.quick).items()
                 if backends.has(peer, transport, config, collective, ranks)]
        start = (number - 1) * 3 % max(len(turns), 1)  # none always follows the same other
        for peer, config, setting in turns[start:] + turns[:start]:
            sizes = self.hopeful_sizes(case, peer, config, number)
            if sizes:
                lines, why = self.runner.run(peer, transport, ranks, setting, collective, sizes,
                                             check=number == 1)
                self.record(case, peer, config, number, lines, why)
        if case == ("tcp", 2, "all_reduce"):
            self.record(case, "raw-socket", "", number, *self.runner.raw_socket())

    def run(self):
        began = datetime.datetime.now(datetime.timezone.utc)
        head = {"date": f"{began:%Y-%m-%d %H:%M} UTC", "machine": machine(),
                "commit": output_of("git", "-C", str(backends.ROOT), "describe", "--always",
                                    "--dirty")}
        for number in range(1, self.options.rounds + 1):
            for case in self.cases():
                since = time.monotonic()
                self.measure_case(case, number)
                say(f"# round {number} of {self.options.rounds}, {case[0]}, {case[1]} ranks, "
                    f"{case[2]}: {time.monotonic() - since:.0f} s")
            took = datetime.datetime.now(datetime.timezone.utc) - began
            self.write({**head, "minutes": round(took.total_seconds() / 60), "rounds": number})

    def write(self, head):
        path = self.options.json
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = {**head, "seconds": self.options.seconds,
                 "offset": self.options.offset, "versions": self.versions,
                 "method": METHOD, "failures": self.failures, "results": self.results}
        temporary = path.with_name(path.name + ".new")
        temporary.write_text(json.dumps(whole, indent=1) + "\n")
        temporary.replace(path)


def main():
    options = arguments()
    if set(options.transports) - set(backends.ONE_HOST) and not os.environ.get("HOSTS_RSH"):
        say("# no rows between hosts: " + os.environ.get("WHY_NO_HOSTS", "not on a namespace host"))
        options.transports = [name for name in options.transports
                              if name in backends.ONE_HOST]
    peers = []
    for peer in options.peers:
        why = backends.missing(peer)
        if why:
            say(f"# {backends.TITLES[peer]} is left out: {why}")
        else:
            peers.append(peer)
    if not peers or not options.transports:
        sys.exit("perf/bench: nothing is left to measure")
    measurement = Measurement(options, peers)
    measurement.run()
    # Known to perf/bench: measured, but some results are wrong.
    sys.exit(3 if any(r["wrong"] for r in measurement.results) else 0)


if __name__ == "__main__":
    main()
