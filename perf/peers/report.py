"""Prints the results of measure.py: text tables, one table in Markdown
(--markdown), a page with plots (--html)."""

import argparse
import sys
from pathlib import Path

from results import HEADINGS, PLACES, Results, size_text


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


def print_markdown(results):
    print("| | " + " | ".join(HEADINGS) + " |\n|" + "---|" * (len(HEADINGS) + 1))
    for (transport, ranks, collective), rows in results.cases.items():
        where = f"{ranks} ranks" + {"shm": "", "tcp": ", TCP", "both": " of 2 hosts"}[transport]
        for size, row in rows.items():
            name = f"{collective.replace('_', '-')}, {size_text(size)}"
            print(f"| {name}, {where} | " + " | ".join(results.cells(row)) + " |")


def main():
    parser = argparse.ArgumentParser(prog="perf/bench report")
    parser.add_argument("results", type=Path)
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--html", type=Path)
    options = parser.parse_args()
    try:
        results = Results(options.results)
    except (OSError, ValueError, KeyError, TypeError) as problem:
        sys.exit(f"perf/bench: {options.results} is not what perf/bench peers writes: {problem!r}")
    (print_markdown if options.markdown else print_text)(results)
    for line in results.problems():
        print("# " + line, file=sys.stderr)
    if options.html:
        import page  # needs matplotlib, which the tables do not

        options.html.write_text(page.page(results))


if __name__ == "__main__":
    main()
