"""Where Keras keeps the weights of a recurrent layer in a file: not under the layer but one step below, in its cell.

keras.layers.LSTM      .../lstm/cell/vars/0, 1, 2
ours                   .../lstm/vars/0, 1, 2
"""

import keras


@keras.saving.register_keras_serializable(package="keras_seq")
class KerasCell(keras.layers.Layer):
    """Hands what a file holds under `cell` to the recurrent layer that found nothing in its own place.

    It has no weights and writes none.
    """

    def __init__(self, layer):
        super().__init__(name="cell")  # a file of the same weights is the same bytes
        self._receive = layer.load_cell_variables  # the method and not the layer, which is not to be found in here

    def save_own_variables(self, store):
        """Writes nothing: the layer writes its weights."""

    def load_own_variables(self, store):
        self._receive(store)
