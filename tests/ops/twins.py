"""Watch which optimized versions run."""

import contextlib


@contextlib.contextmanager
def twins_called(*operations):
    """Yield a list that grows by `(name, args)` whenever a twin of one of the operations runs."""
    calls, before = [], [[*operation.twins] for operation in operations]

    def watched(name, twin):
        def run(*args, **kwargs):
            calls.append((name, args))
            return twin(*args, **kwargs)

        return run

    for operation in operations:
        operation.twins[:] = [
            (device, supports, watched(operation.__name__, twin)) for device, supports, twin in operation.twins
        ]
    try:
        yield calls
    finally:
        for operation, twins in zip(operations, before, strict=True):
            operation.twins[:] = twins
