"""The page of a comparison: log-log plots by matplotlib as SVG inside, tables, method, machine."""

import html
import io

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter

import backends
from results import COLUMNS, HEADINGS, PLACES, size_text

# Colours that colour-blind readers can tell apart (Okabe and Ito), and a marker each besides.
STYLES = {
    ("hocket", "plain"): ("#000000", "o", "hocket"),
    ("hocket", "alloc"): ("#000000", "D", "hocket, hocketMemAlloc"),
    ("floor", "plain"): ("#999999", ".", "floor"),
    ("floor", "alloc"): ("#999999", ".", "floor, hocketMemAlloc"),
    ("impi", None): ("#0072b2", "s", None),
    ("openmpi", None): ("#d55e00", "^", None),
    ("mpich", None): ("#009e73", "v", None),
    ("gloo", None): ("#cc79a7", "x", None),
}
CSS = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1180px; margin: 2em auto; padding: 0 1em;
       color: #222; background: #fff }
h1 { font-size: 1.6em } h2 { font-size: 1.2em; margin-top: 2em }
svg { width: 100%; height: auto }
table { border-collapse: collapse; margin: 1em 0; font-variant-numeric: tabular-nums }
caption { text-align: left; font-weight: 600 }
th, td { padding: .15em .7em; text-align: right; border-bottom: 1px solid #ddd }
.slower { background: #fbe3d6 } small { color: #555 }
"""


def figure(results, transport, ranks, columns=None):
    """SVG: a plot of time against size for each collective, so many beside one another (None:
    all)."""
    names = [name for name in results.collectives
             if any(size > 0 for size in results.cases.get((transport, ranks, name), []))]
    columns = min(columns or len(names), len(names))
    lines = -(-len(names) // columns)
    drawing, axes = plt.subplots(lines, columns, figsize=(3.6 * columns + 0.4, 3.3 * lines + 0.6),
                                 squeeze=False, layout="constrained")
    for unused in axes.flat[len(names):]:
        unused.set_axis_off()
    for name, plot in zip(names, axes.flat):
        rows = sorted(results.cases[transport, ranks, name].items())
        for column, (colour, marker, label) in STYLES.items():
            points = [(size, *row[column]) for size, row in rows if column in row]
            if not points:
                continue
            sizes = [point[0] for point in points]
            plot.plot(sizes, [point[1] for point in points], color=colour, marker=marker,
                      markersize=4, linewidth=1.3, label=label or backends.TITLES[column[0]],
                      linestyle="--" if column[1] == "alloc" else "-")
            plot.fill_between(sizes, [min(point[3]) for point in points],
                              [max(point[3]) for point in points], color=colour, alpha=0.12,
                              linewidth=0)
        plot.set(xscale="log", yscale="log", title=name.replace("_", "-"), xlabel="size")
        plot.set_xscale("log", base=2)
        plot.xaxis.set_major_formatter(FuncFormatter(lambda x, _: size_text(round(x))))
        plot.tick_params(axis="x", labelrotation=35)
        plot.minorticks_off()
        plot.grid(which="major", color="#dddddd", linewidth=0.6)
    for line in axes:
        line[0].set_ylabel("microseconds")
    fullest = max(axes.flat, key=lambda plot: len(plot.lines))
    drawing.legend(*fullest.get_legend_handles_labels(), loc="outside lower center", ncols=6,
                   frameon=False)
    text = io.StringIO()
    # Without a value of these, the file has no metadata at all.
    without = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    drawing.savefig(text, format="svg", metadata=without)
    plt.close(drawing)
    svg = text.getvalue()
    return " ".join(svg[svg.index("<svg"):].split()) + "\n"


def table(results, case):
    transport, ranks, collective = case
    lines = [f"<table><caption>{collective.replace('_', '-')}, {ranks} ranks, {transport}; "
             "microseconds</caption><tr><th>size</th>",
             *(f"<th>{heading}</th>" for heading in HEADINGS), "</tr>"]
    for size, row in sorted(results.cases[case].items()):
        ratios = [None] * len(COLUMNS) + [results.ratio(row, ours) for ours in list(COLUMNS)[:2]]
        lines.append(f"<tr><td>{size_text(size)}</td>")
        for cell, ratio in zip(results.cells(row), ratios):
            slower = ' class="slower"' if ratio is not None and ratio < 1 else ""
            lines.append(f"<td{slower}>{cell}</td>")
        lines.append("</tr>")
    lines.append("</table><p><small>Configurations that counted. ")
    lines.append(html.escape(". ".join(results.configurations(case))) + ".</small></p>")
    return "".join(lines)


STYLE = {"svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9,
         "svg.hashsalt": "hocket"}


def write_plots(results, folder):
    """Writes a file TRANSPORT-RANKS.svg for each number of ranks and kind of link."""
    plt.rcParams.update({**STYLE, "savefig.facecolor": "white"})
    folder.mkdir(parents=True, exist_ok=True)
    for transport, ranks in dict.fromkeys(case[:2] for case in results.cases):
        (folder / f"{transport}-{ranks}.svg").write_text(figure(results, transport, ranks, 4))


def page(results):
    plt.rcParams.update(STYLE)
    parts = ["<!doctype html><html lang=en><meta charset=utf-8>",
             "<meta name=viewport content='width=device-width'>",
             f"<title>hocket and its peers</title><style>{CSS}</style>",
             "<h1>hocket and its peers</h1>",
             *(f"<p>{html.escape(line)}</p>" for line in results.about()),
             "<p>Time against size, both on logarithmic scales; lower is better. Bands reach from "
             "the least to the greatest of the rounds.</p>"]
    for transport, ranks in dict.fromkeys(case[:2] for case in results.cases):
        parts.append(f"<h2>{ranks} ranks, {PLACES[transport]}</h2>")
        parts.append(figure(results, transport, ranks))
        tables = [table(results, case) for case in results.cases if case[:2] == (transport, ranks)]
        parts.append("<details><summary>Tables</summary>" + "".join(tables) + "</details>")
    parts.append("<h2>Method</h2><ul>")
    parts += [f"<li>{html.escape(line)}</li>" for line in results.whole["method"]]
    parts.append("</ul>")
    problems = list(results.problems())
    if problems:
        parts.append("<h2>Runs that gave no result</h2><ul>")
        parts += [f"<li>{html.escape(line)}</li>" for line in problems]
        parts.append("</ul>")
    return "\n".join(parts) + "\n</html>\n"
