"""How far the columns of an audit are from those of transformers_audit.py.

    python bench/audit/agree.py AUDIT_FOLDER out.json
"""

import glob
import json
import math
import sys

import pyarrow as pa
import pyarrow.parquet as pq


def main(folder, theirs):
    parts = [pq.read_table(file) for file in sorted(glob.glob(f"{folder}/part-*.parquet"))]
    ours = pa.concat_tables(parts).sort_by("row").to_pylist()
    theirs = json.load(open(theirs))
    worst = {}

    def note(column, a, b, where):
        a, b = (math.nan if x is None else x for x in (a, b))
        gap = 0.0 if math.isnan(a) and math.isnan(b) else abs(a - b) / max(abs(a), abs(b), 1.0)
        if not gap <= worst.get(column, (-1.0,))[0]:
            worst[column] = (gap, where, a, b)

    names = ["entropy", "effective_keys", "peak", "end_mass", "first_mass", "diagonal_mass", "previous_mass", "sharpness"]
    for a, b in zip(ours, theirs, strict=True):
        assert a["row"] == b["row"]
        note("nll", a["nll"], b["nll"], a["row"])
        note("nll_swapped", a["nll_swapped"], b["nll_swapped"], a["row"])
        heads = {(path, head): values for path, head, values in b["heads"]}
        assert len(heads) == len(a["heads"])
        for head in a["heads"]:
            for name, value in zip(names, heads[head["attention"], head["head"]]):
                note(name, head[name], value, (a["row"], head["attention"], head["head"]))
        layers = {path: values for path, *values in b["layers"]}
        assert len(layers) == len(a["layers"])
        for layer in a["layers"]:
            ratio, norm = layers[layer["sublayer"]]
            note("output_ratio", layer["output_ratio"], ratio, (a["row"], layer["sublayer"]))
            note("residual_norm", layer["residual_norm"], norm, (a["row"], layer["sublayer"]))
    for column, (gap, *where) in worst.items():
        print(f"{column:16} {gap:.2e}  {where}")


if __name__ == "__main__":
    main(*sys.argv[1:])
