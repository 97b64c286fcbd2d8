"""Simplify a graph that make_fx recorded: what is the same in every call is not computed in every call."""

import torch

MAX_ELEMENTS = 8  # of a constant that is kept: scalars and shapes


def simplified(module: torch.fx.GraphModule):
    """Return the function of a recorded module, from tensors to tensors.

    Calls of `detach` go, and small tensors that depend on constants alone are computed here, unless they are drawn, or
    a call of the graph works in place.

    Args:
        module: What `make_fx` returns; it is changed.
    """
    graph = module.graph
    calls = [node for node in graph.nodes if isinstance(node.target, torch._ops.OpOverload)]
    in_place = any(node.target._schema.is_mutable for node in calls)
    constants = {node: getattr(module, node.target) for node in graph.nodes if node.op == "get_attr"}
    for node in calls:
        is_drawn = torch.Tag.nondeterministic_seeded in node.target.tags
        if node.target is torch.ops.aten.detach.default:
            node.replace_all_uses_with(node.args[0])
        elif not in_place and not is_drawn and all(x in constants for x in node.all_input_nodes):
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), constants.get)
            value = node.target(*args, **kwargs)
            if isinstance(value, torch.Tensor) and value.numel() <= MAX_ELEMENTS:
                module.register_buffer(f"_{node.name}", value)
                with graph.inserting_before(node):
                    constant = graph.get_attr(f"_{node.name}")
                constants[constant] = value
                node.replace_all_uses_with(constant)
    graph.eliminate_dead_code()
    graph.set_codegen(torch.fx.graph.CodeGen())  # instead of one that takes trees
    module.recompile()
    return module.forward
