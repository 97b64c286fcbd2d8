"""Simplify a graph that make_fx recorded: what needs no computation, or is the same in every call, is not computed."""

from collections.abc import Sequence
from types import SimpleNamespace

import torch

aten = torch.ops.aten

MAX_ELEMENTS = 2**16  # of a constant that is kept


def simplified(module: torch.fx.GraphModule, donated: Sequence[int] = ()):
    """Return the function of a recorded module, from tensors to tensors.

    Calls of `detach` go, as do a transposition of a transposition and a view of a view; small tensors that depend on
    constants alone are computed here, unless they are drawn, or a call of the graph works in place. A constant was
    created by the recorded function: what was there before, such as a variable of a loss, may change, and is read in
    each call. Slots of a cache that is donated, and read nowhere else, are written in place.

    Args:
        module: What `make_fx` returns; it is changed.
        donated: Positions of arguments that nobody needs after a call.
    """
    graph = module.graph
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    calls = [node for node in graph.nodes if isinstance(node.target, torch._ops.OpOverload)]
    in_place = any(map(works_in_place, calls))
    constants = {node: getattr(module, node.target) for node in graph.nodes if _is_created(node)}
    for node in calls:
        first = next(iter(node.all_input_nodes), None)
        repeats = first is not None and first.target is node.target
        if node.target in (aten.detach.default, aten.alias.default):
            node.replace_all_uses_with(first)
        elif repeats and node.target is aten.t.default:
            node.replace_all_uses_with(first.args[0])
        elif repeats and node.target is aten.view.default:
            node.replace_input_with(first, first.args[0])
        elif not in_place and not is_drawn(node) and all(x in constants for x in node.all_input_nodes):
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), constants.get)
            value = node.target(*args, **kwargs)
            if isinstance(value, torch.Tensor) and value.numel() <= MAX_ELEMENTS:
                constants[node] = value
    for node, value in constants.items():
        is_result = any(user.op == "output" for user in node.users)
        if node.op != "get_attr" and not is_result and not all(user in constants for user in node.users):
            module.register_buffer(f"_{node.name}", value)
            with graph.inserting_before(node):
                node.replace_all_uses_with(graph.get_attr(f"_{node.name}"))
    graph.eliminate_dead_code()
    for cache in (inputs[n] for n in donated):
        if len(cache.users) == 1 and (user := next(iter(cache.users))).target is aten.index_copy.default:
            user.target = aten.index_copy_.default
    graph.set_codegen(torch.fx.graph.CodeGen())  # instead of one that takes trees
    module.recompile()
    forward = module.forward
    _call_operators(forward.__func__, calls)

    def below_autograd(*tensors):
        with torch._C._AutoDispatchBelowAutograd():  # where make_fx has recorded; to pass it takes 1 us a call
            return forward(*tensors)

    return below_autograd


def works_in_place(node) -> bool:
    """Return whether a node of a graph changes its arguments."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def is_drawn(node) -> bool:
    """Return whether a node of a graph draws random numbers."""
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _is_created(node):
    """Return whether a node is a tensor that the recorded function created, of which make_fx then uses copies only."""
    return node.op == "get_attr" and all(user.target is aten.lift_fresh_copy.default for user in node.users)


def _call_operators(function, calls):
    """Have a function of fx, whose code says `torch.ops.aten.mm.default(...)`, call the operators themselves.

    An `OpOverload` is a function of Python around its operator, and takes twice as long to call.
    """
    ops = SimpleNamespace()
    for operator in {node.target for node in calls}:
        *path, name = f"{operator}".split(".")
        where = ops
        for part in path:
            where = vars(where).setdefault(part, SimpleNamespace())
        setattr(where, name, operator._op)
    function.__globals__["torch"] = SimpleNamespace(**{**vars(torch), "ops": ops})
