"""Which processors multiply bfloat16, and which do so faster than float32."""

import pytest

from keras_seq.ops import dispatch

AMD, INTEL, ARM = "vendor_id : AuthenticAMD\nflags : ", "vendor_id : GenuineIntel\nflags : ", "Features : "


@pytest.mark.parametrize(
    ("description", "multiplies", "faster"),
    [
        (AMD + "avx2 avx512f", False, False),
        (AMD + "avx512f avx512_bf16", True, True),
        (INTEL + "avx512f avx512_bf16", True, False),
        (INTEL + "avx512f avx512_bf16 amx_bf16 amx_tile", True, True),
        (ARM + "asimd sve i8mm bf16", True, True),
        (ARM + "asimd sve svebf16", False, False),
        ("", False, False),
    ],
)
def test_what_processors_do_in_bfloat16(monkeypatch, description, multiplies, faster):
    monkeypatch.setattr(dispatch, "_processor_description", lambda: description)
    assert dispatch.cpu_multiplies_bfloat16.__wrapped__() is multiplies
    assert dispatch.cpu_is_faster_in_bfloat16.__wrapped__() is faster
