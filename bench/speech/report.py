"""report.py NAME EXIT SECONDS REPORT.json: one row of a table."""
import json, sys

name, code, seconds, path = sys.argv[1:]
report = json.load(open(path))
found = [f"{f['rule']}: {f['evidence']}" for f in report["findings"] if f["severity"] != "info"]
wiring = report["wiring"] or {}
cost = [m["number"] for m in report["measures"] if m["name"] == "source_cost"]
print(f"| {name} | {code} | {wiring.get('pairs')} | {wiring.get('nll', float('nan')):.3f} | "
      f"{cost[0]:.2f} | " if cost else f"| {name} | {code} | {wiring.get('pairs')} | {wiring.get('nll')} | – | ", end="")
print(f"{'; '.join(found) or 'nothing'} | {seconds} s |")
