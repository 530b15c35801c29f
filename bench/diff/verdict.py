"""What `diff` said of a run, held against what was done to it."""

import json
import subprocess
from dataclasses import dataclass

import torch

import names

# A bug that changes no value by more than this share of the tensor's largest is what rounding does, too: 8 u.
HIDDEN = 2.0**-21


@dataclass
class Outcome:
    """Of a planted bug: named right (node and relation), named as unusual (the same, and not proven), right node only, late (a later node), unusual (listed as such, and
    not proven), hidden (no larger than rounding, and nothing said), missed, wrong place. Of a run without one: right,
    missed (another input that was not noticed), false alarm. Of both: failed."""

    what: str
    said: str
    seconds: float = 0.0


def diff(binary, ours, theirs, *arguments):
    """Exit code, the report, what it says on standard error."""
    command = [binary, "diff", ours, theirs, "--format", "json", "-q", *arguments]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    report = json.loads(done.stdout) if done.stdout.strip() else None
    return done.returncode, report, done.stderr.strip()


def first_changed(right, planted):
    """The first module, in the order of calls, whose output is not bit for bit that of the run without the bug, and how
    far it is off, in terms of its largest value."""
    for name, value in planted.items():
        expected = right.get(name)
        if expected is None or expected.shape != value.shape:
            return name, float("inf")
        if not torch.equal(expected, value):
            difference = (expected - value).abs().nan_to_num(float("inf")).max()
            return name, float(difference / expected.abs().max())
    return None, 0.0


def said(report):
    first = report.get("first_divergence")
    if report.get("inputs") == "different":
        return "not the same input"
    if not first:
        return "nothing"
    words = [first["node"], first["kind"], first.get("relation") or "no relation"]
    if first.get("cause"):
        words.append(f"cause {first['cause']}")
    return ", ".join(words)


# Names of one value: a layer's end is its last sum, or that sum's norm.
LAYER_ENDS = ("ffn.residual", "ffn.norm", "out")


def same_node(scheme, truth, node):
    """Whether a reported node (a path of the graph, or a name of the dump) is the value of the module `truth`."""
    expected = names.node_of(scheme, truth)
    if expected is None:
        return node == truth
    node = names.node_of(scheme, node) or node
    stack, layer, part = (expected.split(".", 2) + ["", ""])[:3]
    if part == "out":
        return node in [f"{stack}.{layer}.{end}" for end in LAYER_ENDS]
    return node == expected


def of_planted(scheme, bug, truth, code, report):
    """Named right, node only, late, missed, or another place."""
    first = report.get("first_divergence")
    if report.get("inputs") == "different" and truth.endswith(("embed_tokens", "token_embedding")):
        # Another row of the table: without the ids nobody can tell whose mistake it is.
        return Outcome("right node only", said(report))
    if "precision" in bug.relations and report.get("precision"):
        # The values of some tensors fit in half precision, which is said and explains the difference.
        return Outcome("named right", f"computed in {report['precision'][0]['computed_in']}")
    if not first or code == 0 or first["kind"] != "bug":
        unusual = [u for u in report.get("unusual") or [] if same_node(scheme, truth, u["node"])]
        like = [u["like"]["relation"] for u in unusual if u.get("like")]
        if not set(bug.relations).isdisjoint(like):
            return Outcome("named as unusual", f"{unusual[0]['node']}, {', '.join(like)}")
        # A difference that is new at the node and passes the tolerance only later is told there, as not proven.
        begins = first and first["jumps"] and same_node(scheme, truth, first["node"])
        return Outcome("unusual" if unusual or begins else "missed", said(report))
    if same_node(scheme, truth, first["node"]):
        also = [other["relation"] for other in first.get("also") or []]
        right = not set(bug.relations).isdisjoint([first.get("relation"), *also])
        return Outcome("named right" if right else "right node only", said(report))
    order = [names.node_of(scheme, n["node"]) or n["node"] for n in report["nodes"]]
    expected = names.node_of(scheme, truth) or truth
    if first.get("cause") == expected and first.get("relation") in bug.relations:
        # A step that was not compared is named as what happened on the way.
        return Outcome("named right", said(report))
    found = names.node_of(scheme, first["node"]) or first["node"]
    if expected in order and found in order:
        late = order.index(found) - order.index(expected)
        if late > 0:
            return Outcome("late", f"{said(report)} ({late} nodes late)")
    return Outcome("wrong place", f"{said(report)}; truth {expected}")


def of_bug_free(code, report):
    first = report.get("first_divergence")
    if code == 0 and not (first and first["kind"] == "bug"):
        return Outcome("right", said(report))
    return Outcome("false alarm", said(report))


def of_other_input(code, report):
    """The report must say that the inputs differ, and accuse nothing."""
    first = report.get("first_divergence")
    kind = first["kind"] if first else None
    if kind == "other_input" or report.get("inputs") == "different":
        return Outcome("right", said(report))
    return Outcome("false alarm" if kind == "bug" else "missed", said(report))
