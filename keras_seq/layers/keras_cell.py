"""Where Keras keeps the weights of a recurrent layer in a file: not under the layer but one step below, in its cell.

keras.layers.LSTM, and ours      .../lstm/cell/vars/0, 1, 2
ours, of 0.1.0                   .../lstm/vars/0, 1, 2
"""

import keras


@keras.saving.register_keras_serializable(package="keras_seq")
class KerasCell(keras.layers.Layer):
    """Writes the weights of a recurrent layer where Keras's layer of the same name finds them, and reads them there.

    It has no weights itself.
    """

    def __init__(self, layer):
        super().__init__(name="cell")  # a file of the same weights is the same bytes
        # the methods and not the layer, which is not to be found in here
        self._write, self._receive = layer.save_cell_variables, layer.load_cell_variables

    def save_own_variables(self, store):
        self._write(store)

    def load_own_variables(self, store):
        self._receive(store)
