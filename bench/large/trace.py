"""Traces a model that is larger than the memory it is allowed, and what that time consists of, each measured alone:

    trace.py ATTNSCOPE PACE FOLDER [MEMORY]

reading the files with a cold cache; the products (a pass whose weights are in memory already, so the machine needs room for
them); and `attnscope trace` with the residual stream kept, with a cold cache, within MEMORY (2G), with the most RssAnon that
it had. Needs the right to drop the system's caches (root).
"""

import glob
import os
import shutil
import subprocess
import sys
import tempfile
import time

LENGTH = 64


def drop_caches():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("3")


def cold_read(folder):
    drop_caches()
    begin = time.perf_counter()
    for file in sorted(glob.glob(os.path.join(folder, "*.safetensors"))):
        subprocess.run(["cat", file], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


def products(pace, folder):
    process = subprocess.Popen([pace, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    times = []
    for _ in range(3):
        process.stdin.write("stream\n")
        process.stdin.flush()
        times.append(float(process.stdout.readline().split()[0]) / 1e3)
    process.stdin.close()
    process.wait()
    return min(times)


def anonymous(pid):
    try:
        with open(f"/proc/{pid}/status") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("RssAnon"))
    except (FileNotFoundError, StopIteration, ProcessLookupError):
        return 0


def traced(attnscope, folder, memory):
    ids = ",".join(str((i * 7919 + 13) % 32000) for i in range(LENGTH))
    out = tempfile.mkdtemp(dir=os.path.dirname(os.path.abspath(folder)))
    command = [attnscope, "trace", folder, "--tgt-ids", ids, "--layer", "decoder.*.out", "--memory", memory,
               "--save", os.path.join(out, "trace"), "--output", os.path.join(out, "words")]
    drop_caches()
    begin = time.perf_counter()
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    most = 0
    while process.poll() is None:
        most = max(most, anonymous(process.pid))
        time.sleep(0.005)
    seconds = time.perf_counter() - begin
    notes = process.stderr.read()
    size = os.path.getsize(os.path.join(out, "trace", "trace.safetensors")) if process.returncode == 0 else 0
    shutil.rmtree(out)
    if process.returncode:
        sys.exit(notes)
    return seconds, most, size, notes


def main(attnscope, pace, folder, memory="2G"):
    files = sum(os.path.getsize(file) for file in glob.glob(os.path.join(folder, "*.safetensors")))
    read, computed = cold_read(folder), products(pace, folder)
    seconds, most, size, notes = traced(attnscope, folder, memory)
    again = cold_read(folder)
    print(notes.strip(), file=sys.stderr)
    larger = max(min(read, again), computed)
    print(f"files {files / 1e9:.2f} GB; read with a cold cache {read:.2f} s and {again:.2f} s; products {computed:.2f} s")
    print(f"trace within {memory}: {seconds:.2f} s ({seconds / larger:.2f} × the larger), RssAnon at most "
          f"{most / 1e9:.2f} GB, {size / 1e6:.1f} MB saved")


if __name__ == "__main__":
    main(*sys.argv[1:])
