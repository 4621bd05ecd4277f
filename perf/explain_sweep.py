"""Runs hocket-perf --explain over collectives, ranks and media, and prints one verdict of all
points (perf/bench explain --help). A file keeps the points: a later run replaces those that it
measures again, so that a sweep can be made in pieces. Standard library only."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("BUILD_DIR", ROOT / "build")).resolve()
COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather",
               "scatter", "alltoall"]
# What makes the ranks reach one another so, and the memory of their buffers.
MEDIA = {
    "shm": ({"HOCKET_TRANSPORT": "shm"}, "plain"),
    "mapped": ({"HOCKET_TRANSPORT": "shm"}, "alloc"),
    "tcp": ({"HOCKET_TRANSPORT": "tcp"}, "plain"),
    "nodes": ({}, "plain"),
}
NEAR_BEST = 1.1
WANTED_SHARE, WANTED_ERROR = 90, 25


def words_of(choices, kind=str):
    def parse(text):
        words = [kind(word) for word in text.split(",")]
        for word in words:
            if word not in choices:
                known = ", ".join(map(str, choices))
                raise argparse.ArgumentTypeError(f"'{word}' is none of {known}")
        return words

    return parse


def arguments():
    parser = argparse.ArgumentParser(prog="perf/bench explain", allow_abbrev=False)
    parser.add_argument("--media", type=words_of(MEDIA), default=list(MEDIA))
    parser.add_argument("--ranks", type=words_of([2, 4, 8], int), default=[2, 4, 8])
    parser.add_argument("--collectives", type=words_of(COLLECTIVES), default=COLLECTIVES)
    parser.add_argument("--least", default="8", help="bytes; default 8")
    parser.add_argument("--most", default="32M", help="bytes; default 32M")
    parser.add_argument("--factor", type=int, default=4, help="from size to size; default 4")
    parser.add_argument("--turns", type=int, default=20, help="at most; default 20")
    parser.add_argument("--seconds", type=float, default=0.3, help="for a point; default 0.3")
    parser.add_argument("--json", type=Path, default=BUILD / "explain.json",
                        help="where the points are kept (default build/explain.json)")
    parser.add_argument("--report", action="store_true", help="measure nothing")
    return parser.parse_args()


def cases(options):
    """(medium, ranks, collective); nodes have two ranks each, so there are two nodes or four."""
    for medium in options.media:
        for ranks in options.ranks:
            if medium == "nodes" and ranks == 2:
                continue
            for collective in options.collectives:
                yield medium, ranks, collective


def measure(options, medium, ranks, collective):
    """The lines of a case; none, if it failed, which is said."""
    added, memory = MEDIA[medium]
    if medium == "nodes":
        added = {"HOCKET_NODES": ",".join(["2"] * (ranks // 2))}
    with tempfile.TemporaryDirectory(prefix="explain.") as directory:
        path = Path(directory, "lines.json")
        ran = subprocess.run(
            [BUILD / "bin/hocket-run", "-n", str(ranks), BUILD / "bin/hocket-perf", collective,
             "--explain", "-b", options.least, "-e", options.most, "-f", str(options.factor),
             "-n", str(options.turns), "--seconds", str(options.seconds), "--memory", memory,
             "--json", path],
            env={**os.environ, **added}, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if ran.returncode != 0:
            print(f"{medium}, {ranks} ranks, {collective}: {ran.stderr.strip()}", file=sys.stderr)
            return []
        lines = json.loads(path.read_text())
    return [{"medium": medium, **line} for line in lines]


def key_of(line):
    return line["medium"], line["ranks"], line["collective"], line["bytes"]


def points_of(lines):
    points = {}
    for line in lines:
        # A rank's block of no element is no operation to choose an algorithm for.
        if line["count"] > 0:
            points.setdefault(key_of(line), []).append(line)
    return points


def verdict(points):
    """(points, those whose choice is near the best, median error, errors of the chosen ones)."""
    chosen = [next(line for line in lines if line["chosen"]) for lines in points.values()]
    near = sum(line["ratio"] <= NEAR_BEST for line in chosen)
    errors = [abs(line["error_percent"]) for lines in points.values() for line in lines]
    return len(points), near, median(errors), median(abs(line["error_percent"]) for line in chosen)


def report(lines):
    points = points_of(lines)
    if not points:
        sys.exit("perf/bench: no points were measured")
    print(f"{'medium':<8} {'ranks':>5}  {'collective':<15} {'points':>6} {'near best':>9} "
          f"{'median error':>12} {'of the chosen':>13}")

    def row(title, some):
        count, near, error, of_chosen = verdict(some)
        print(f"{title} {count:>6} {100 * near / count:>7.0f} % {error:>10.0f} % "
              f"{of_chosen:>11.0f} %")

    for case in dict.fromkeys(key[:3] for key in points):
        medium, ranks, collective = case
        row(f"{medium:<8} {ranks:>5}  {collective:<15}",
            {key: value for key, value in points.items() if key[:3] == case})
    for case in dict.fromkeys(key[:2] for key in points):
        row(f"{case[0]:<8} {case[1]:>5}  {'all':<15}",
            {key: value for key, value in points.items() if key[:2] == case})
    row(f"{'all':<31}", points)
    most = max((line for some in points.values() for line in some),
               key=lambda line: abs(line["error_percent"]))
    print(f"largest error: {most['error_percent']:+.0f} %: {most['collective']} by "
          f"{most['algorithm']}, {most['bytes']} bytes, {most['ranks']} ranks, {most['medium']}")
    count, near, error, _ = verdict(points)
    good = 100 * near / count >= WANTED_SHARE and error <= WANTED_ERROR
    print(f"{'good' if good else 'NOT GOOD'}: the chosen algorithm is within 10 % of the fastest "
          f"at {100 * near / count:.0f} % of {count} points (wanted: {WANTED_SHARE} %); median "
          f"error of predictions {error:.0f} % (wanted: at most {WANTED_ERROR} %)")
    return good


def main():
    options = arguments()
    lines = json.loads(options.json.read_text()) if options.json.exists() else []
    for case in [] if options.report else cases(options):
        found = measure(options, *case)
        again = {key_of(line) for line in found}
        lines = [line for line in lines if key_of(line) not in again] + found
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(lines, indent=1) + "\n")
    sys.exit(0 if report(lines) else 1)


if __name__ == "__main__":
    main()
