"""The backend of torch.compile: an FX graph in, something that computes the same out."""

from __future__ import annotations

import collections
import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import TracingContext
from torch.fx.graph import _BoxedCodeGen

from .._errors import Error
from .decompositions import decompositions
from .graph import Unsupported
from .options import Options
from .pieces import Piece
from .stages import Stages, copy_node, inputs_of, outputs_of, symbols_of, write_dropout_apart


class FallbackWarning(UserWarning):
    """Some ops run in PyTorch's eager mode."""


def tessera_backend(gm: fx.GraphModule, example_inputs: Sequence[Any], *, mode: str | None = None,
                    options: dict[str, Any] | None = None, **rest: Any) -> Callable[..., Any]:
    """torch.compile(model, backend="tessera")."""
    if mode not in (None, "default"):
        raise Error("E0501", f"torch.compile(backend=\"tessera\") has no mode {mode!r}", hint='leave it out, or say "default"')
    given = Options.of(options)

    def compiler(kind: str) -> Callable[..., Any]:
        def compile_graph(graph: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
            return build(graph, kind, given)
        return compile_graph

    whole = aot_autograd(fw_compiler=compiler("forward"), bw_compiler=compiler("backward"),
                         inference_compiler=compiler("inference"), decompositions=decompositions(),
                         partition_fn=min_cut_rematerialization_partition)
    return whole(gm, example_inputs)


def boxed(run: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Says that it takes its arguments as one list, which it clears: they can go as soon as nobody needs them."""
    def call(args: list[Any]) -> Any:
        return run(args)

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def frozen_inputs(gm: fx.GraphModule, kind: str, options: Options) -> set[fx.Node]:
    """The parameters and buffers of an inference graph."""
    context = TracingContext.try_get()
    if kind != "inference" or not options.freeze or context is None or context.fw_metadata is None:
        return set()
    places = [n for n in gm.graph.nodes if n.op == "placeholder"]
    static = set(context.fw_metadata.static_input_indices or ())
    return {n for i, n in enumerate(places) if i in static}


def build(gm: fx.GraphModule, kind: str, options: Options) -> Callable[..., Any]:
    """What computes the graph's outputs: one compiled piece, or several with eager mode between them."""
    write_dropout_apart(gm)
    stages = Stages(gm)
    frozen = frozen_inputs(gm, kind, options) | {n for n in gm.graph.nodes if n.op == "get_attr"}
    symbols = symbols_of(gm)
    pieces: dict[int, Piece] = {}
    broken: list[tuple[str, str]] = []
    while True:
        pieces.clear()
        failed = None
        for stage, nodes in stages.compiled().items():
            try:
                pieces[stage] = Piece(nodes, inputs_of(nodes), outputs_of(nodes), frozen, symbols, options)
            except (Unsupported, Error) as e:
                failed = stage, str(e).splitlines()[0]
                break
        if failed is None:
            break
        broken += [(str(n.target), failed[1]) for n in stages.compiled()[failed[0]]]
        stages.leave(*failed)
    fallbacks = stages.fallbacks()
    say_fallbacks(fallbacks, options)
    if options.report is not None:
        options.report.add(kind, gm, list(pieces.values()), fallbacks)
    return assemble(gm, stages, pieces)


def say_fallbacks(fallbacks: list[tuple[str, str]], options: Options) -> None:
    if not fallbacks or options.fallback == "quiet":
        return
    counts = collections.Counter(op for op, _ in fallbacks)
    reasons = dict(fallbacks)
    listed = "; ".join(f"{op} ({n}x: {reasons[op]})" for op, n in counts.most_common())
    if options.fallback == "error":
        raise Error("E0501", f"these ops cannot be compiled: {listed}")
    warnings.warn(f"PyTorch runs these ops in eager mode: {listed}", FallbackWarning, stacklevel=2)


def assemble(gm: fx.GraphModule, stages: Stages, pieces: dict[int, Piece]) -> Callable[..., Any]:
    """The stages one after the other, as an FX graph that calls the pieces."""
    graph = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    root = torch.nn.Module()
    for n in gm.graph.nodes:
        if n.op in ("placeholder", "get_attr"):
            made[n] = copy_node(graph, n, made.__getitem__)
            if n.op == "get_attr":
                _give_attribute(gm, root, str(n.target))
    for stage in sorted({*stages.stage.values()}):
        if stage not in pieces:
            for n in stages.nodes:
                if stages.stage[n] == stage:
                    made[n] = copy_node(graph, n, made.__getitem__)
            continue
        piece = pieces[stage]
        name = f"piece{stage // 2}"
        root.add_module(name, piece)
        results = graph.call_module(name, tuple(made[i] for i in piece.inputs))
        for k, n in enumerate(piece.outputs):
            made[n] = graph.call_function(operator.getitem, (results, k))
    output = next(n for n in gm.graph.nodes if n.op == "output")
    direct = _direct(gm, output, pieces, stages)
    if direct is not None:
        return direct
    copy_node(graph, output, made.__getitem__)
    graph.set_codegen(_BoxedCodeGen())
    return boxed(fx.GraphModule(root, graph).forward)


def _direct(gm: fx.GraphModule, output: fx.Node, pieces: dict[int, Piece], stages: Stages) -> Callable[..., Any] | None:
    """Without a graph around it, where one piece is all there is."""
    places = [n for n in gm.graph.nodes if n.op == "placeholder"]
    if len(pieces) != 1 or any(s % 2 for s in stages.stage.values()):
        return None
    piece = next(iter(pieces.values()))
    if piece.inputs != places or list(output.args[0]) != piece.outputs:
        return None

    def run(args: list[Any]) -> Any:
        given = tuple(args)
        args.clear()
        return piece.forward(*given)

    return boxed(run)


def _give_attribute(gm: fx.GraphModule, root: torch.nn.Module, target: str) -> None:
    *path, last = target.split(".")
    at, to = gm, root
    for part in path:
        at = getattr(at, part)
        if not hasattr(to, part):
            to.add_module(part, torch.nn.Module())
        to = getattr(to, part)
    value = getattr(at, last)
    if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
        to.register_buffer(last, value)
    else:
        setattr(to, last, value)
