#!/usr/bin/env python3
"""usage: headers.py CC CXX

Every header compiles by itself. The C headers, and the program in the first comment of hocket.h,
compile as C99 and as C++20 without a warning.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
C_HEADERS = [f"include/hocket/{name}.h"
             for name in ("hocket", "communicators", "collectives", "operators")]
STRICT = ["-fsyntax-only", "-pedantic", "-Wall", "-Wextra", "-Werror"]
OPTIONS = ["-std=c++20", "-Wall", "-Wextra", "-Werror", "-Iinclude", "-Isrc", "-Itests",
           '-DSOURCE_ROOT=""']
FOLDERS = ("include", "src", "tools", "perf", "tests")
INCLUDE = re.compile(r'^#include ([<"])([^>"]+)[>"]', re.MULTILINE)
# Those of C, which headers of this repository must include themselves.
NOT_PRECOMPILED = {"cerrno", "cinttypes", "climits", "csignal", "cstdarg", "cstdio", "cstdlib",
                   "cstring", "ctime"}


def compiles(command, text):
    """text: the source that the compiler reads."""
    return subprocess.run([*command, "-"], input=text, text=True, check=False).returncode == 0


def includes_of(path):
    return [name for _, name in INCLUDE.findall(path.read_text())]


def first_program(header):
    """The program in the first comment of hocket.h."""
    lines = header.read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(" *   #include"))
    end = next(i for i in range(first, len(lines)) if lines[i].startswith(" *   cc "))
    return "".join(line[5:] + "\n" for line in lines[first:end])


def needs_libtorch(header):
    """Only programs that have libtorch compile such a header."""
    if "/training/torch/" in header or header.startswith("perf/training/"):
        return True
    of_model = header.startswith("tools/hocket-train-gpt/")
    return any(re.match(r"(torch|ATen|c10|hocket/training/torch|training/torch)/", name) or
               (of_model and re.match(r"model.*\.h$", name)) for name in includes_of(ROOT / header))


def is_first_of_its_source(header):
    """The Release tree compiles that source alone, so the header needs no further test. The
    source's precompiled header hides no more than the standard headers here do, and fmt:
    includes_test.cc finds headers that miss one of those."""
    source = ROOT / (header.removesuffix(".h") + ".cc")
    if not re.match(r"(src|perf|tools/hocket-(run|topo))/", header) or not source.is_file():
        return False
    found = INCLUDE.search(source.read_text())
    return found is not None and found[1] == '"' and Path(found[2]).name == Path(header).name


def closures(headers):
    """For each header those that it includes, itself or by others."""
    known = set(headers)
    direct = {}
    for header in headers:
        direct[header] = set()
        for name in includes_of(ROOT / header):
            near = (os.path.normpath(f"{folder}/{name}")
                    for folder in (os.path.dirname(header), "include", "src", "tests"))
            direct[header].update([path for path in near if path in known][:1])
    closed = {}
    for header in headers:
        seen, left = set(), [header]
        while left:
            more = direct[left.pop()] - seen
            seen |= more
            left.extend(more)
        closed[header] = seen
    return closed


def chains(headers, closed):
    """Lists of headers, each of which the next includes: what stands before such a header in a
    source is included by itself, so one source tests all of a list."""
    lists = []
    for header in sorted(headers, key=lambda name: (len(closed[name]), name)):
        before = [chain for chain in lists
                  if chain[-1] in closed[header] and header not in closed[chain[-1]]]
        if before:
            max(before, key=lambda chain: len(closed[chain[-1]])).append(header)
        else:
            lists.append([header])
    return lists


def test_alone(headers, closed, command):
    good = True
    for chain in chains(headers, closed):
        good &= compiles(command, "".join(f'#include "{ROOT / header}"\n' for header in chain))
    return good


def main():
    cc, cxx = sys.argv[1:]
    os.chdir(ROOT)
    good = compiles([cc, "-std=c99", *STRICT, "-Iinclude", "-x", "c"],
                    first_program(ROOT / "include/hocket/hocket.h"))
    for header in C_HEADERS:
        for command in ([cc, "-std=c99", "-x", "c"], [cxx, "-std=c++20", "-x", "c++"]):
            good &= subprocess.run([*command, *STRICT, header], check=False).returncode == 0

    headers = sorted(str(path) for folder in FOLDERS for path in Path(folder).rglob("*.h*")
                     if path.suffix in (".h", ".hpp"))
    headers = [header for header in headers if not needs_libtorch(header)]
    closed = closures(headers)
    headers = [header for header in headers
               if header not in C_HEADERS and not is_first_of_its_source(header)]
    # No header comes before those in include/, for which their users may have no other.
    public = [header for header in headers if header.startswith("include/")]
    good &= test_alone(public, closed, [cxx, *OPTIONS, "-fsyntax-only", "-x", "c++"])

    # For all others the standard headers of C++ are compiled once: includes_test.cc finds those
    # that such a header does not include.
    others = [header for header in headers if header not in public]
    standard = {name for header in others for name in includes_of(Path(header))
                if re.fullmatch(r"[a-z_]+", name)} - NOT_PRECOMPILED
    with tempfile.TemporaryDirectory() as folder:
        first = Path(folder) / "standard.h"
        first.write_text("".join(f"#if __has_include(<{name}>)\n#include <{name}>\n#endif\n"
                                 for name in sorted(standard)))
        subprocess.run([cxx, *OPTIONS, "-x", "c++-header", first, "-o", f"{first}.gch"], check=True)
        good &= test_alone(others, closed,
                           [cxx, *OPTIONS, "-fsyntax-only", "-include", first, "-x", "c++"])
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
