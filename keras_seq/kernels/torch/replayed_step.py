"""Replay training steps on torch: forward pass, loss and backward pass as a list of operations, recorded by make_fx.

In small models the Python of layers, masks and losses takes as long as a tenth of the operations that it calls. After
STEPS_BEFORE steps of one shape the operations are recorded, which takes as long as some twenty steps, and from then on
only these are called: losses and gradients are the same but for rounding.

Variables are read in each step, those of a loss, too. What layers and losses hold besides, such as a dropout rate, a
regularizer or a dtype policy, is part of the record, as it is of a compiled step: compile the model again after a
change. Variables of the model that come and go, as in `quantize`, need none. A step that does more than compute on
tensors is never recorded, and Keras runs it: one that draws random numbers from a seed (not those of torch's own
generator), reads a value (a loss scale), goes by a mask, or has layers that are neither ours nor Keras's, or hooks of
torch. A replayed step leaves no `.grad`.
"""

import functools
import logging

import keras
import optree  # whose calls leave no garbage, as those of torch's own, which `keras.tree` uses here, do
import torch
from keras import tree
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode

from keras_seq.kernels.devices import on_cpu
from keras_seq.kernels.torch.simplified_graph import simplified
from keras_seq.kernels.torch.values import values

STEPS_BEFORE = 20  # of a shape: few steps are not worth a record
MAX_RECORDS = 8  # shapes that are recorded
PACKAGES = ("keras_seq", "keras")  # whose layers keep nothing from step to step but in variables
HOOKS = "_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks"  # of a torch module
READS = {"__array__", "__bool__", "__float__", "__index__", "__int__", "item", "numpy", "tolist"}


def supports(model, train) -> bool:
    """Return whether steps of a model may be recorded.

    Args:
        model: A `keras.Model` about to be compiled, with Keras's own training step.
        train: A `TrainConfig`.
    """
    return (
        on_cpu()  # not tested on a GPU
        and type(model).train_step is keras.Model.train_step
        and isinstance(vars(model).get("train_step"), ReplayedStep | None)  # not the user's
        and train.precision != "float16"
        and not train.rematerialization
        and all(type(layer).__module__.split(".")[0] in PACKAGES for layer in model._flatten_layers())
    )


def apply(model, train):
    """Return a function of a batch that takes the place of `model.train_step`.

    Args:
        model: The model.
        train: Its `TrainConfig`.
    """
    return ReplayedStep(model)


class ReplayedStep:
    """Train on a batch and return the metrics, as `keras.Model.train_step` does.

    Args:
        model: A compiled `keras.Model`.
    """

    def __init__(self, model):
        self.model, self._num_steps, self._records = model, {}, {}
        self._layers = self._contents = self._variables = self._flags = self._trainable = ()

    def __call__(self, data):
        """Train on a batch `(x, y)` or `(x, y, sample_weight)`."""
        leaves = [
            x if x is None or isinstance(x, torch.Tensor) else keras.ops.convert_to_tensor(x)
            for x in optree.tree_leaves(data, none_is_leaf=True)
        ]
        trainable = self._trainable_variables()
        record = None if self._has_hooks() else self._record_of(data, leaves, trainable)
        if record is None:
            return type(self.model).train_step(self.model, data)
        loss, predict, gradients = record(leaves)
        for weight in values(trainable):
            weight.grad = None  # not that of an earlier step; to keep them all would cost a tenth of a small step
        tracker, num_rows = self.model._loss_tracker, len(leaves[0])
        with torch.no_grad():
            tracker.total.value.add_(loss * num_rows)  # as `update_state`, in a tenth of its time
            tracker.count.value.add_(num_rows)
            self.model.optimizer.apply(gradients, trainable)
            if self._has_only_loss:
                return {"loss": tracker.total.value / tracker.count.value}
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(tree.pack_sequence_as(data, leaves))
        return self.model.compute_metrics(x, y, predict(), sample_weight=sample_weight)

    def _trainable_variables(self):
        """Return those of the model, collected anew once one comes, goes, is frozen or thawed."""
        contents = self._contents_now()
        if contents != self._contents:
            self._records, self._num_steps = {}, {}
            self._layers, self._variables, self._flags = [*self.model._flatten_layers()], self.model.variables, ()
            self._contents = self._contents_now()
            self._has_only_loss = self.model.metrics == [self.model._loss_tracker]
        flags = [variable.trainable for variable in self._variables]
        if flags != self._flags:
            self._flags, self._trainable = flags, self.model.trainable_variables
        return self._trainable

    def _contents_now(self):
        """Return what the model is compiled with, and the identities of all variables and layers of its layers."""
        parts = ((x._trainable_variables, x._non_trainable_variables, x._layers, x._metrics) for x in self._layers)
        return self.model.optimizer, self.model._compile_loss, [id(x) for lists in parts for y in lists for x in y]

    def _has_hooks(self):
        """Return whether torch calls functions of the user's on the way, which a record would not."""
        of_layers = (hooks for layer in self._layers for hooks in map(vars(layer).get, HOOKS))
        of_weights = (x._backward_hooks or x._post_accumulate_grad_hooks for x in values(self._trainable))
        return any(of_layers) or any(of_weights)

    def _record_of(self, data, leaves, trainable):
        """Return the record of this batch's shape, or None as long as there is none; the model refuses other nests."""
        key = tuple(None if x is None else (x.shape, x.dtype) for x in leaves), tuple(map(id, trainable))
        if key not in self._records:
            self._num_steps[key] = self._num_steps.get(key, 0) + 1
            if self._num_steps[key] <= STEPS_BEFORE or len(self._records) == MAX_RECORDS:
                return None
            self._records[key] = _recorded(self.model, data, leaves)
        return self._records[key]


def _recorded(model, data, example):
    """Return a function from a batch's tensors to its results, or None if Keras has to run the step.

    `data` is a batch, and `example` its tensors. The results are the loss, a function that returns the predictions, and
    the gradients.
    """
    trainable = model.trainable_variables
    variables = [*trainable, *model.non_trainable_variables]
    kwargs = {"training": True} if model._call_has_training_arg else {}
    assigned, prediction, reasons = [], None, []  # found out while recording

    def step(values, leaves):
        """Return loss, predictions, the values of `assigned` and the gradients, in one list."""
        nonlocal prediction
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(tree.pack_sequence_as(data, leaves))
        values = [value.detach() for value in values]  # tensors of their own, to be differentiated
        weights = [value.requires_grad_() for value in values[: len(trainable)]]
        state = zip(variables, values, strict=True)
        with torch.enable_grad(), keras.StatelessScope(state, collect_losses=True) as scope:
            y_pred = model(x, **kwargs)
            loss = model._compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=True)
            scaled = model.optimizer.scale_loss(loss)
        ends = [scope.get_current_value(variable) for variable in variables]
        assigned[:] = [n for n, (end, value) in enumerate(zip(ends, values, strict=True)) if end is not value]
        prediction = tree.map_structure(lambda _: None, y_pred)
        if any(hasattr(tensor, "_keras_mask") for tensor in tree.flatten(y_pred)):
            reasons.append("its predictions have a mask")
        if not {*scope.state_mapping} <= {*map(id, variables)}:
            reasons.append("it assigns variables that are not the model's")
        gradients = torch.autograd.grad(scaled, weights, allow_unused=True)
        results = [loss, *tree.flatten(y_pred), *(ends[n] for n in assigned)]
        return [*(result.detach() for result in results), *gradients]

    try:
        with torch.random.fork_rng(devices=[]), _NoReads():  # this step is replayed, too, and draws then
            recorded = make_fx(step)([variable.value.detach() for variable in variables], example)
    except Exception as error:  # _NoReads, or whatever torch says of an operation that it cannot record
        reasons.append(f"{type(error).__name__}: {error}")
    if reasons:
        logging.getLogger(__name__).debug("The step of %s is not recorded: %s", model.name, reasons[0])
        return None
    forward = simplified(recorded)
    parameters = [variable.value for variable in variables]  # to which Keras copies what it assigns
    assigned_at = 1 + len(tree.flatten(prediction))
    gradients_at = assigned_at + len(assigned)

    def replay(leaves):
        results = forward(*parameters, *leaves)
        with torch.no_grad():
            for n, value in zip(assigned, results[assigned_at:gradients_at], strict=True):
                variables[n].assign(value)
        predict = functools.partial(tree.pack_sequence_as, prediction, results[1:assigned_at])
        return results[0], predict, results[gradients_at:]

    return replay


class _NoReads(TorchFunctionMode):
    """Refuse to read the values of tensors, which a record would keep; `checks` takes these for symbolic."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if (name := getattr(function, "__name__", "")) in READS:
            raise RuntimeError(f"it reads values, by {name}")
        return function(*args, **(kwargs or {}))
