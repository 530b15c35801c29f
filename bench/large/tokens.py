"""A token of a Llama shape of 1.1 B parameters in bf16: attnscope, torch and llama.cpp in turns, each in a process of its own.

    tokens.py PACE FOLDER GGUF [ROUNDS]

PACE is `cargo build --release -p attnscope-run --example pace`, FOLDER what make.py made, GGUF what gguf_of.py made of it. torch
and llama.cpp may live in Pythons of their own: TORCH_PYTHON, LLAMA_PYTHON.
"""

import os
import subprocess
import sys
import time

THREADS = 2
TOKENS = 32


def torch_tokens(folder):
    import torch
    from transformers import LlamaForCausalLM, StaticCache

    torch.set_num_threads(THREADS)
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    with torch.inference_mode():

        def run():
            cache = StaticCache(config=model.config, max_cache_len=128)
            token = torch.tensor([[1]])
            times = []
            for at in range(TOKENS):
                begin = time.perf_counter()
                logits = model(token, past_key_values=cache, cache_position=torch.tensor([at])).logits
                token = logits[:, -1:].argmax(-1)
                times.append(time.perf_counter() - begin)
            return 1e3 * sum(times) / len(times)

        serve(run)


def llama_tokens(file):
    from llama_cpp import Llama

    model = Llama(file, n_ctx=128, n_threads=THREADS, n_threads_batch=THREADS, verbose=False)

    def run():
        model.reset()
        token = 1
        begin = time.perf_counter()
        for _ in range(TOKENS):
            model.eval([token])
            token = int(model.scores[model.n_tokens - 1].argmax())
        return 1e3 * (time.perf_counter() - begin) / TOKENS

    serve(run)


def serve(run):
    """One measurement for each line that comes."""
    for _ in sys.stdin:
        print(f"{run():.4f}", flush=True)


class Peer:
    def __init__(self, name, command, request):
        self.name, self.request, self.times = name, request, []
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def turn(self):
        self.process.stdin.write(self.request + "\n")
        self.process.stdin.flush()
        words = self.process.stdout.readline().split()
        # `pace` says: MILLISECONDS MILLISECONDS ms a token.
        self.times.append(float(words[1] if len(words) > 1 else words[0]))


def main(pace, folder, gguf, rounds):
    os.environ.setdefault("RAYON_NUM_THREADS", str(THREADS))
    own = os.path.abspath(__file__)
    torch, llama = os.environ.get("TORCH_PYTHON", sys.executable), os.environ.get("LLAMA_PYTHON", sys.executable)
    peers = [
        Peer("attnscope", [pace, folder], f"tokens {TOKENS}"),
        Peer("torch", [torch, own, "torch", folder], "go"),
        Peer("llama.cpp", [llama, own, "llama", gguf], "go"),
    ]
    for _ in range(rounds + 1):
        for peer in peers:
            peer.turn()
    print("| ms a token, bf16, 2 threads | best | median | beside |\n|---|---|---|---|")
    for peer in peers:
        # The first warms up.
        times = sorted(peer.times[1:])
        beside = times[0] / min(peers[0].times[1:])
        print(f"| {peer.name} | {times[0]:.1f} | {times[len(times) // 2]:.1f} | {beside:.2f} × |")
        peer.process.stdin.close()
        peer.process.wait()


if __name__ == "__main__":
    if sys.argv[1] == "torch":
        torch_tokens(sys.argv[2])
    elif sys.argv[1] == "llama":
        llama_tokens(sys.argv[2])
    else:
        main(*sys.argv[1:4], int(sys.argv[4]) if len(sys.argv) > 4 else 5)
