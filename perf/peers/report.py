"""Prints the results of measure.py: text tables, one table in Markdown
(--markdown), a page with plots (--html)."""

import argparse
import sys
from pathlib import Path

from results import HEADINGS, OURS, PLACES, Results, size_text


def print_text(results):
    for case, rows in results.cases.items():
        transport, ranks, collective = case
        print(f"{collective}, {ranks} ranks, {PLACES[transport]}; microseconds")
        print(f"{'size':>8} " + " ".join(f"{heading:>11}" for heading in HEADINGS))
        for size, row in sorted(rows.items()):
            print(f"{size_text(size):>8} " + " ".join(f"{c:>11}" for c in results.cells(row)))
        for line in results.configurations(case):
            print("  " + line)
        print()
    for line in results.about():
        print(line)


def print_markdown(results, slowest_first):
    """A row for each case and size; with slowest_first, beginning with hocket's worst rows."""
    print("| | " + " | ".join(HEADINGS) + " | best peer |\n|" + "---|" * (len(HEADINGS) + 2))
    lines = []
    for (transport, ranks, collective), rows in results.cases.items():
        where = f"{ranks} ranks" + {"shm": "", "tcp": ", TCP", "both": " of 2 hosts"}[transport]
        for size, row in rows.items():
            name = collective.replace("_", "-") + (f", {size_text(size)}" if size > 0 else "")
            cells = [f"{name}, {where}", *results.cells(row), results.best_peer(row)]
            best = max((results.ratio(row, ours) or 0) for ours in OURS)
            lines.append((best, "| " + " | ".join(cells) + " |"))
    if slowest_first:
        lines.sort(key=lambda line: line[0])
    for _, line in lines:
        print(line)


def main():
    parser = argparse.ArgumentParser(prog="perf/bench report")
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--slowest-first", action="store_true")
    parser.add_argument("--html", type=Path)
    options = parser.parse_args()
    try:
        results = Results(*options.results)
    except (OSError, ValueError, KeyError, TypeError) as problem:
        names = ", ".join(map(str, options.results))
        sys.exit(f"perf/bench: {names} is not what perf/bench peers writes: {problem!r}")
    if options.markdown:
        print_markdown(results, options.slowest_first)
    else:
        print_text(results)
    for line in results.problems():
        print("# " + line, file=sys.stderr)
    if options.html:
        import page  # needs matplotlib, which the tables do not

        options.html.write_text(page.page(results))


if __name__ == "__main__":
    main()
