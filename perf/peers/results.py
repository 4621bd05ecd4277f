"""Condenses the results of measure.py to a figure for each case, size and column of the report."""

import json
from statistics import median

import backends

RIVALS = [peer for peer in backends.PEERS if peer not in ("hocket", "floor")]
OURS = [("hocket", "plain"), ("hocket", "alloc")]
# What hocket can reach at best in each kind of memory.
FLOORS = [("floor", "plain"), ("floor", "alloc")]
COLUMNS = {("hocket", "plain"): "hocket", ("hocket", "alloc"): "alloc",
           ("floor", "plain"): "floor", ("floor", "alloc"): "alloc floor",
           **{(peer, None): backends.TITLES[peer] for peer in RIVALS}}
HEADINGS = [*COLUMNS.values(), "best/hocket", "best/alloc"]
PLACES = {"shm": "shared memory, one host", "tcp": "TCP, one host for each rank",
          "local-tcp": "TCP, one host for all ranks",
          "both": "two hosts: shared memory in each, TCP between them"}

# The same in the name of a row, after the number of ranks.
SHORT_PLACES = {"shm": "", "tcp": ", TCP", "local-tcp": ", TCP on one host", "both": ", 2 hosts"}


def size_text(size):
    for shift, unit in (30, "GiB"), (20, "MiB"), (10, "KiB"):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift} {unit}"
    return f"{size} B" if size > 0 else "-"  # a barrier has no size


def time_text(us):
    if us is None:
        return "-"
    return f"{us:.2f}" if us < 10 else f"{us:.1f}" if us < 100 else f"{us:.0f}"


def ratio_text(ratio):
    if ratio is None:
        return "-"
    return f"{ratio:.2f}x" if ratio >= 0.1 else f"{ratio:.2g}x"


def joined(paths):
    """Several runs as one: a sweep may be made in pieces, or again with more rounds."""
    first, *others = [json.loads(path.read_text()) for path in paths]
    for other in others:
        if other.get("offset", 0) != first.get("offset", 0):
            raise ValueError("the files have buffers at different offsets")
        for part in "results", "failures":
            first[part] = first[part] + other[part]
        first["versions"] = {**first["versions"], **other["versions"]}
        first["minutes"] += other["minutes"]
    return first


def middle_of(results):
    """The time of a barrier between those of near and of far cores; None if all cores are equally
    near. The twentieth of the times at each end does not count: a foreign process took a core
    meanwhile."""
    times = [time for result in results for time in result.get("barrier_us", []) if time > 0]
    if not times:
        return None
    times = sorted(times)
    least, most = times[len(times) // 20], times[len(times) - 1 - len(times) // 20]
    return (least * most) ** 0.5 if most > 2 * least else None


def is_far(result, middle_us):
    """Whether the cores were far before or after the measurement; false if that is unknown."""
    return middle_us is not None and max(result.get("barrier_us") or [0]) >= middle_us


def in_one_state(series):
    """The part of a row's measurements that was made with the cores equally near, if it has the
    best configuration of each library; else all. series: {(peer, configuration): [(time,
    nearness)]}; nearness: "near", "far", or "" if it changed meanwhile or is unknown."""
    best = {}
    for key, measured in series.items():
        column = key if key in OURS else key[0]
        if column not in best or min(measured) < min(series[best[column]]):
            best[column] = key
    for state in "near", "far":
        kept = {key: [time for time, nearness in measured if nearness == state]
                for key, measured in series.items()}
        if all(kept[key] for key in best.values()):
            return {key: times for key, times in kept.items() if times}, state
    return {key: [time for time, _ in measured] for key, measured in series.items()}, ""


class Results:
    """Medians over rounds: case (transport, ranks, collective) -> size -> column -> figure.

    The cores of a virtual machine share a cache now, and none a moment later, for which a small
    message takes three times as long, in every library. So a row has only measurements made in one
    of these states, if each library has some (states: case, size -> "near", "far", or "": all)."""

    def __init__(self, *paths):
        self.whole = whole = joined(paths)
        rounds, self.raw_us = {}, []
        self.middle_us = middle_of(whole["results"])
        for r in whole["results"]:
            if r["peer"] == "raw-socket":
                self.raw_us.append(r["p50_us"])
                continue
            key = (r["transport"], r["ranks"], r["collective"]), r["bytes"]
            series = rounds.setdefault(key, {}).setdefault((r["peer"], r["config"]), [])
            series.append((r["p50_us"], self.nearness(r)))
        self.cases, self.states = {}, {}
        for (case, size), measured in rounds.items():
            series, self.states[case, size] = in_one_state(measured)
            self.cases.setdefault(case, {})[size] = self.best(series)
        self.collectives = list(dict.fromkeys(collective for _, _, collective in self.cases))

    def nearness(self, result):
        times = result.get("barrier_us", [])
        if self.middle_us is None or not times or min(times) == 0:
            return ""
        states = {"near" if time < self.middle_us else "far" for time in times}
        return states.pop() if len(states) == 1 else ""

    @staticmethod
    def best(series):
        """{column: (median, configuration, all rounds)}; the best configuration of a peer counts.
        What is possible in ordinary memory is possible in hocketMemAlloc's too."""
        row = {}
        for (peer, config), times in series.items():
            columns = [(peer, config) if (peer, config) in OURS else (peer, None)]
            if peer == "floor":
                columns = FLOORS if backends.is_plain_floor(config) else FLOORS[1:]
            for column in columns:
                figure = (median(times), config, times)
                if column not in row or figure[0] < row[column][0]:
                    row[column] = figure
        return row

    @staticmethod
    def ratio(row, ours):
        """The best peer's time over ours; None where one of them is missing."""
        rivals = [row[peer, None][0] for peer in RIVALS if (peer, None) in row]
        return min(rivals) / row[ours][0] if rivals and ours in row else None

    @staticmethod
    def ratio_to_floor(row, ours, floor):
        """Our time over that of the floor; None where one of them is missing."""
        return row[ours][0] / row[floor][0] if ours in row and floor in row else None

    @staticmethod
    def best_peer(row):
        """The title of the fastest peer."""
        rivals = {peer: row[peer, None][0] for peer in RIVALS if (peer, None) in row}
        return backends.TITLES[min(rivals, key=rivals.get)] if rivals else "-"

    def cells(self, row):
        return ([time_text(row[column][0] if column in row else None) for column in COLUMNS] +
                [ratio_text(self.ratio(row, ours)) for ours in OURS])

    def configurations(self, case):
        """'Open MPI: staged (128 KiB to 8 MiB), default', the best for each size."""
        lines = []
        for column, title in COLUMNS.items():
            used = {}
            for size, row in sorted(self.cases[case].items()):
                if column in row and column not in OURS:
                    used.setdefault(row[column][1], []).append(size_text(size))
            if len(used) > 1:
                lines.append(f"{title}: " + "; ".join(
                    f"{config} ({', '.join(sizes)})" for config, sizes in used.items()))
            elif used:
                lines.append(f"{title}: {next(iter(used))}")
        states = {}
        for size in sorted(self.cases[case]):
            states.setdefault(self.states[case, size], []).append(size_text(size))
        if self.middle_us is not None:
            lines.append("cores: " + "; ".join(f"{state or 'near and far'} ({', '.join(sizes)})"
                                               for state, sizes in states.items()))
        return lines

    def about(self):
        """Lines with the machine, the time and the versions."""
        machine = ", ".join(f"{name} {value}" if name[0].islower() else f"{name}: {value}"
                            for name, value in self.whole["machine"].items())
        versions = "; ".join(" ".join(text.split()) for text in self.whole["versions"].values())
        rounds = max((len(figure[2]) for rows in self.cases.values() for row in rows.values()
                      for figure in row.values()), default=0)
        lines = [f"{self.whole['date']}, commit {self.whole['commit']}, {rounds} rounds in "
                 f"{self.whole['minutes']} minutes", machine, versions]
        if self.whole.get("offset", 0) > 0:
            lines.append(f"buffers begin {self.whole['offset']} floats behind the start of a page")
        if self.raw_us:
            lines.append(f"half a round trip of 8 bytes over one polled TCP socket between two "
                         f"hosts: {median(self.raw_us):.2f} us")
        return lines

    def problems(self):
        for failure in self.whole["failures"]:
            yield (f"{failure['peer']} {failure['config']}, {failure['collective']}, "
                   f"{failure['ranks']} ranks, {failure['transport']}, round {failure['round']}, "
                   f"after {failure['after_sizes']} sizes: {failure['why']}")
        for r in self.whole["results"]:
            if r["wrong"]:
                yield (f"WRONG RESULTS: {r['peer']} {r['config']}, {r['collective']}, "
                       f"{r['bytes']} bytes, {r['ranks']} ranks, {r['transport']}")
