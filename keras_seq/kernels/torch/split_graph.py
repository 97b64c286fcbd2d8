"""Split a graph that make_fx recorded: what depends on weights alone is computed once, and passed to the rest.

Between two changes of the weights, each call would join the same projections of queries, keys and values to one matrix,
or cast the same weights to bfloat16.
"""

from collections.abc import Sequence

import torch

from keras_seq.kernels.torch.simplified_graph import is_drawn, works_in_place

CONSTANT, WEIGHTS, REST = range(3)  # what a node depends on, at most


def split(
    module: torch.fx.GraphModule, weights: Sequence[torch.Tensor]
) -> tuple[torch.fx.GraphModule, torch.fx.GraphModule]:
    """Return a module from the weights to a tuple of tensors, and one from all arguments and these to the results.

    The tuple has nothing that depends on quantized weights, which would be larger than they are; it is empty if an
    operation of the graph works in place.

    Args:
        module: What `make_fx` returns; it becomes the second of the two.
        weights: Its first arguments.
    """
    graph, first = module.graph, torch.fx.Graph()
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    levels = {node: REST if weight.itemsize == 1 else WEIGHTS for node, weight in zip(inputs, weights, strict=False)}
    copies = {node: first.node_copy(node) for node in levels}
    constants = () if any(map(works_in_place, graph.nodes)) else ("get_attr", "call_function")
    for node in graph.nodes:
        if node not in levels:
            own_level = CONSTANT if node.op in constants and not is_drawn(node) else REST
            levels[node] = max([own_level, *map(levels.get, node.all_input_nodes)])
            if levels[node] != REST:
                copies[node] = first.node_copy(node, copies.get)
    passed = [
        node
        for node in copies
        if levels[node] == WEIGHTS and node not in inputs and any(levels[user] == REST for user in node.users)
    ]
    first.output(tuple(map(copies.get, passed)))
    first.eliminate_dead_code()
    last_input = inputs[-1]
    for node in passed:
        with graph.inserting_after(last_input):
            last_input = graph.placeholder(f"fixed_{node.name}")
        node.replace_all_uses_with(last_input)
    graph.eliminate_dead_code()
    return torch.fx.GraphModule(module, first), module
