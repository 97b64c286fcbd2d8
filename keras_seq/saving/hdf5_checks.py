"""Check the weights file inside an untrusted `.keras` file: it must not claim more data than it holds.

An HDF5 dataset declares a shape and a type; its bytes may be missing (sparse), compressed, shared with another dataset
or in another file, while a reader allocates memory for the whole shape. Keras writes none of these:

    every dataset contiguous numbers     every object under one name     sum of dataset sizes <= size of the file
"""

import io

import h5py

NUMERIC_KINDS = "biufV"  # NumPy's kinds: bool, int, uint, float; V of two bytes is bfloat16


class WeightsError(ValueError):
    """Raised for a weights file that does not hold what it claims."""


def check_weights(data: bytes) -> None:
    """Check that loading weights takes no more memory than the size of their file.

    Args:
        data: A whole HDF5 file. Only the headers of its datasets are read.

    Raises:
        WeightsError: A dataset is compressed, sparse, chunked, in another file, or not numeric; an object is neither a
            group nor a dataset, or has two names; or the datasets are larger than the file.
        OSError: `data` is not an HDF5 file.
    """
    with h5py.File(io.BytesIO(data), "r") as file:
        sizes = sum(_sizes(file, {_address(file)}))
    if sizes > len(data):
        raise WeightsError(f"its datasets claim {sizes} bytes of numbers, the file has {len(data)}")


def _sizes(group, addresses):
    """Yield the size in bytes of each dataset in a group and its subgroups."""
    for name in group:
        link = group.get(name, getlink=True)
        if not isinstance(link, h5py.HardLink):
            raise WeightsError(f"its {name!r} is a {type(link).__name__}; expected numbers")
        item = group[name]
        if _address(item) in addresses:
            raise WeightsError(f"its {item.name!r} has another name too; expected each object once")
        addresses.add(_address(item))
        _check_attributes(item)
        if isinstance(item, h5py.Dataset):
            yield _size(item)
        elif isinstance(item, h5py.Group):
            yield from _sizes(item, addresses)
        else:
            raise WeightsError(f"its {item.name!r} is a {type(item).__name__}; expected numbers")


def _size(dataset) -> int:
    properties = dataset.id.get_create_plist()
    dtype = dataset.dtype
    if dtype.kind not in NUMERIC_KINDS or dtype.fields or dtype.subdtype:
        raise WeightsError(f"its {dataset.name!r} holds {dtype}; expected plain numbers")
    contiguous = properties.get_layout() in (h5py.h5d.CONTIGUOUS, h5py.h5d.COMPACT)
    complete = dataset.id.get_storage_size() == dataset.nbytes
    if not contiguous or properties.get_nfilters() or properties.get_external_count() or not complete:
        raise WeightsError(
            f"its {dataset.name!r} is compressed, sparse or elsewhere; expected {dataset.nbytes} contiguous bytes"
        )
    return dataset.nbytes


def _check_attributes(item):
    """Check that each attribute is one value: a list of texts could be one long text many times."""
    for name in item.attrs:
        if item.attrs.get_id(name).shape != ():
            raise WeightsError(f"the attribute {name!r} of {item.name!r} is a list; expected one value")


def _address(item):
    info = h5py.h5o.get_info(item.id)
    return info.fileno, info.addr
