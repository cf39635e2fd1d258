"""torch.compile(backend="tessera"): results, gradients, mutation, sizes, fallbacks."""

import copy
import subprocess
import sys
import threading
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tessera
from tessera.torch import FallbackWarning, explain

pytestmark = pytest.mark.filterwarnings("error::tessera.torch.FallbackWarning")


def compiled(model, **options):
    return torch.compile(model, backend="tessera", **options)


def difference(got, want):
    return (got.double() - want.double()).abs().max().item() / (want.double().abs().max().item() + 1e-30)


def check_inference(model, *xs):
    """As close to f64 as eager mode is, within a factor."""
    model.eval()
    with torch.no_grad():
        want = copy.deepcopy(model).double()(*[x.double() if x.is_floating_point() else x for x in xs])
        eager, got = model(*xs), compiled(model)(*xs)
    assert got.dtype == eager.dtype and got.shape == eager.shape and got.stride() == eager.stride()
    assert difference(got, want) <= 3 * difference(eager, want) + 1e-6


def check_training(model, *xs):
    """The loss, all gradients and all buffers of a training step."""
    model.train()
    exact, plain = copy.deepcopy(model).double(), copy.deepcopy(model)

    def step(m, inputs):
        loss = m(*inputs).square().mean()
        loss.backward()
        return [loss.detach(), *(p.grad for p in m.parameters()), *m.buffers()]

    want = step(exact, [x.double() if x.is_floating_point() else x for x in xs])
    eager = step(plain, xs)
    fast = compiled(model)
    loss = fast(*xs).square().mean()
    loss.backward()
    got = [loss.detach(), *(p.grad for p in model.parameters()), *model.buffers()]
    for a, b, c in zip(got, eager, want):
        scale = c.double().abs().max().item() + 1e-6
        off = (a.double() - c.double()).abs().max().item() / scale
        assert off <= 5 * (b.double() - c.double()).abs().max().item() / scale + 1e-5


def mlp():
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))


def convolutions():
    return nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
                         nn.Conv2d(8, 8, 3, groups=4), nn.ConvTranspose2d(8, 6, 2, stride=2), nn.AvgPool2d(2),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 5))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (4, 8)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.layer = nn.Embedding(50, 16), nn.TransformerEncoderLayer(16, 2, 32, dropout=0, batch_first=True)

    def forward(self, ids):
        return self.layer(self.table(ids)).mean(1)


CASES = {"mlp": (mlp, lambda: (torch.randn(3, 8),)),
         "convolutions": (convolutions, lambda: (torch.randn(2, 3, 32, 32),)),
         "attention": (Attention, lambda: (torch.randn(2, 9, 32),)),
         "words": (Words, lambda: (torch.randint(0, 50, (2, 7)),))}


@pytest.mark.parametrize("name", CASES)
def test_inference(name):
    make, inputs = CASES[name]
    check_inference(make(), *inputs())


@pytest.mark.parametrize("name", CASES)
def test_training(name):
    make, inputs = CASES[name]
    check_training(make(), *inputs())


def test_attention_on_the_cpu_has_the_gradients_of_its_definition():
    # PyTorch's own table decomposes the forward op alone, after which gradients are off by orders of magnitude.
    q, k, v = (torch.randn(1, 2, 6, 8, requires_grad=True) for _ in range(3))
    compiled(lambda q, k, v: F.scaled_dot_product_attention(q, k, v))(q, k, v).square().sum().backward()
    got = [t.grad.clone() for t in (q, k, v)]
    exact = [t.detach().double().requires_grad_() for t in (q, k, v)]
    weights = torch.softmax(exact[0] @ exact[1].transpose(-1, -2) / 8**0.5, -1)
    (weights @ exact[2]).square().sum().backward()
    for a, b in zip(got, exact):
        assert difference(a, b.grad) < 1e-4


def test_needs_no_import_of_ours():
    program = ("import torch\nf = torch.compile(lambda x: x * 2 + 1, backend='tessera')\n"
               "print(f(torch.ones(3)).tolist())")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[3.0, 3.0, 3.0]", done.stderr


def test_importing_tessera_does_not_import_torch():
    program = "import sys, tessera; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout.strip() == "False"


def test_inputs_that_are_not_contiguous():
    x, y = torch.randn(6, 4).t(), torch.randn(4, 12)[:, ::2]
    got = compiled(lambda x, y: torch.relu(x) + y.exp())(x, y)
    torch.testing.assert_close(got, torch.relu(x) + y.exp())


def test_outputs_lie_in_memory_as_in_eager_mode():
    def f(x):
        return (x + 1).transpose(0, 2), (x * 2).contiguous(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 4, 5)
    for a, b in zip(compiled(f)(x), f(x)):
        assert a.stride() == b.stride()
        torch.testing.assert_close(a, b)


def test_inputs_are_written_to():
    def f(x, cache, at):
        cache[:, at] = x
        return cache.sum(1)
    cache, expected = torch.zeros(3, 5), torch.zeros(3, 5)
    g = compiled(f)
    for i in range(3):
        x, at = torch.randn(3), torch.tensor(i)
        torch.testing.assert_close(g(x, cache, at), f(x, expected, at))
    torch.testing.assert_close(cache, expected)


def test_frozen_parameters_that_change():
    model = mlp().eval()
    fast, x = compiled(model), torch.randn(2, 8)
    with torch.no_grad():
        for change in (lambda: None, lambda: model[0].weight.mul_(2), lambda: model.load_state_dict(mlp().state_dict()),
                       lambda: setattr(model[3].bias, "data", torch.ones(4)), lambda: model[0].bias.add_(1)):
            change()
            torch.testing.assert_close(fast(x), model(x))


def test_other_lengths_do_not_compile_again():
    graphs = []
    import tessera.torch.backend as backend
    original = backend.build

    def counted(*args):
        graphs.append(args)
        return original(*args)
    backend.build = counted
    try:
        model = Words().eval()
        fast = compiled(model)
        with torch.no_grad():
            made = []
            for n in (7, 8, 9, 12, 30, 5):
                ids = torch.randint(0, 50, (2, n))
                torch.testing.assert_close(fast(ids), model(ids), rtol=1e-4, atol=1e-5)
                made.append(len(graphs))
    finally:
        backend.build = original
    assert made[0] > 0 and len(set(made[2:])) == 1  # for the first length, then for any


def test_training_at_any_length():
    model = Words()
    other = copy.deepcopy(model)
    fast = compiled(model, dynamic=True)
    for n in (7, 11, 4):
        ids = torch.randint(0, 50, (2, n))
        for m in (fast, other):
            m.zero_grad()
            m(ids).square().mean().backward()
        for a, b in zip(model.parameters(), other.parameters()):
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-5)


def test_what_cannot_be_compiled_runs_in_eager_mode():
    def f(x):
        y = torch.exp(x) + 1
        z = torch.linalg.inv(y @ y.t() + torch.eye(4) * 10)
        return torch.relu(z) * 2
    x = torch.randn(4, 6)
    with pytest.warns(FallbackWarning, match=r"inv.*1x"):
        got = compiled(f)(x)
    torch.testing.assert_close(got, f(x), rtol=1e-4, atol=1e-6)
    with pytest.raises(Exception, match="cannot be compiled"):
        compiled(f, options={"fallback": "error"})(x)


def test_dropout_draws_what_eager_mode_draws():
    def f(x):
        return F.dropout(F.dropout(x + 1, 0.3) * 2, 0.5) * 3
    x = torch.randn(40, 30)
    torch.manual_seed(5)
    want = f(x)
    torch.manual_seed(5)
    torch.testing.assert_close(compiled(f, options={"fallback": "error"})(x), want)


def test_complex_numbers_fall_back():
    def f(x):
        return torch.view_as_real(torch.fft.fft(x * 2)).sum()
    x = torch.randn(16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.testing.assert_close(compiled(f)(x), f(x))


def test_explain_says_pieces_and_fallbacks():
    report = explain(lambda x: torch.linalg.inv(torch.exp(x) @ torch.exp(x).t() + torch.eye(4)).relu(), torch.randn(4, 4))
    assert len(report.graphs) == 1 and report.graphs[0].kind == "inference" and len(report.graphs[0].pieces) >= 1
    assert any("inv" in op for op in report.fallbacks)
    assert "eager (1x)" in str(report) and "(4, 4)" in str(report)
    broken = explain(lambda x: print("words") or x + 1, torch.randn(2))
    assert sum(broken.breaks.values()) >= 1


def test_options_that_there_are_not():
    with pytest.raises(Exception, match="no option 'speed'"):
        compiled(lambda x: x + 1, options={"speed": 9})(torch.ones(2))
    with pytest.raises(Exception, match="no mode"):
        compiled(lambda x: x + 1, mode="max-autotune")(torch.ones(2))


def test_many_threads():
    model = mlp().eval()
    fast, xs = compiled(model), [torch.randn(2, 8) for _ in range(4)]
    wrong = []
    with torch.no_grad():
        want = [model(x) for x in xs]
        fast(xs[0])

    def work(i):
        with torch.no_grad():
            for _ in range(50):
                if not torch.allclose(fast(xs[i]), want[i], atol=1e-5):
                    wrong.append(i)
    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_half_precision_and_autocast():
    model = mlp().eval()
    x = torch.randn(3, 8)
    with torch.no_grad():
        with torch.autocast("cpu", torch.bfloat16):
            got, want = compiled(model)(x), model(x)
        assert got.dtype == want.dtype
        torch.testing.assert_close(got.float(), want.float(), rtol=0.05, atol=0.02)


def test_models_from_modules(tmp_path):
    net = convolutions().eval()
    x = torch.randn(2, 3, 32, 32)
    model = tessera.from_torch(net, (x,))
    with torch.no_grad():
        want = net(x)
    torch.testing.assert_close(torch.as_tensor(model(x.numpy())), want, rtol=1e-4, atol=1e-5)
    fast = tessera.compile(net, (x,))
    torch.testing.assert_close(fast(x), want, rtol=1e-4, atol=1e-5)
    assert "0.weight" in model.save(tmp_path / "m.tsr").__repr__() or (tmp_path / "m.tsr").exists()
    batch = torch.export.Dim("batch", min=2)
    open_batch = tessera.from_torch(net, (x,), dynamic_shapes=({0: batch},))
    with torch.no_grad():
        y = torch.randn(5, 3, 32, 32)
        torch.testing.assert_close(torch.as_tensor(open_batch(y.numpy())), net(y), rtol=1e-4, atol=1e-5)
