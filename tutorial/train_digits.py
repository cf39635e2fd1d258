"""Trains a network to recognize handwritten digits, from random weights to an accuracy of 98 % on held-out digits:

    .venv/bin/python tutorial/train_digits.py [--epochs 60] [--plots folder]

The digits are scikit-learn's (1,797 images of 8 by 8 pixels) if that is installed; otherwise they are drawn from a
font, with noise. The network is built with onnx.helper, trained by tessera.training, and exported. Half-way, the run is
saved and resumed in a new training step, which continues with the same losses. The last lines compare the exported
model with the training step. With --plots, loss.svg shows the losses and digits.svg the digits that are still
misclassified.
"""

import argparse
import importlib
import pathlib
import tempfile
import time
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper, numpy_helper

import tessera

Array = npt.NDArray[Any]
WIDTHS = (64, 256, 128, 10)
# Ten digits of 5 by 7 pixels; the bits of an octal number are one pixel row of each.
FONT = ["16 21 21 21 21 21 16", "04 14 04 04 04 04 16", "16 21 01 02 04 10 37", "37 02 04 02 01 21 16", "02 06 12 22 37 02 02",
        "37 20 36 01 01 21 16", "06 10 20 36 21 21 16", "37 01 02 04 10 10 10", "16 21 21 16 21 21 16", "16 21 21 17 01 02 14"]


def drawn_digits(count: int) -> tuple[Array, Array]:
    """Digits of the font: shifted, of any brightness, with noise."""
    draw = np.random.default_rng(0)
    glyphs = [np.array([[int(row, 8) >> bit & 1 for bit in (4, 3, 2, 1, 0)] for row in glyph.split()]) for glyph in FONT]
    labels = draw.integers(0, 10, count)
    images = draw.normal(0, 3, (count, 8, 8))
    for image, label in zip(images, labels):
        y, x = draw.integers(0, 2), draw.integers(0, 4)
        image[y:y + 7, x:x + 5] += draw.uniform(8, 16) * glyphs[label]
    return np.clip(images, 0, 16).reshape(count, 64), labels


def digits() -> tuple[Array, Array, str]:
    try:
        data: Any = importlib.import_module("sklearn.datasets").load_digits()
    except ImportError:
        images, labels = drawn_digits(1797)
        return (images / 16).astype(np.float32), labels, "drawn from a font"
    return (data.data / 16).astype(np.float32), data.target, "scikit-learn's"


def shifted(images: Array, draw: np.random.Generator) -> Array:
    """Data augmentation: each image, shifted by at most one pixel."""
    whole = np.pad(images.reshape(-1, 8, 8), ((0, 0), (1, 1), (1, 1)))
    moves = draw.integers(0, 3, (len(images), 2))
    return np.stack([image[y:y + 8, x:x + 8] for image, (y, x) in zip(whole, moves)]).reshape(-1, 64)


def network() -> tessera.Model:
    """Three layers with dropout between them; the weights are initialized such that each layer preserves variance."""
    draw = np.random.default_rng(0)
    nodes, weights, x = [], [numpy_helper.from_array(np.array(0.2, np.float32), "ratio")], "image"
    for i, (a, b) in enumerate(zip(WIDTHS, WIDTHS[1:])):
        weights += [numpy_helper.from_array((draw.standard_normal((a, b)) * np.sqrt(2 / a)).astype(np.float32), f"fc{i}.weight"),
                    numpy_helper.from_array(np.zeros(b, np.float32), f"fc{i}.bias")]
        last = i == len(WIDTHS) - 2
        nodes += [helper.make_node("MatMul", [x, f"fc{i}.weight"], [f"m{i}"]),
                  helper.make_node("Add", [f"m{i}", f"fc{i}.bias"], ["logits" if last else f"a{i}"])]
        if not last:
            nodes += [helper.make_node("Relu", [f"a{i}"], [f"r{i}"]), helper.make_node("Dropout", [f"r{i}", "ratio"], [f"h{i}"])]
        x = f"h{i}"
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ("batch", width)) for name, width in (("image", 64), ("logits", 10))]
    graph = helper.make_graph(nodes, "digits", ports[:1], ports[1:], initializer=weights)
    return tessera.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]))


def svg(width: float, height: float, body: str) -> str:
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>{body}</svg>\n')


def plot_losses(losses: list[float], held_out: list[float]) -> str:
    """Plots the loss of each step in grey, and the held-out loss after each epoch in blue."""
    top, steps = max(losses), len(losses)

    def place(i: float, v: float) -> str:
        return f"{40 + 590 * i / steps:.1f},{20 + 240 * (1 - v / top):.1f}"

    each = steps / len(held_out)
    body = "".join(f'<text x="4" y="{24 + 240 * k / 4}">{top * (1 - k / 4):.2f}</text>' for k in range(5))
    body += f'<polyline fill="none" stroke="#bbb" points="{" ".join(place(i, v) for i, v in enumerate(losses))}"/>'
    body += '<polyline fill="none" stroke="#1f6feb" stroke-width="2" points="'
    body += " ".join(place((i + 1) * each, v) for i, v in enumerate(held_out)) + '"/>'
    return svg(640, 290, body + f'<text x="320" y="282" text-anchor="middle">{steps} steps</text>')


def plot_digits(images: Array, labels: Array, read: Array) -> str:
    """Draws digits with their labels and their predictions."""
    body = ""
    for k, (image, label, found) in enumerate(zip(images, labels, read)):
        x, y = 10 + 70 * (k % 8), 10 + 90 * (k // 8)
        for i, value in enumerate(image):
            grey = int(255 * (1 - value))
            body += f'<rect x="{x + 7 * (i % 8)}" y="{y + 7 * (i // 8)}" width="7" height="7" fill="rgb({grey},{grey},{grey})"/>'
        body += f'<text x="{x}" y="{y + 70}">{label} read as {found}</text>'
    return svg(570, 10 + 90 * max(1, -(-len(images) // 8)), body)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--plots", type=pathlib.Path)
    given = parser.parse_args()

    images, labels, source = digits()
    draw = np.random.default_rng(1)
    order = draw.permutation(len(images))
    held, rest = order[:360], order[360:]
    print(f"{len(rest)} digits to learn from and {len(held)} held out, {source}")

    model = network()
    updates = given.epochs * (len(rest) // given.batch)
    rate = tessera.warmup_cosine(2e-3, updates, warmup=updates // 20)

    def make() -> tessera.Training:
        return tessera.training(model, "cross_entropy", tessera.AdamW(rate, weight_decay=0.01), seed=7)

    step = make()
    losses: list[float] = []
    held_out: list[float] = []
    begin = time.perf_counter()
    for epoch in range(given.epochs):
        if epoch == given.epochs // 2:  # as if the process had ended here
            with tempfile.TemporaryDirectory() as folder:
                step.save(pathlib.Path(folder) / "run.safetensors")
                step = make()
                step.load(pathlib.Path(folder) / "run.safetensors")
        shuffled = draw.permutation(rest)
        for k in range(len(rest) // given.batch):
            chosen = shuffled[k * given.batch:(k + 1) * given.batch]
            losses.append(step(shifted(images[chosen], draw), labels[chosen]))
        loss, outputs = step.evaluate(images[held], labels[held])
        held_out.append(loss)
        right = float(np.mean(outputs["logits"].argmax(1) == labels[held]))
        if epoch % 10 == 9 or epoch == given.epochs - 1:
            print(f"epoch {epoch + 1:3}  loss {np.mean(losses[-40:]):.4f}  held out {loss:.4f}, {100 * right:.2f} % right")
    print(f"{step.updates} updates in {time.perf_counter() - begin:.1f} s")

    exported = tessera.compile(step.trained())
    logits = exported(images[held])
    print(f"the exported model differs from the step by at most {np.abs(logits - outputs['logits']).max():.1e}")
    if given.plots:
        given.plots.mkdir(parents=True, exist_ok=True)
        wrong = held[logits.argmax(1) != labels[held]][:24]
        (given.plots / "loss.svg").write_text(plot_losses(losses, held_out))
        (given.plots / "digits.svg").write_text(plot_digits(images[wrong], labels[wrong], exported(images[wrong]).argmax(1) if len(wrong) else wrong))
        step.export(given.plots / "digits.onnx")


if __name__ == "__main__":
    main()
