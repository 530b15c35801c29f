"""Counts of outcomes as Markdown."""

from collections import Counter, defaultdict

PLANTED = ["named right", "named as unusual", "right node only", "late", "unusual", "hidden", "missed", "wrong place", "failed"]
CLEAN = ["right", "missed", "false alarm", "failed"]


def counted(title, rows, columns):
    """A line for each kind, a column for each outcome; zeros are left blank."""
    counts = defaultdict(Counter)
    for _model, kind, _site, outcome in rows:
        counts[kind][outcome.what] += 1
    cell = lambda n: str(n) if n else ""
    lines = [f"| {title} | {' | '.join(columns)} |", "|---|" + "--:|" * len(columns)]
    lines += [f"| {kind} | {' | '.join(cell(count[c]) for c in columns)} |" for kind, count in counts.items()]
    total = sum(counts.values(), Counter())
    return lines + [f"| **all {sum(total.values())}** | {' | '.join(str(total[c]) for c in columns)} |", ""]


def markdown(rows, seconds):
    clean = [row for row in rows if row[2] in ("bug-free", "other input")]
    planted = [row for row in rows if row not in clean and "two dumps" not in row[2]]
    dumps = [row for row in rows if "two dumps" in row[2]]
    lines = []
    if clean:
        lines += counted("no bug", [r for r in clean if r[2] == "bug-free"], CLEAN)
        lines += counted("another input", [r for r in clean if r[2] == "other input"], CLEAN)
    if planted:
        lines += counted("planted bug", planted, PLANTED)
        lines += counted("by model", [(k, m, s, o) for m, k, s, o in planted], PLANTED)
    if dumps:
        lines += counted("two dumps, no model", dumps, PLANTED)
    worst = [r for r in rows if r[3].what not in ("named right", "right")]
    if worst:
        lines += ["| model | case | site | outcome | said |", "|---|---|---|---|---|"]
        lines += [f"| {m} | {k} | {s} | {o.what} | {o.said} |" for m, k, s, o in worst] + [""]
    slowest = max((r[3].seconds for r in rows), default=0)
    lines.append(f"{len(rows)} runs in {seconds / 60:.0f} minutes; the slowest diff took {slowest:.1f} s.")
    return "\n".join(lines) + "\n"
