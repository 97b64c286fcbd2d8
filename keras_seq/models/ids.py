"""Is every id one that the model knows? Asked where ids are known, in calls outside of compiled code.

Inside compiled code it costs nothing and says nothing: there an id that is none gives NaN, or whatever the backend
makes of it.
"""

import keras
from keras import ops

from keras_seq.layers import arguments


def check_ids(name, ids, vocabulary_size, context=None):
    """Refuses ids outside of the vocabulary, and more of them in a row than `context`, padding not counted.

    Args:
        name: of the ids, for the message.
        ids: `[B, T]`, of which 0 is padding where there is a context.
        vocabulary_size: V; None where it is not known.
        context: the most positions; None where there is no such thing.
    """
    if vocabulary_size is not None:
        arguments.below(name, ids, vocabulary_size)
    if context is None or (ids.shape[1] is not None and ids.shape[1] <= context):
        return
    values = arguments.known(ids)
    longest = 0 if values is None else (values != 0).sum(axis=1).max(initial=0)
    if longest > context:
        raise ValueError(f"{name} holds {longest} real ids in a row; expected at most context={context}.")


@keras.saving.register_keras_serializable(package="keras_seq")
class CheckedIds(keras.layers.Layer):
    """Ids as they came, checked by `check_ids`: what stands in front of a functional model.

    Args:
        vocabulary_size: V.
        context: the most positions, padding not counted.

    Raises:
        ValueError: for an id out of range, or more ids in a row than the context, where they are known.
    """

    def __init__(self, vocabulary_size, context, **kwargs):
        super().__init__(**kwargs)
        self.vocabulary_size = arguments.positive_integer("vocabulary_size", vocabulary_size)
        self.context = arguments.positive_integer("context", context)

    def call(self, ids):
        """See the class."""
        check_ids("ids", ids, self.vocabulary_size, self.context)
        return ops.cast(ids, "int32")

    def compute_output_spec(self, ids):
        """As they came, int32."""
        return keras.KerasTensor(ids.shape, dtype="int32")

    def get_config(self):
        """The arguments."""
        return {**super().get_config(), "vocabulary_size": self.vocabulary_size, "context": self.context}
