"""Write the step of a model as a program of torch.export, or as an ONNX file that takes any number of positions.

    program    (ids [B, 1], {"state_0": [B, ...], ...}) -> (logits [B, V], {"state_0": ...})
    ONNX       ids [B, T], state_0, ... -> logits [B, T, V], new_state_0, ...

A step is T = 1. Of a model with a recurrence, the ONNX file has the step as the body of one `Scan` over the positions;
what does not depend on the position, such as the product of two low-rank matrices, is computed once, outside of it. A
model whose state is caches of attention alone computes all positions together.
"""

import contextlib
import io
import logging
import pathlib
import tempfile
import warnings

import torch
from keras import tree

from keras_seq.models.exported_model import METADATA, named_tensors
from keras_seq.ops.dispatch import reference

OPSET = 18
QUANTIZED = ("MatMul", "Gather")  # the operations whose weights become int8


class Call(torch.nn.Module):
    """The step of a language model, or its call of any length, with the state as a dictionary of tensors by name."""

    def __init__(self, model, names, structure, any_length):
        super().__init__()
        self.model, self.names, self.structure, self.any_length = model, names, structure, any_length

    def forward(self, ids, state):
        """Return the logits and the new state."""
        state = tree.pack_sequence_as(self.structure, [state[name] for name in self.names])
        with reference():
            if self.any_length:
                logits, state = self.model(ids, state=state, training=False, return_state=True)
            else:
                logits, state = self.model.step(ids, state)
        tensors = named_tensors(state)
        return logits, {name: tensors[name] for name in self.names}


def exported(model, parts, structure, any_length: bool = False, limit: int | None = None):
    """Return the step, or the call of at most `limit` positions, as a `torch.export.ExportedProgram` for any B."""
    batch, rows = torch.export.Dim("batch"), 2  # of the example; 1 would be taken for the only number of rows
    ids = torch.zeros((rows, 2 if any_length else 1), dtype=torch.int32)
    sizes = {0: batch, 1: torch.export.Dim("length", min=2, max=limit)} if any_length else {0: batch}
    state = {part.name: torch.from_numpy(part.first(rows)) for part in parts}
    state_sizes = {part.name: {} if part.batch_axis is None else {part.batch_axis: batch} for part in parts}
    call = Call(model, [part.name for part in parts], structure, any_length).eval()
    with torch.no_grad(), _quiet():
        return torch.export.export(call, (ids, state), dynamic_shapes=(sizes, state_sizes), strict=False)


def write_torch(model, parts, structure, metadata: str, path: pathlib.Path) -> None:
    """Write the step as a file for `torch.export.load`."""
    program, data = exported(model, parts, structure), io.BytesIO()  # not the file: on a full disk torch would abort
    with _quiet():
        torch.export.save(program, data, extra_files={f"{METADATA}.json": metadata})
    path.write_bytes(data.getvalue())


def write_onnx(
    model, parts, structure, metadata: str, path, parallel: bool, limit: int | None, quantization: str | None
) -> None:
    """Write the ONNX file; `parallel` says whether all positions, at most `limit`, are computed together."""
    import onnx

    names, suffix = [part.name for part in parts], "" if parallel else "_of_one"  # a Scan has names of its own
    inputs, outputs = ["ids", *names], ["logits", *(f"new_{name}" for name in names)]
    with torch.no_grad(), _quiet():
        result = torch.onnx.export(
            exported(model, parts, structure, parallel, limit),
            dynamo=True,
            opset_version=OPSET,
            input_names=[name + suffix for name in inputs],
            output_names=[name + suffix for name in outputs],
            verbose=False,
        ).model_proto
    if quantization is not None:
        result = _quantized(result)
    for node in result.graph.node:
        node.ClearField("metadata_props")  # the lines of Python, as long as the weights of a small model
        node.ClearField("doc_string")
    result = result if parallel else _scanned(result, parts)
    result.metadata_props.add(key=METADATA, value=metadata)
    onnx.checker.check_model(result, full_check=True)
    onnx.save(result, path)


def _quantized(step):
    """Return the step with int8 weights; products of matrices round their inputs to 8 bits too, at each call."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory() as folder, _quiet():
        path = pathlib.Path(folder, "step.onnx")
        quantize_dynamic(step, path, QUANTIZED, per_channel=True, weight_type=QuantType.QInt8)
        return onnx.load(path)


def _scanned(step, parts):
    """Return a model whose only input of a length is `ids [B, T]`, over which it scans the step."""
    import onnx
    from onnx import TensorProto, helper

    graph, before, after = step.graph, [], []
    body = onnx.GraphProto(name="step")
    whole = onnx.GraphProto(name="model", initializer=graph.initializer)
    constants = {tensor.name for tensor in graph.initializer}
    body.node.append(helper.make_node("Unsqueeze", ["id", "axis_1"], [graph.input[0].name]))
    whole.initializer.append(helper.make_tensor("axis_1", TensorProto.INT64, [1], [1]))
    for node in graph.node:
        is_constant = constants.issuperset(node.input)
        (whole if is_constant else body).node.append(node)
        constants.update(node.output if is_constant else ())
    for part, old, new in zip(parts, graph.input[1:], graph.output[1:], strict=True):
        shape = ["batch" if size is None else size for size in part.shape]
        kind = old.type.tensor_type.elem_type
        before.append(helper.make_tensor_value_info(part.name, kind, shape))
        after.append(helper.make_tensor_value_info(f"new_{part.name}", kind, shape))
        body.input.append(helper.make_tensor_value_info(old.name, kind, shape))
        body.output.append(helper.make_tensor_value_info(new.name, kind, shape))
    vocabulary_size = graph.output[0].type.tensor_type.shape.dim[1].dim_value
    body.input.append(helper.make_tensor_value_info("id", TensorProto.INT32, ["batch"]))
    body.output.append(graph.output[0])
    ids = helper.make_tensor_value_info("ids", TensorProto.INT32, ["batch", "length"])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "length", vocabulary_size])
    whole.input.extend([ids, *before])
    whole.output.extend([logits, *after])
    scan = helper.make_node(
        "Scan",
        [*(info.name for info in before), "ids"],
        [*(info.name for info in after), "logits"],
        body=body,
        num_scan_inputs=1,
        scan_input_axes=[1],
        scan_output_axes=[1],
    )
    whole.node.append(scan)
    return helper.make_model(
        whole, opset_imports=step.opset_import, ir_version=step.ir_version, producer_name="keras_seq"
    )


@contextlib.contextmanager
def _quiet():
    """Silence torch's exporter and onnxruntime's quantization, which tell dozens of things that need no answer."""
    previous = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(previous)
