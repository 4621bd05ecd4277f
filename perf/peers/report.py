"""Prints the results of measure.py: text tables, one table in Markdown (--markdown), one of
ratios (--matrix), a page with plots (--html), the plots alone as files of a folder (--plots)."""

import argparse
import sys
from pathlib import Path
from statistics import geometric_mean

from results import FLOORS, HEADINGS, OURS, PLACES, SHORT_PLACES, Results, size_text


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
        where = f"{ranks} ranks" + SHORT_PLACES[transport]
        for size, row in rows.items():
            name = collective.replace("_", "-") + (f", {size_text(size)}" if size > 0 else "")
            cells = [f"{name}, {where}", *results.cells(row), results.best_peer(row)]
            best = max((results.ratio(row, ours) or 0) for ours in OURS)
            lines.append((best, "| " + " | ".join(cells) + " |"))
    if slowest_first:
        lines.sort(key=lambda line: line[0])
    for _, line in lines:
        print(line)


def print_matrix(results):
    """A row for each case, a column for each size; the rows in which hocket is slowest come first.
    A cell: the best peer's time over hocket's, in ordinary memory and from hocketMemAlloc; then,
    after a semicolon, hocket's time over that of the floor, if it was measured."""
    sizes = sorted({size for rows in results.cases.values() for size in rows if size > 0})
    print("| | " + " | ".join(map(size_text, sizes)) + " |\n|" + "---|" * (len(sizes) + 1))
    lines = []
    for (transport, ranks, collective), rows in results.cases.items():
        cells, ratios = [], []
        for size in sizes if 0 not in rows else [0]:
            row = rows.get(size, {})
            both = [results.ratio(row, ours) for ours in OURS]
            ratios += [ratio for ratio in both if ratio]
            texts = " ".join("-" if ratio is None else f"{ratio:.2f}" for ratio in both)
            of_floor = [results.ratio_to_floor(row, *pair) for pair in zip(OURS, FLOORS)]
            floor = "; " + " ".join(f"{ratio:.2f}" for ratio in of_floor) if all(of_floor) else ""
            cells.append(f"{texts} {results.best_peer(row)}{floor}")
        name = f"{collective.replace('_', '-')}, {ranks} ranks{SHORT_PLACES[transport]}"
        cells += [""] * (len(sizes) - len(cells))
        lines.append((geometric_mean(ratios) if ratios else 0,
                      f"| {name} | " + " | ".join(cells) + " |"))
    for _, line in sorted(lines):
        print(line)


def main():
    parser = argparse.ArgumentParser(prog="perf/bench report")
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--slowest-first", action="store_true")
    parser.add_argument("--matrix", action="store_true")
    parser.add_argument("--html", type=Path)
    parser.add_argument("--plots", type=Path)
    options = parser.parse_args()
    try:
        results = Results(*options.results)
    except (OSError, ValueError, KeyError, TypeError) as problem:
        names = ", ".join(map(str, options.results))
        sys.exit(f"perf/bench: {names} is not what perf/bench peers writes: {problem!r}")
    if options.matrix:
        print_matrix(results)
    elif options.markdown:
        print_markdown(results, options.slowest_first)
    else:
        print_text(results)
    for line in results.problems():
        print("# " + line, file=sys.stderr)
    if options.html or options.plots:
        import page  # needs matplotlib, which the tables do not
    if options.html:
        options.html.write_text(page.page(results))
    if options.plots:
        page.write_plots(results, options.plots)


if __name__ == "__main__":
    main()
