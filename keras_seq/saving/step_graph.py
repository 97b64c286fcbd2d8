"""Write a step of a model as a graph of few operations, which `templates/engine.js` computes in a page.

    values    the tensors, each after what it is computed from; its number is its place in the list
    value     {"op": "AddV2", "in": [3, 7], "shape": [1, 64], "type": "float32", ...}     all sizes are known, B is 1

Operations have TensorFlow's names and meaning. What only copies is left out, and what only selects is one `Slice`; a
`Reshape` has its input's numbers. Equal values have one number, so that the views cost what they add to the step. An
operation that the engine does not know is refused by its name.
"""

import contextlib
import json

import numpy as np
import tensorflow as tf
from keras import tree

from keras_seq.interpretability.step_views import step_with_views

COPIES = {"Identity", "IdentityN", "StopGradient", "PreventGradient", "EnsureShape", "Snapshot"}
RESHAPES = {"Reshape", "ExpandDims", "Squeeze"}
UNARY = {
    *("Abs", "Ceil", "Cos", "Elu", "Erf", "Erfc", "Exp", "Expm1", "Floor", "IsFinite", "IsInf", "IsNan", "Log"),
    *("Log1p", "LogicalNot", "Neg", "Reciprocal", "Relu", "Relu6", "Rint", "Round", "Rsqrt", "Sigmoid", "Sign", "Sin"),
    *("Selu", "Softplus", "Softsign", "Sqrt", "Square", "Tan", "Tanh", "Cast"),
}
BINARY = {
    *("AddV2", "Sub", "Mul", "RealDiv", "DivNoNan", "Pow", "Maximum", "Minimum", "SquaredDifference", "FloorDiv"),
    *("FloorMod", "Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual", "LogicalAnd", "LogicalOr"),
}
REDUCTIONS = {"Sum", "Mean", "Max", "Min", "Prod", "All", "Any"}
SAME = {"Add": "AddV2", "Div": "RealDiv", "BatchMatMul": "MatMul"}
SAME |= {"BatchMatMulV2": "MatMul", "BatchMatMulV3": "MatMul"}
ARRAYS = ("float32", "int32", "bool")
OPERATIONS = UNARY | BINARY | REDUCTIONS | RESHAPES | {"BroadcastTo", "ConcatV2", "Cumsum", "GatherV2", "LeakyRelu"}
OPERATIONS |= {"LogSoftmax", "MatMul", "OneHot", "Pad", "SelectV2", "Slice", "Softmax", "Transpose"}
EXACT_IN_64_BITS = {"Mul", "Pow", "Prod", "Cumsum", "Sum"}  # may leave the range of int32, where the others rarely do
INT32 = np.iinfo("int32").min, np.iinfo("int32").max
MAX_INLINE = 32  # numbers of a constant that stands in the graph, not among the weights


def step_graph(model, parts, structure) -> tuple[dict, list[np.ndarray]]:
    """Return the graph, to be written as JSON, and the weights by their numbers in it.

    `parts` and `structure` are those of `state_parts`. An operation that is not known, or a size that depends on a
    value, raises a ValueError.
    """
    views = []

    def step(ids, *tensors):
        logits, state, current = step_with_views(model, ids, tree.pack_sequence_as(structure, list(tensors)))
        views[:] = current  # with the tensors of the last trace
        return [logits, *tree.flatten(state), *(x for view in current for x in view.tensors.values())]

    specs = [tf.TensorSpec(part.shape_of(1), part.dtype) for part in parts]
    function = tf.function(step, autograph=False).get_concrete_function(tf.TensorSpec((1, 1), tf.int32), *specs)
    with contextlib.closing(tf.compat.v1.Session(graph=function.graph)) as session:
        writer = _Writer(function, 1 + len(parts), session)
        values, weights, numbers = _needed(writer, [writer.number(tensor) for tensor in function.outputs])
    logits, *rest = numbers
    of_views = iter(rest[len(parts) :])
    graph = {
        "values": values,
        "state": rest[: len(parts)],
        "logits": logits,
        "views": [
            {"kind": view.kind, "layer": view.layer, "tensors": {name: next(of_views) for name in view.tensors}}
            for view in views
        ],
    }
    return graph, weights


def _needed(writer, outputs):
    """Return the values and weights that outputs need, after the inputs, and the new numbers of the outputs."""
    is_needed = [value["op"] == "Input" for value in writer.values]
    for number in outputs:
        is_needed[number] = True
    for number in reversed(range(len(is_needed))):
        if is_needed[number]:
            for n in writer.values[number].get("in", ()):
                is_needed[n] = True
    new, values, weights = {}, [], []
    for number, value in enumerate(writer.values):
        if is_needed[number]:
            new[number] = len(values)
            values.append(value | ({"in": [new[n] for n in value["in"]]} if "in" in value else {}))
            if "weight" in value:
                values[-1]["weight"] = len(weights)
                weights.append(writer.weights[value["weight"]])
    return values, weights, [new[number] for number in outputs]


class _Writer:
    """Numbers the tensors of a function, of which the first are its inputs; the session computes constants."""

    def __init__(self, function, num_inputs, session):
        self.values, self.weights, self._numbers, self._equal = [], [], {}, {}
        self._session = session
        self._captured = dict(
            zip((x.ref() for x in function.inputs[num_inputs:]), function.captured_inputs, strict=True)
        )
        for n, tensor in enumerate(function.inputs[:num_inputs]):
            self._numbers[tensor.ref()] = self._add(tensor, "Input", input=n)

    def number(self, tensor) -> int:
        """Return the number of a tensor, which is added if it has none."""
        stack = [tensor]
        while stack:  # not by recursion, as a step may be a chain of thousands of operations
            last = stack[-1]
            missing = [x for x in last.op.inputs if x.dtype != tf.resource and x.ref() not in self._numbers]
            if last.ref() in self._numbers:
                stack.pop()
            elif missing:
                stack.extend(missing)
            else:
                self._numbers[last.ref()] = self._write(last)
                stack.pop()
        return self._numbers[tensor.ref()]

    def _write(self, tensor):
        op = tensor.op
        kind = SAME.get(op.type, op.type)
        if op.type == "ReadVariableOp":
            source = self._captured[op.inputs[0].ref()]
            if source.ref() not in self._numbers:
                value = tf.raw_ops.ReadVariableOp(resource=source, dtype=tensor.dtype)
                self._numbers[source.ref()] = self._constant(value, "Variable")
            return self._numbers[source.ref()]
        if tensor.ref() in self._captured:
            return self._constant(self._captured[tensor.ref()])
        inputs = [self._numbers[x.ref()] for x in op.inputs]
        if kind in COPIES:
            return inputs[self._place(tensor)]
        constant = tf.get_static_value(tensor)
        if constant is None and inputs and all(self.values[n]["op"] == "Constant" for n in inputs):
            constant = None if op.op_def.is_stateful else self._session.run(tensor)
        if constant is not None:
            return self._constant(constant)
        if not tensor.shape.is_fully_defined():
            raise ValueError(f"the shape of {op.type}'s result, {tensor.shape}, depends on a value")
        return getattr(self, f"_{kind}", self._plain)(tensor, op, inputs, kind)

    def _add(self, tensor, op, inputs=(), shape=None, **attributes):
        dtype = {"int64": "int32"}.get(tensor.dtype.name, tensor.dtype.name)
        if dtype not in ARRAYS or (tensor.dtype == tf.int64 and op in EXACT_IN_64_BITS):
            raise ValueError(f"a page computes in float32, int32 and bool, not {op} in {tensor.dtype.name}")
        shape = tensor.shape.as_list() if shape is None else shape
        return self._number(
            {"op": op, "shape": shape, "type": dtype, **({"in": [*inputs]} if inputs else {}), **attributes}
        )

    def _constant(self, value, op="Constant"):
        """Add a constant, or a variable's value: its numbers, if they are few, else the number of a weight."""
        value = np.asarray(value)
        dtype = {"f": "float32", "b": "bool", "i": "int32", "u": "int32"}.get(value.dtype.kind)
        if dtype is None:
            raise ValueError(f"a page has no constants of {value.dtype}")
        if dtype == "int32":
            value = np.clip(value, *INT32)  # limits, such as the largest int64
        entry = {"op": op, "shape": [*value.shape], "type": dtype}
        if value.size <= MAX_INLINE:
            numbers = value.astype("float64").ravel().tolist()
            entry["numbers"] = [x if np.isfinite(x) else str(x).replace("inf", "Infinity") for x in numbers]
        else:
            entry["weight"] = len(self.weights)
            self.weights.append(value.astype(dtype))
        return self._number(entry)

    def _number(self, value):
        key = json.dumps(value)
        if key not in self._equal:
            self._equal[key] = len(self.values)
            self.values.append(value)
        return self._equal[key]

    # Operations of which the graph says more than their inputs. What they take as tensors is constant: axes, sizes.

    def _plain(self, tensor, op, inputs, kind):
        if kind not in OPERATIONS:
            raise ValueError(f"a page has no operation {op.type}")
        if kind in RESHAPES:
            return self._add(tensor, "Reshape", inputs[:1])
        if kind in REDUCTIONS:
            return self._add(tensor, kind, inputs[:1], axes=self._axes(op, 1))
        return self._add(tensor, kind, inputs[:1] if kind == "BroadcastTo" else inputs)

    @staticmethod
    def _place(tensor):
        """Return which output of its operation a tensor is."""
        return [x.ref() for x in tensor.op.outputs].index(tensor.ref())

    def _static(self, op, n):
        value = tf.get_static_value(op.inputs[n])
        if value is None:
            raise ValueError(f"input {n} of {op.type} depends on a value; a page needs a constant there")
        return np.asarray(value)

    def _axes(self, op, n):
        rank = op.inputs[0].shape.rank
        return sorted({int(axis) % rank for axis in self._static(op, n).ravel()})

    def _BiasAdd(self, tensor, op, inputs, kind):
        if op.get_attr("data_format") != b"NHWC":
            raise ValueError("a page has no BiasAdd of channels that come first")
        return self._add(tensor, "AddV2", inputs)

    def _Select(self, tensor, op, inputs, kind):
        if op.inputs[0].shape != tensor.shape:
            raise ValueError("a page has no Select of whole rows; use `where` of equal shapes")
        return self._add(tensor, "SelectV2", inputs)

    def _AddN(self, tensor, op, inputs, kind):
        total = inputs[0]
        for number in inputs[1:]:
            total = self._add(tensor, "AddV2", [total, number])
        return total

    def _LeakyRelu(self, tensor, op, inputs, kind):
        return self._add(tensor, kind, inputs, alpha=op.get_attr("alpha"))

    def _MatMul(self, tensor, op, inputs, kind):
        names = ("transpose_a", "transpose_b") if op.type == "MatMul" else ("adj_x", "adj_y")
        return self._add(tensor, kind, inputs, transpose=[bool(op.get_attr(name)) for name in names])

    def _Transpose(self, tensor, op, inputs, kind):
        return self._add(tensor, kind, inputs[:1], axes=self._static(op, 1).tolist())

    def _GatherV2(self, tensor, op, inputs, kind):
        axis, rank = int(self._static(op, 2)), op.inputs[0].shape.rank
        return self._add(tensor, kind, inputs[:2], axis=axis % rank, batch_axes=op.get_attr("batch_dims"))

    def _ConcatV2(self, tensor, op, inputs, kind):
        axis = int(self._static(op, len(inputs) - 1)) % tensor.shape.rank
        return self._add(tensor, kind, inputs[:-1], axis=axis)

    def _Pack(self, tensor, op, inputs, kind):
        axis = op.get_attr("axis") % tensor.shape.rank
        shape = [1 if n == axis else size for n, size in enumerate(tensor.shape)]
        rows = [self._add(tensor, "Reshape", [n], shape) for n in inputs]
        return self._add(tensor, "ConcatV2", rows, axis=axis)

    def _Cumsum(self, tensor, op, inputs, kind):
        flags = {name: bool(op.get_attr(name)) for name in ("exclusive", "reverse")}
        return self._add(tensor, kind, inputs[:1], axis=self._axes(op, 1)[0], **flags)

    def _OneHot(self, tensor, op, inputs, kind):
        on, off = (float(self._static(op, n)) for n in (2, 3))
        return self._add(tensor, kind, inputs[:1], axis=op.get_attr("axis") % tensor.shape.rank, on=on, off=off)

    def _Pad(self, tensor, op, inputs, kind, value=0):
        return self._add(tensor, "Pad", inputs[:1], before=self._static(op, 1)[:, 0].tolist(), value=value)

    def _PadV2(self, tensor, op, inputs, kind):
        return self._Pad(tensor, op, inputs, kind, float(self._static(op, 2)))

    def _Fill(self, tensor, op, inputs, kind):
        return self._add(tensor, "BroadcastTo", inputs[1:])

    def _Tile(self, tensor, op, inputs, kind):
        """Repeat along new axes, then merge them: [2, 3] three times along the last axis is [2, 3, 3] as [2, 9]."""
        sizes = op.inputs[0].shape.as_list()
        one = [x for size in sizes for x in (1, size)]
        many = [x for size, count in zip(sizes, self._static(op, 1).tolist(), strict=True) for x in (count, size)]
        rows = self._add(tensor, "Reshape", inputs[:1], one)
        return self._add(tensor, "Reshape", [self._add(tensor, "BroadcastTo", [rows], many)])

    # Selections: the element [i, j] of the result is [begin + i strides, ...] of the input.

    def _slice(self, tensor, source, number, begin, strides=None, shape=None):
        rank = source.shape.rank
        shape = tensor.shape.as_list() if shape is None else shape
        result = self._add(tensor, "Slice", [number], shape, begin=[*begin], strides=strides or [1] * rank)
        return result if shape == tensor.shape.as_list() else self._add(tensor, "Reshape", [result])

    def _ReverseV2(self, tensor, op, inputs, kind):
        sizes, axes = tensor.shape.as_list(), self._axes(op, 1)
        begin = [size - 1 if axis in axes else 0 for axis, size in enumerate(sizes)]
        return self._slice(tensor, tensor, inputs[0], begin, [-1 if n in axes else 1 for n in range(len(sizes))])

    def _Slice(self, tensor, op, inputs, kind):
        return self._slice(tensor, op.inputs[0], inputs[0], self._static(op, 1).tolist())

    def _Split(self, tensor, op, inputs, kind, source=1, axis=0):
        """Cut out what lies after the outputs before this one; `source` and `axis` are the numbers of inputs."""
        rank, axis = op.inputs[source].shape.rank, int(self._static(op, axis))
        begin = [0] * rank
        begin[axis % rank] = sum(part.shape[axis] for part in op.outputs[: self._place(tensor)])
        return self._slice(tensor, op.inputs[source], inputs[source], begin)

    def _SplitV(self, tensor, op, inputs, kind):
        return self._Split(tensor, op, inputs, kind, source=0, axis=2)

    def _Unpack(self, tensor, op, inputs, kind):
        source = op.inputs[0]
        axis, begin = op.get_attr("axis") % source.shape.rank, [0] * source.shape.rank
        begin[axis] = self._place(tensor)
        shape = [1 if n == axis else size for n, size in enumerate(source.shape)]
        return self._slice(tensor, source, inputs[0], begin, shape=shape)

    def _StridedSlice(self, tensor, op, inputs, kind):
        """Apply the masks of TensorFlow's slices; new axes and removed ones are a Reshape's."""
        source = op.inputs[0]
        begin, end, strides = (self._static(op, n).tolist() for n in (1, 2, 3))
        masks = {
            name: [bool(op.get_attr(f"{name}_mask") >> n & 1) for n in range(len(begin))]
            for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
        }
        num_new, slices = sum(masks["new_axis"]), []
        for n in range(len(begin)):
            if masks["ellipsis"][n]:
                slices += [slice(None)] * (source.shape.rank - (len(begin) - 1 - num_new))
            elif masks["shrink_axis"][n]:
                slices.append(slice(begin[n], begin[n] + 1 or None))
            elif not masks["new_axis"][n]:
                first, last = (None if masks[k][n] else v[n] for k, v in (("begin", begin), ("end", end)))
                slices.append(slice(first, last, strides[n]))
        slices += [slice(None)] * (source.shape.rank - len(slices))
        ranges = [range(size)[part] for size, part in zip(source.shape, slices, strict=True)]
        return self._slice(
            tensor, source, inputs[0], [r.start for r in ranges], [r.step for r in ranges], [len(r) for r in ranges]
        )
