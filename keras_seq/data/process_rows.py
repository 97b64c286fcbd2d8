"""The rows of a batch that one process of several gives to Keras's distribution.

    rows [p B/P, (p+1) B/P) of the B rows of the batch          for process p of P

Every process draws the whole batch, which is a function of the step, so another number of processes trains on the same
batches.
"""

import keras


def rows_of_process(batch):
    """Return the rows of a batch that are this process's; all of them without other processes.

    Args:
        batch: NumPy arrays `[B, ...]` in any nesting.

    Returns:
        NumPy arrays `[B/P, ...]` in the same nesting.

    Raises:
        ValueError: The devices of the distribution do not divide B.
    """
    distribution = keras.distribution.distribution()
    if distribution is None:
        return batch
    return keras.tree.map_structure(lambda x: _rows(x, distribution), batch)


def _rows(x, distribution):
    if len(x) % distribution.num_model_replicas:
        raise ValueError(
            f"A batch has {len(x)} rows; expected a multiple of {distribution.num_model_replicas}, the devices that "
            "share it: use another number of devices, or another batch size."
        )
    rows = len(x) // distribution.num_processes
    first = distribution.data_shard_id * rows
    return x[first : first + rows]
