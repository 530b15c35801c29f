"""Every program in a process of its own; one pass each, in turns, so that what else the machine does hits all alike."""

import os
import platform
import statistics
import subprocess
import sys
import time

THREADS = 2
SHAPES = {"whisper-tiny": "Whisper tiny shape, 3,000 frames, T 64", "t5-small": "T5-small shape, S 128, T 64"}
TARGET = 64
TOKENS = 64
HERE = os.path.dirname(os.path.abspath(__file__))


def folder(shape):
    return os.path.join(HERE, ".models", shape)


# What runs in the processes of the peers. Imports are inside: they take seconds, and each needs only its own.


def make_model(shape):
    import torch
    from transformers import T5Config, T5ForConditionalGeneration, WhisperConfig, WhisperForConditionalGeneration

    torch.manual_seed(0)
    if shape == "t5-small":
        config = T5Config(
            vocab_size=32128, d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8, decoder_start_token_id=0
        )
        return T5ForConditionalGeneration(config)
    config = WhisperConfig(
        vocab_size=51864, d_model=384, encoder_layers=4, decoder_layers=4, encoder_attention_heads=6,
        decoder_attention_heads=6, encoder_ffn_dim=1536, decoder_ffn_dim=1536, num_mel_bins=80,
        max_source_positions=1500, max_target_positions=448, decoder_start_token_id=50257, eos_token_id=50256,
        bos_token_id=50256, pad_token_id=50256,
    )
    return WhisperForConditionalGeneration(config)


def load(shape, attention="eager"):
    import torch
    from transformers import AutoModelForSpeechSeq2Seq, T5ForConditionalGeneration

    torch.set_num_threads(THREADS)
    kind = T5ForConditionalGeneration if shape == "t5-small" else AutoModelForSpeechSeq2Seq
    return kind.from_pretrained(folder(shape), attn_implementation=attention).eval()


def inputs(shape):
    """The same as `pace` gives to attnscope."""
    import torch

    vocabulary = 32128 if shape == "t5-small" else 51864
    ids = lambda n: torch.tensor([[(i * 7919 + 13) % vocabulary for i in range(n)]])
    if shape == "t5-small":
        return {"input_ids": ids(128), "decoder_input_ids": ids(TARGET)}
    features = torch.sin(torch.arange(80 * 3000, dtype=torch.float32) * 0.37).reshape(1, 80, 3000)
    return {"input_features": features, "decoder_input_ids": ids(TARGET)}


def torch_pass(shape, attention="eager"):
    import torch

    model, given = load(shape, attention), inputs(shape)

    def run():
        with torch.inference_mode():
            model(**given, use_cache=False).logits

    return run


def torch_hooks(shape):
    """Every attention's weights, and a clone of what every module gives."""
    import torch

    model, given = load(shape), inputs(shape)
    kept = []

    def hook(module, args, output):
        for value in output if isinstance(output, tuple) else (output,):
            if isinstance(value, torch.Tensor):
                kept.append(value.clone())

    for module in model.modules():
        module.register_forward_hook(hook)

    def run():
        kept.clear()
        with torch.inference_mode():
            result = model(**given, use_cache=False, output_attentions=True)
        return sum(value.nbytes for value in kept) + sum(
            value.nbytes
            for stack in (result.encoder_attentions, result.decoder_attentions, result.cross_attentions)
            for value in stack
            if value is not None
        )

    return run


def torch_tokens(shape):
    import torch

    model, given = load(shape), inputs(shape)
    source = {name: value for name, value in given.items() if name != "decoder_input_ids"}
    with torch.inference_mode():
        encoded = model.get_encoder()(**source)

    def run():
        token, cache = torch.tensor([[1]]), None
        begin = time.perf_counter()
        with torch.inference_mode():
            for _ in range(TOKENS):
                out = model(
                    encoder_outputs=encoded, decoder_input_ids=token, past_key_values=cache, use_cache=True
                )
                cache, token = out.past_key_values, out.logits[:, -1:].argmax(-1)
        return (time.perf_counter() - begin) * 1e3 / TOKENS

    return run


def onnx_pass(shape):
    import onnxruntime
    import torch

    path = os.path.join(folder(shape), "model.onnx")
    given = inputs(shape)
    if not os.path.exists(path):
        model = load(shape)

        class Logits(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model = model

            def forward(self, source, decoder_input_ids):
                return self.model(source, decoder_input_ids=decoder_input_ids, use_cache=False).logits

        with torch.inference_mode():
            torch.onnx.export(
                Logits(), tuple(given.values()), path, input_names=["source", "target"], output_names=["logits"],
                dynamo=True, external_data=False,
            )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feed = {i.name: value.numpy() for i, value in zip(session.get_inputs(), given.values())}
    # The fast program computes the same.
    with torch.inference_mode():
        ours = torch.from_numpy(session.run(None, feed)[0])
        theirs = load(shape)(**given, use_cache=False).logits
    assert torch.allclose(ours, theirs, atol=1e-3 * theirs.abs().max()), (ours - theirs).abs().max()
    return lambda: session.run(None, feed)


class Names:
    """Stands for a tokenizer: CTranslate2 asks for names of tokens."""

    def __init__(self, size, special):
        self.names = {special.get(i, f"t{i}"): i for i in range(size)}
        self.pad_token, self.eos_token, self.unk_token = special.values()

    def get_vocab(self):
        return self.names

    def convert_ids_to_tokens(self, i):
        return list(self.names)[i]


def ctranslate(shape):
    from ctranslate2.converters import TransformersConverter

    if shape == "t5-small":
        names = Names(32128, {0: "<pad>", 1: "</s>", 2: "<unk>"})
    else:
        # The converter adds the 1,501 names of times.
        names = Names(51864 - 1501, {50257: "<|startoftranscript|>", 50256: "<|endoftext|>", 50362: "<|notimestamps|>"})

    class Converter(TransformersConverter):
        def load_tokenizer(self, *_, **__):
            return names

    path = os.path.join(folder(shape), "ctranslate2")
    if not os.path.exists(path):
        Converter(folder(shape)).convert(path, quantization="float32")
    return path


def ctranslate_tokens(shape):
    import ctranslate2

    path, given = ctranslate(shape), inputs(shape)
    settings = {"device": "cpu", "compute_type": "float32", "inter_threads": 1, "intra_threads": THREADS}
    if shape == "t5-small":
        translator = ctranslate2.Translator(path, **settings)
        source = [[f"t{i}" if i > 2 else "<pad>" for i in given["input_ids"][0].tolist()]]

        def timed(n):
            begin = time.perf_counter()
            made = translator.translate_batch(source, beam_size=1, min_decoding_length=n, max_decoding_length=n)
            assert len(made[0].hypotheses[0]) == n
            return (time.perf_counter() - begin) * 1e3

        # The encoder and the first token are in both.
        return lambda: (timed(TOKENS + 1) - timed(1)) / TOKENS
    model = ctranslate2.models.Whisper(path, **settings)
    encoded = model.encode(ctranslate2.StorageView.from_array(given["input_features"].numpy()))

    def timed(n):
        # It writes half as many tokens as `max_length` says.
        begin = time.perf_counter()
        made = model.generate(
            encoded, [[50257, 50362]], beam_size=1, max_length=2 * n, suppress_blank=False, suppress_tokens=[50256]
        )
        assert len(made[0].sequences_ids[0]) == n, len(made[0].sequences_ids[0])
        return (time.perf_counter() - begin) * 1e3

    return lambda: (timed(TOKENS + 4) - timed(4)) / TOKENS


PEERS = {
    "torch": torch_pass,
    "torch-sdpa": lambda shape: torch_pass(shape, "sdpa"),
    "torch-hooks": torch_hooks,
    "onnxruntime": onnx_pass,
    "torch-tokens": torch_tokens,
    "ctranslate2-tokens": ctranslate_tokens,
}


def peer(name, shape):
    """Answers every line with milliseconds, and what the run had to say."""
    # Whatever a library prints, an export its steps for one, goes to standard error: answers alone go to standard output.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    run = PEERS[name](shape)
    print("ready", file=answers, flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        said = run()
        milliseconds = (time.perf_counter() - begin) * 1e3
        value = said if name.endswith("tokens") else milliseconds
        print(f"{value:.4f} {said if name == 'torch-hooks' else ''}", file=answers, flush=True)


# The other side: asks one after the other.


class Contender:
    def __init__(self, name, command, request):
        self.name, self.request, self.times, self.said = name, request, [], ""
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | {"RAYON_NUM_THREADS": str(THREADS)}
        )

    def wait(self):
        if self.process.stdout.readline().strip() != "ready":
            sys.exit(f"{self.name} did not start: its error is above")

    def turn(self, count=True):
        self.process.stdin.write(self.request + "\n")
        self.process.stdin.flush()
        value, _, self.said = self.process.stdout.readline().strip().partition(" ")
        if count:
            self.times.append(float(self.said.split()[0] if self.request.startswith("tokens ") else value))

    def peak(self):
        """The most memory it ever had, in bytes."""
        with open(f"/proc/{self.process.pid}/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def take_turns(contenders):
    for contender in contenders:
        # Threads of the one before may wait awake for a while.
        time.sleep(0.3)
        contender.turn()


def compare(shape, pace, rounds):
    me = [sys.executable, os.path.abspath(__file__), "--peer"]
    ours = lambda name, request: Contender(name, [pace, folder(shape)], request)
    theirs = lambda name: Contender(name, [*me, name, shape], "go")
    passes = [ours("attnscope, every tensor kept", "all"), ours("attnscope, none kept", "none")]
    passes += [theirs(n) for n in ("torch", "torch-sdpa", "torch-hooks", "onnxruntime")]
    tokens = [ours("attnscope", f"tokens {TOKENS}"), theirs("torch-tokens"), theirs("ctranslate2-tokens")]
    for contender in passes + tokens:
        if contender.request == "go":
            contender.wait()
        for _ in range(2):
            contender.turn(count=False)
    for _ in range(rounds):
        take_turns(passes + tokens)
    weights = os.path.getsize(os.path.join(folder(shape), "model.safetensors"))
    report(SHAPES[shape], passes, "a pass")
    kept = int(passes[0].said.split()[0])
    peak = passes[0].peak()
    print(f"{kept / 1e6:,.0f} MB kept, {weights / 1e6:,.0f} MB of weights, peak {peak / 1e6:,.0f} MB: "
          f"{peak / (kept + weights):.2f} × their sum. torch's hooks keep {int(passes[4].said) / 1e6:,.0f} MB.\n")
    report(SHAPES[shape], tokens, "a token")
    for contender in passes + tokens:
        contender.end()


def report(title, contenders, what):
    best = min(contenders[0].times)
    print(f"| {title}: ms {what} | best | median | best beside the first |\n|---|---|---|---|")
    for c in contenders:
        print(f"| {c.name} | {min(c.times):.2f} | {statistics.median(c.times):.2f} | {min(c.times) / best:.2f} × |")
    print(flush=True)


def main():
    if sys.argv[1] == "--peer":
        peer(sys.argv[2], sys.argv[3])
        return
    pace, rounds = sys.argv[1], int(sys.argv[2])
    model = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.machine())
    print(f"{model}, {os.cpu_count()} cores; {rounds} rounds\n")
    for shape in SHAPES:
        if not os.path.exists(os.path.join(folder(shape), "model.safetensors")):
            subprocess.run([sys.executable, "-c", f"import compare; compare.make_model({shape!r}).save_pretrained({folder(shape)!r})"], cwd=HERE, check=True)
        compare(shape, pace, rounds)


main() if __name__ == "__main__" else None
