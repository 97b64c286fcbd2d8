"""Save the weights of a recurrent layer under its cell, where Keras's files have them: .../lstm/cell/vars/0, 1, 2."""

import keras


@keras.saving.register_keras_serializable(package="keras_seq")
class KerasCell(keras.layers.Layer):
    """Write and read the weights of a recurrent layer under the path that Keras's layer uses."""

    def __init__(self, layer):
        super().__init__(name="cell")  # a fixed name makes files of the same weights equal
        # the methods, not the layer, which Keras would track as a sublayer of its own cell
        self._write, self._receive = layer.save_cell_variables, layer.load_cell_variables

    def save_own_variables(self, store):
        """Write the layer's variables into a store of Keras's weights file."""
        self._write(store)

    def load_own_variables(self, store):
        """Read the layer's variables from a store of Keras's weights file."""
        self._receive(store)
