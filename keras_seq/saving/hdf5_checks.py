"""The weights file inside a `.keras` file: it has to hold what it claims to hold.

An HDF5 dataset names a shape and a type; its bytes may be missing (sparse), compressed, shared with another dataset or
in another file, and whoever reads it takes as much memory as the shape asks for. Keras writes none of these:

    every dataset one stretch of plain numbers     every object named once     sum of their sizes <= size of the file
"""

import io

import h5py

PLAIN = "biufV"  # kinds of NumPy: truth values, whole numbers, floating point; V with two bytes is bfloat16


class WeightsError(ValueError):
    """A weights file that claims something else than it holds."""


def check_weights(data: bytes):
    """Refuses weights that would take more memory than the bytes that they come in.

    Args:
        data: a whole HDF5 file. Of its datasets only the descriptions are read.

    Raises:
        WeightsError: a dataset is compressed, sparse, in pieces, in another file, or holds no plain numbers; something
            else than groups and datasets is there, or has two names; all together are larger than the file.
        OSError: it is no HDF5 file.
    """
    with h5py.File(io.BytesIO(data), "r") as file:
        sizes = sum(_sizes(file, {_address(file)}))
    if sizes > len(data):
        raise WeightsError(f"its datasets claim {sizes} bytes of numbers, the file has {len(data)}")


def _sizes(group, seen):
    """The bytes of each dataset in a group and the groups in it."""
    for name in group:
        kind = group.get(name, getlink=True)
        if not isinstance(kind, h5py.HardLink):
            raise WeightsError(f"its {name!r} is a {type(kind).__name__}; expected numbers")
        item = group[name]
        if _address(item) in seen:
            raise WeightsError(f"its {item.name!r} has another name too; expected each part once")
        seen.add(_address(item))
        _check_attributes(item)
        if isinstance(item, h5py.Dataset):
            yield _size(item)
        elif isinstance(item, h5py.Group):
            yield from _sizes(item, seen)
        else:
            raise WeightsError(f"its {item.name!r} is a {type(item).__name__}; expected numbers")


def _size(dataset) -> int:
    described = dataset.id.get_create_plist()
    numbers = dataset.dtype
    if numbers.kind not in PLAIN or numbers.fields or numbers.subdtype:
        raise WeightsError(f"its {dataset.name!r} holds {numbers}; expected plain numbers")
    contiguous = described.get_layout() in (h5py.h5d.CONTIGUOUS, h5py.h5d.COMPACT)
    whole = dataset.id.get_storage_size() == dataset.nbytes
    if not contiguous or described.get_nfilters() or described.get_external_count() or not whole:
        raise WeightsError(
            f"its {dataset.name!r} is compressed, sparse or elsewhere; expected {dataset.nbytes} bytes in one stretch"
        )
    return dataset.nbytes


def _check_attributes(item):
    """One value an attribute: a list of texts could be one long text many times."""
    for name in item.attrs:
        if item.attrs.get_id(name).shape != ():
            raise WeightsError(f"the attribute {name!r} of {item.name!r} is a list; expected one value")


def _address(item):
    found = h5py.h5o.get_info(item.id)
    return found.fileno, found.addr
