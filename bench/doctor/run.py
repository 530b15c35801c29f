#!/usr/bin/env python3
"""How often `attnscope doctor` accuses a healthy model, and how often it finds a fault.

    bench/doctor/run.py ATTNSCOPE SHARED WORK [--minutes N] [--only GROUP]

Every run is one process of ATTNSCOPE with one thread on a random sample of pairs. Results go to WORK/results.jsonl; a run that is
there already is not made again, so that the measurement can be continued. The table is printed at the end. Needs numpy and
safetensors for the damaged copies, and the models and data that CONTRIBUTING.md lists.
"""

import argparse
import json
import random
import subprocess
import time
from collections import Counter
from pathlib import Path

import damage
import pairs

HEALTHY = ["demo", "t5-tiny-en-de", "bart-tiny-en-de", "marian-base-en-de"]
# A run of the larger model takes as long as several of the others: it has one of five.
LARGE, EVERY = "marian-base-en-de", 5
ZOO = {
    "relu": {"activation": "relu"},
    "scale_model": {"score_scale": "d_model"},
    "no_causal": {"causal_mask": "off"},
}


def healthy(seed):
    return [model for model in HEALTHY if model != LARGE or seed % EVERY == 0]


def plan(only):
    """(group, model, kind, set, pairs, seed, expected) of every run, in an order that is random and always the same; the larger
    model comes last."""
    dice = random.Random(1)
    runs = []
    for seed in range(60):
        for model in healthy(seed):
            runs.append(("right pairs", model, "right", dice.choice(pairs.SETS), dice.choice([20, 20, 25, 30, 40]), seed, None))
    for seed in range(10):
        for model in healthy(seed):
            for kind in [k for k in pairs.KINDS if k != "right"]:
                runs.append(("ill-fitting pairs", model, kind, dice.choice(pairs.SETS), dice.choice([20, 20, 25, 30]), seed, None))
    for seed in range(4):
        for model in ["marian-tiny-en-de", "bart-tiny-en-de"]:
            for name in damage.WEIGHTS:
                expected = damage.REPAIRS.get(name)
                runs.append(("damaged weights", model, name, dice.choice(pairs.SETS), dice.choice([25, 40]), seed, expected))
    for seed in range(3):
        for n, (model, _, best) in enumerate(damage.CONFIGS):
            if best:
                runs.append(("wrong configs", model, str(n), dice.choice(pairs.SETS), dice.choice([40, 80]), seed, best))
        for name, best in ZOO.items():
            runs.append(("zoo", name, "right", "test_2016_flickr", 200, seed, best))
        runs.append(("zoo", "ignores_source", "right", "test_2016_flickr", 200, seed, "source-ignored"))
    runs = [run for run in runs if only in ("", run[0])]
    dice.shuffle(runs)
    runs.sort(key=lambda run: run[1] == LARGE)
    return runs


def folder_of(run, shared, work):
    group, model, kind = run[:3]
    if group == "zoo":
        return shared / "models/zoo" / model
    if model == "demo":
        return "demo"
    source = shared / "models" / model
    if group == "damaged weights":
        folder = work / f"{model} {kind}"
        if not folder.exists():
            damage.copy(source, folder, weights=damage.WEIGHTS[kind])
        return folder
    if group == "wrong configs":
        folder = work / f"{model} config {kind}"
        if not folder.exists():
            damage.copy(source, folder, config=damage.CONFIGS[int(kind)][1])
        return folder
    return source


def make(run, attnscope, shared, work):
    group, _, kind, name, count, seed, _ = run
    sample = pairs.Sample(shared, name, count, seed)
    rows = pairs.KINDS.get(kind if group in ("right pairs", "ill-fitting pairs") else "right")(sample)
    file = work / "pairs.tsv"
    file.write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
    rules = "misconverted-weight,wiring-mismatch,ill-fitting-pairs,source-ignored"
    # Time enough on a busy machine: what is found must not depend on it.
    command = [attnscope, "doctor", folder_of(run, shared, work), "--pairs", file, "--rules", rules, "--repair-time", "600"]
    done = subprocess.run([str(x) for x in command] + ["--format", "json", "--threads", "1", "--quiet"], capture_output=True, text=True)
    if done.returncode not in (0, 1, 2) or not done.stdout:
        return {"error": done.stderr[-500:]}
    report = json.loads(done.stdout)
    keep = ("rule", "severity", "best", "possible", "repair", "as_good", "nll_declared", "nll_best", "p", "evidence")
    wiring = report["wiring"] or {}
    return {
        "findings": [{key: f.get(key) for key in keep} for f in report["findings"]],
        "not_checked": {n["rule"]: n["why"] for n in report["not_checked"]},
        "fit": wiring.get("fit"),
        "best_trials": (wiring.get("trials") or [])[:3],
        "repairs": [m["words"] for m in report["measures"] if m["name"] == "repair_gain"],
    }


def is_repair(repair, expected):
    """Whether a repair is of the expected kind, and at one of the expected places alone."""
    kind, places = expected
    return repair["kind"] == kind and all(any(w.startswith(place) for place in places) for w in repair["weights"])


def outcome(run, result):
    """A word for what came of a run, and whether it is as it should be."""
    if "error" in result:
        return "error", False
    found = {f["rule"]: f for f in result["findings"] if f.get("severity") != "info"}
    accused = [rule for rule in found if rule != "ill-fitting-pairs"]
    group, expected = run[0], run[6]
    if expected == "source-ignored":
        return ("found", True) if accused == ["source-ignored"] else ("missed", False)
    if group == "damaged weights" and expected is not None and "misconverted-weight" in found:
        finding = found["misconverted-weight"]
        if is_repair(finding["repair"], expected):
            return "named", accused == ["misconverted-weight"]
        in_set = any(is_repair(other, expected) for other in finding["as_good"] or [])
        return ("named in a set", True) if in_set else ("accused: misconverted-weight", False)
    if group != "damaged weights" and expected is not None:
        finding = found.get("wiring-mismatch")
        if finding is None:
            return ("undecided" if "wiring-mismatch" in result["not_checked"] else "missed"), False
        in_set = all(value in (finding["possible"].get(field) or []) for field, value in expected.items())
        if finding["best"] == expected:
            return "found", True
        return ("found in a set", True) if in_set and set(finding["best"]) == set(expected) else ("wrong", False)
    if accused:
        return "accused: " + ", ".join(accused), False
    if "ill-fitting-pairs" in found:
        return "pairs do not fit", group != "right pairs"
    return ("undecided" if "wiring-mismatch" in result["not_checked"] else "nothing found"), True


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("attnscope", type=Path)
    arguments.add_argument("shared", type=Path)
    arguments.add_argument("work", type=Path)
    arguments.add_argument("--minutes", type=float, default=60.0)
    arguments.add_argument("--only", default="")
    given = arguments.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    log = given.work / "results.jsonl"
    known = {}
    if log.exists():
        for line in log.read_text().splitlines():
            entry = json.loads(line)
            known[json.dumps(entry["run"])] = entry["result"]
    end = time.monotonic() + 60 * given.minutes
    counts = {}
    for run in plan(given.only):
        key = json.dumps(run)
        if key not in known:
            if time.monotonic() > end:
                continue
            known[key] = make(run, given.attnscope.resolve(), given.shared, given.work)
            with log.open("a") as file:
                file.write(json.dumps({"run": run, "result": known[key]}) + "\n")
        word, good = outcome(run, known[key])
        counts.setdefault(run[0], Counter())[word] += 1
        if not good:
            print("not as it should be:", word, run, json.dumps(known[key].get("findings"))[:300], flush=True)
    for group, words in counts.items():
        print(f"{group}: {sum(words.values())} runs; " + ", ".join(f"{n} {word}" for word, n in words.most_common()))


if __name__ == "__main__":
    main()
