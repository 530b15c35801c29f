"""Plants every mistake of faults.py into a model, and notes what `attnscope doctor` says.

    python misconversions.py plant ATTNSCOPE MODEL_FOLDER PAIRS.tsv RESULTS.jsonl [PLACES]
    python misconversions.py healthy ATTNSCOPE SHARED MODEL_FOLDER RESULTS.jsonl
    python misconversions.py table RESULTS.jsonl...

`plant` needs pairs of the model's own kind; PLACES, a regular expression, chooses where a mistake is made (everywhere it
applies, if there is none). `healthy` looks for false accusations: the whole model on right and ill-fitting pairs of pairs.py,
and with noise on weights, which is no mistake of a converter.
"""

import json
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

import pairs as pairs_of
from faults import Checkpoint, Fault, faults

RULES = "misconverted-weight,wiring-mismatch"


def doctor(attnscope, folder, pairs):
    command = [attnscope, "doctor", str(folder), "--pairs", str(pairs), "--rules", RULES, "--format", "json", "--quiet",
               "--fail-on", "never", "--threads", "1", "--repair-time", "600"]
    start = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    if not done.stdout:
        return {"error": done.stderr.strip()}, time.monotonic() - start
    return json.loads(done.stdout), time.monotonic() - start


def says(repair, fault: Fault):
    """Whether a repair is the right one: its kind, its weights and no others, its factor within 3 %."""
    allowed = set(fault.weights) | set(fault.equivalent)
    weights = set(repair["weights"])
    if fault.name == "a layer missing":
        return repair["kind"] in fault.kinds and all(w.startswith(fault.weights[0] + ".") for w in weights)
    factor = repair.get("factor")
    right = fault.factor is None or (factor is not None and abs(factor / fault.factor - 1) < 0.03)
    return repair["kind"] in fault.kinds and bool(weights) and weights <= allowed and right


def verdict(report, fault: Fault):
    if "error" in report:
        return "error", report["error"]
    findings = [f for f in report["findings"] if f["severity"] != "info"]
    evidence = "; ".join(f["evidence"] for f in report["findings"])
    if any(f["rule"] == "wiring-mismatch" for f in findings):
        return "wrong", evidence
    repairs = [f for f in report["findings"] if f["rule"] == "misconverted-weight"]
    if fault.is_invisible:
        return ("wrong" if repairs else "invisible"), evidence
    if fault.notes.get("no_effect"):
        return ("no effect" if any(says(f["repair"], fault) for f in repairs) and not findings else "wrong"), evidence
    for f in repairs:
        if says(f["repair"], fault):
            return "named", evidence
        if any(says(other, fault) for other in f.get("as_good", [])):
            return "in a set", evidence
    return ("wrong" if repairs else "not found"), evidence


def note(results, row):
    with open(results, "a") as out:
        out.write(json.dumps(row) + "\n")
    print(row["model"], row["fault"], row["place"], row["verdict"], f"{row['seconds']:.1f} s", row["evidence"][:160], flush=True)


def plant(attnscope, model, pairs, results, places=""):
    for fault in faults(Checkpoint(model)):
        if not re.search(places, fault.place):
            continue
        broken = Checkpoint(model)
        fault.plant(broken)
        with tempfile.TemporaryDirectory() as folder:
            report, seconds = doctor(attnscope, broken.save(Path(folder, Path(model).name)), pairs)
        what, evidence = verdict(report, fault)
        said = next((m["words"] for m in report.get("measures", []) if m["name"] == "repair_gain"), None)
        note(results, {"model": Path(model).name, "fault": fault.name, "place": fault.place, "verdict": what,
                       "nll": (report.get("wiring") or {}).get("nll"), "evidence": evidence, "said": said, "seconds": seconds})


def noisy(c: Checkpoint):
    """Noise on one matrix or one layer, as large as the weights times a number."""
    for stack, count in c.layers.items():
        for n in range(count):
            for strength in (0.3, 0.6, 1.0, 2.0):
                yield f"{stack}.{n}", strength
    for at in c.attentions():
        for name in ("q", "k", "v", "out"):
            yield f"{at}.{name}", 1.5


def healthy(attnscope, shared, model, results):
    name = Path(model).name
    with tempfile.TemporaryDirectory() as folder:
        for number, (kind, make) in enumerate(pairs_of.KINDS.items()):
            rows = make(pairs_of.Sample(Path(shared), pairs_of.SETS[number % len(pairs_of.SETS)], 40, number))
            path = Path(folder, "pairs.tsv")
            path.write_text("".join(f"{source}\t{target}\n" for source, target in rows))
            report, seconds = doctor(attnscope, model, path)
            note_accusations(results, name, "healthy", kind, report, seconds)
        rows = pairs_of.KINDS["right"](pairs_of.Sample(Path(shared), "test_2016_flickr", 60, 1))
        right = Path(folder, "right.tsv")
        right.write_text("".join(f"{source}\t{target}\n" for source, target in rows))
        noise(attnscope, model, right, results)


def noise(attnscope, model, pairs, results):
    name = Path(model).name
    rng = np.random.default_rng(1)
    for place, strength in noisy(Checkpoint(model)):
        broken = Checkpoint(model)
        for path in broken.under(place):
            if path.endswith(".weight") and broken[path].ndim == 2:
                values = broken[path]
                broken[path] = values + strength * values.std() * rng.standard_normal(values.shape).astype(np.float32)
        with tempfile.TemporaryDirectory() as folder:
            report, seconds = doctor(attnscope, broken.save(Path(folder, name)), pairs)
        note_accusations(results, name, "noise", f"{place} × {strength:g}", report, seconds)


def note_accusations(results, model, fault, place, report, seconds):
    evidence = report.get("error") or "; ".join(f"{f['rule']}: {f['evidence']}" for f in report["findings"])
    accused = [f for f in report.get("findings", []) if f["rule"] == "misconverted-weight"]
    what = "error" if "error" in report else "accused" if accused else "silent"
    note(results, {"model": model, "fault": fault, "place": place, "verdict": what, "evidence": evidence, "seconds": seconds})


def table(*files):
    rows = [json.loads(line) for file in files for line in Path(file).read_text().splitlines()]
    models = list(dict.fromkeys(row["model"] for row in rows))
    counts = defaultdict(lambda: defaultdict(int))
    for row in rows:
        counts[row["fault"], row["model"]][row["verdict"]] += 1
    print("| fault | " + " | ".join(models) + " |\n|---|" + "---|" * len(models))
    for fault in dict.fromkeys(row["fault"] for row in rows):
        cells = []
        for model in models:
            seen = counts[fault, model]
            total = sum(seen.values())
            cells.append(", ".join(f"{what} {n} of {total}" for what, n in sorted(seen.items())) or "not applicable")
        print(f"| {fault} | " + " | ".join(cells) + " |")
    for model in models:
        times = sorted(row["seconds"] for row in rows if row["model"] == model)
        print(f"\n{model}: {len(times)} runs, median {times[len(times) // 2]:.1f} s, most {times[-1]:.1f} s")


if __name__ == "__main__":
    {"plant": plant, "healthy": healthy, "table": table}[sys.argv[1]](*sys.argv[2:])
