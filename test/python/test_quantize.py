"""Calibration and quantization from Python: profiles, schemes, what a quantized model computes, and bad input."""

import json

import numpy as np
import onnx
import pytest
from quantized_models import block, cnn, images, model_of, snr, tokens

import tessera


def ops_of(model):
    return [n.op_type for n in onnx.load_model_from_string(model.to_onnx()).graph.node]


@pytest.fixture(scope="module")
def small():
    return tessera.load(cnn())


@pytest.fixture(scope="module")
def profile(small):
    return tessera.calibrate(small, images(4))


def test_a_profile_has_the_range_and_histogram_of_each_value(small, profile):
    x = np.concatenate(images(4)).ravel()
    seen = profile.values["x"]
    assert (seen.min, seen.max, seen.count) == (x.min(), x.max(), x.size)
    assert np.array_equal(np.histogram(x, bins=np.append(seen.edges[:-1], np.inf))[0], seen.bins)
    assert 1024 < len(seen.bins) <= 2048 and np.allclose(np.diff(seen.edges), seen.edges[1] - seen.edges[0], rtol=0)
    each = np.concatenate(images(4))
    assert np.allclose(seen.channel_max, np.abs(each).max((0, 2, 3))) and np.allclose(seen.channel_sum, each.sum((0, 2, 3)), rtol=1e-4, atol=1e-3)
    assert profile.samples == 4 and min(profile.values["r2"].min, 0) == 0


@pytest.mark.parametrize("seed", range(6))
def test_merged_profiles_are_those_of_one_run(small, seed):
    random = np.random.default_rng(seed)
    data = [x * np.float32(10 ** random.uniform(-3, 3)) for x in images(6, seed * 10)]
    cut = int(random.integers(1, 6))
    whole = tessera.calibrate(small, data)
    parts = tessera.calibrate(small, data[cut:])
    parts.merge(tessera.calibrate(small, data[:cut]))
    assert whole.samples == parts.samples == 6
    for name, a in whole.values.items():
        b = parts.values[name]
        assert (a.min, a.max, a.count, a.edges, a.bins, a.channel_max) == (b.min, b.max, b.count, b.edges, b.bins, b.channel_max), (seed, cut, name)
        assert np.allclose(a.channel_sum, b.channel_sum, rtol=1e-9, atol=1e-9 * max(abs(a.min), abs(a.max)) * a.count)


def test_a_profile_is_saved_and_loaded(profile, tmp_path):
    profile.save(str(tmp_path / "p.json"))
    assert tessera.Profile.load(str(tmp_path / "p.json")) == profile
    broken = json.loads((tmp_path / "p.json").read_text())
    broken["values"]["x"]["count"] += 1
    (tmp_path / "q.json").write_text(json.dumps(broken))
    with pytest.raises(tessera.Error, match="contradicts") as e:
        tessera.Profile.load(str(tmp_path / "q.json"))
    assert e.value.code == "E0110"
    for text in ("", "[]", "{}", '{"format": "tessera profile 1"}', '{"format": "tessera profile 1", "model": 1, "samples": 1, "values": {}}'):
        (tmp_path / "r.json").write_text(text)
        with pytest.raises(tessera.Error) as e:
            tessera.Profile.load(str(tmp_path / "r.json"))
        assert e.value.code in ("E0110", "E0102"), text


def test_the_quantized_model_is_plain_onnx_and_near_the_original(small, profile):
    made, report = tessera.quantize(small, profile, samples=images(4))
    onnx.checker.check_model(onnx.load_model_from_string(made.to_onnx()), full_check=True)
    assert report.quantized == len(report.layers) == 4 and report.bytes_after < 0.5 * report.bytes_before
    ops = ops_of(made)
    assert "BatchNormalization" not in ops and ops.count("DequantizeLinear") > ops.count("QuantizeLinear") > 8
    for x in images(3, 50):
        assert snr(small(x), made(x)) > 25
        assert np.allclose(tessera.compile(made, cache="")(x), made(x), atol=0.02 * np.abs(made(x)).max())
    assert report.output_snr["y"] > 25
    assert all(layer.snr > 20 and layer.weight_snr > 35 and layer.clipped == 0 for layer in report.layers)
    assert {layer.node: layer.op for layer in report.layers}["depthwise"] == "Conv"


def test_every_quantized_value_is_within_half_a_step(small, profile):
    """Dequantizing gives what was quantized, up to half of its scale, where nothing is clipped."""
    made, _ = tessera.quantize(small, profile)
    graph = onnx.load_model_from_string(made.to_onnx())
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in graph.graph.initializer}
    weights = [n for n in graph.graph.node if n.op_type == "DequantizeLinear" and n.input[0] in constants and constants[n.input[0]].ndim == 4]
    assert len(weights) == 3
    for n in weights:
        q, scale = constants[n.input[0]], constants[n.input[1]]
        assert q.dtype == np.int8 and scale.shape == (q.shape[0],) and np.all(np.abs(q).reshape(len(q), -1).max(1) == 127)
    quantize = [n for n in graph.graph.node if n.op_type == "QuantizeLinear"]
    for n in quantize:
        seen = profile.values[n.input[0]]
        scale, zero = float(constants[n.input[1]]), int(constants[n.input[2]])
        if n.input[0] in ("p", "f"):  # has the scale of what it moves
            continue
        assert (0 - zero) * scale - scale / 2 <= seen.min and seen.max <= (255 - zero) * scale + scale / 2, n.input[0]


@pytest.mark.parametrize("options", [dict(scheme="percentile"), dict(scheme="entropy"), dict(scheme="mse"), dict(activations="int8"),
                                     dict(symmetric=True), dict(activations="int8", symmetric=True), dict(power_of_two=True),
                                     dict(per_channel=False), dict(weight_scheme="mse"), dict(bias_correction=True),
                                     dict(activations="int16"), dict(activations="uint16", scheme="mse")], ids=str)
def test_every_scheme_gives_a_model_that_is_near(small, profile, options):
    made, report = tessera.quantize(small, profile, samples=images(2), **options)
    onnx.checker.check_model(onnx.load_model_from_string(made.to_onnx()), full_check=True)
    assert report.output_snr["y"] > (38 if "16" in options.get("activations", "") else 18), report.output_snr
    if options.get("power_of_two"):
        graph = onnx.load_model_from_string(made.to_onnx()).graph
        constants = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
        for n in graph.node:
            if n.op_type == "QuantizeLinear":
                assert np.log2(constants[n.input[1]]) % 1 == 0
    if options.get("symmetric"):
        assert {layer.zero_point for layer in report.layers} <= {0, 128}


def test_mse_clips_outliers_that_minmax_does_not():
    """One element of 256000 is ten times as large as the largest other: minmax spends the range on it."""
    r = np.random.default_rng(0)
    model = tessera.load(model_of([onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], [("x", ["N", 64])], [("y", ["N", 64])],
                                  [onnx.numpy_helper.from_array(r.standard_normal((64, 64)).astype(np.float32), "w")]))
    x = r.standard_normal((4000, 64)).astype(np.float32)
    x[7, 3] = 40
    found = {s: tessera.quantize(model, samples=[x], scheme=s, percentile=99.9)[1] for s in ("minmax", "mse", "percentile", "entropy")}
    assert found["minmax"].layers[0].clipped == 0 and found["minmax"].layers[0].high > 39
    for scheme in ("mse", "percentile", "entropy"):
        assert 0 < found[scheme].layers[0].clipped < 0.01 and found[scheme].layers[0].high < 31, scheme
    assert found["percentile"].layers[0].high < 5
    assert found["mse"].layers[0].snr > max(found[s].layers[0].snr for s in ("minmax", "percentile")) + 0.5


def test_a_matrix_product_of_activations_is_kept_unless_asked_for():
    model = tessera.load(block())
    made, report = tessera.quantize(model, samples=tokens(4))
    why = {layer.node: layer.why for layer in report.layers}
    assert why["scores"] == why["mix"] == "a product of two activations" and not any(why[n] for n in ("query", "key", "up", "down"))
    every, all_of_them = tessera.quantize(model, samples=tokens(4), products=True)
    assert all_of_them.quantized == report.quantized + 2
    x = tokens(1, 90)[0]
    assert snr(model(x), made(x)) > 30 and snr(model(x), every(x)) > 25


@pytest.mark.parametrize("pattern, kept", [("conv2", {"conv2"}), ("c?", {"conv2", "depthwise"}), ("Gemm", {"classifier"}), ("Conv", {"n1", "conv2", "depthwise"})])
def test_kept_layers_stay_in_floating_point(small, profile, pattern, kept):
    made, report = tessera.quantize(small, profile, keep=[pattern])
    assert {layer.node for layer in report.layers if not layer.quantized} == kept
    assert all(layer.why == "kept by request" for layer in report.layers if not layer.quantized)
    assert snr(small(images(1)[0]), made(images(1)[0])) > 20


def test_bias_correction_restores_the_mean_of_each_channel():
    """Inputs far from zero: rounding the weights shifts each output, and the corrected bias shifts it back."""
    r = np.random.default_rng(3)
    weights = [onnx.numpy_helper.from_array(r.standard_normal((6, 4, 3, 3)).astype(np.float32), "w"),
               onnx.numpy_helper.from_array(r.standard_normal((6,)).astype(np.float32), "b")]
    model = tessera.load(model_of([onnx.helper.make_node("Conv", ["x", "w", "b"], ["y"])], [("x", [1, 4, 12, 12])], [("y", [1, 6, 10, 10])], weights))
    data = [(r.uniform(4, 6, (1, 4, 12, 12))).astype(np.float32) for _ in range(4)]

    def shift(**options):
        made, _ = tessera.quantize(model, samples=data, activations="uint16", **options)
        return max(abs(np.mean([made(x) - model(x) for x in data], axis=(0, 1, 3, 4))))

    assert shift(bias_correction=True) < 0.1 * shift()


def test_older_opsets_are_raised(profile):
    old = tessera.load(cnn(opset=14))
    made, _ = tessera.quantize(old, samples=images(2))
    assert onnx.load_model_from_string(made.to_onnx()).opset_import[0].version == 14
    wide, _ = tessera.quantize(old, samples=images(2), activations="int16")
    assert onnx.load_model_from_string(wide.to_onnx()).opset_import[0].version == 21


def test_the_same_input_gives_the_same_file(small):
    a, b = (tessera.quantize(small, samples=images(3), scheme="entropy")[0].to_onnx() for _ in range(2))
    assert a == b


@pytest.mark.parametrize("options, words", [
    (dict(), "no samples"), (dict(samples=images(1), scheme="min"), "scheme is one of"), (dict(samples=images(1), activations="u8"), "type of activations"),
    (dict(samples=images(1), percentile=30), "percentile"), (dict(samples=images(1), keep=["nothing"]), "matches no node"),
    (dict(samples=images(1), keep=["*"]), "no layer"), (dict(samples=images(1), weight_scheme="max"), "weights")])
def test_wrong_usage_says_what(small, options, words):
    with pytest.raises(tessera.Error, match=words) as e:
        tessera.quantize(small, **options)
    assert e.value.code == "E0501"


def test_bad_data_is_named(small):
    bad = images(2)
    bad[1][0, 0, 0, 0] = np.nan
    with pytest.raises(tessera.Error, match='"x" is NaN in sample 2') as e:
        tessera.calibrate(small, bad)
    assert e.value.code == "E0407"
    with pytest.raises(tessera.Error) as e:
        tessera.calibrate(small, [{}])
    assert e.value.code == "E0402"
    with pytest.raises(tessera.Error) as e:
        tessera.calibrate(small, [np.zeros((1, 4, 16, 16), np.float32)])
    assert e.value.code == "E0405"


def test_a_profile_of_another_model_is_refused(profile):
    other = tessera.load(cnn(seed=1))
    with pytest.raises(tessera.Error, match="another model") as e:
        tessera.quantize(other, profile)
    assert e.value.code == "E0501"
    with pytest.raises(tessera.Error, match="different models"):
        tessera.calibrate(other, images(1)).merge(profile)


def test_a_value_that_is_always_zero(small):
    made, report = tessera.quantize(small, samples=[np.zeros((1, 3, 16, 16), np.float32)])
    assert np.isfinite(made(images(1)[0])).all() and report.quantized == 4


def test_a_model_without_layers_is_refused():
    model = tessera.load(model_of([onnx.helper.make_node("Relu", ["x"], ["y"])], [("x", [4])], [("y", [4])], []))
    with pytest.raises(tessera.Error, match="convolution or matrix product") as e:
        tessera.quantize(model, samples=[np.zeros(4, np.float32)])
    assert e.value.code == "E0501"


def test_onnxruntime_gives_the_same_answers(small, profile):
    onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    made, report = tessera.quantize(small, profile)
    session = onnxruntime.InferenceSession(made.to_onnx(), providers=["CPUExecutionProvider"])
    compiled = tessera.compile(made, cache="")
    scale = report.layers[-1].scale
    for x in images(8, 70):
        want = session.run(None, {"x": x})[0]
        assert np.allclose(compiled(x), want, atol=4 * scale), np.abs(compiled(x) - want).max()
