"""Other inputs for the same model: `diff` must see that the two runs did not read the same."""

import torch


def others(subject):
    given = subject.inputs
    target = given["tgt.ids"]
    changed = target.clone()
    changed[:, target.shape[1] // 2] = target[:, 1]
    yield "another target token", {**given, "tgt.ids": changed}
    yield "a shorter target", {**given, "tgt.ids": target[:, :-3]}
    if "audio.mel" in given:
        mel = given["audio.mel"]
        yield "other audio", {**given, "audio.mel": mel.roll(100, -1)}
        yield "audio with noise", {**given, "audio.mel": mel + 0.01 * torch.randn(mel.shape)}
        return
    source = given["src.ids"]
    other = source.clone()
    other[:, 2] = source[:, 3]
    yield "another source token", {**given, "src.ids": other}
    yield "reversed source", {**given, "src.ids": source.flip(1)}
    yield "a shorter source", {**given, "src.ids": source[:, :-4], "src.visible": given["src.visible"][:, :-4]}
