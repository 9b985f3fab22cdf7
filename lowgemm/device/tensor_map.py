"""Tensor maps, encoded by the driver: their bytes are NVIDIA's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowgemm.runtime.tensor_map import ELEMENT_TYPES

if TYPE_CHECKING:
    from lowgemm.device.context import Context
    from lowgemm.runtime.tensor_map import TensorLayout

__all__ = ["encode_tensor_map"]

_WORD_BYTES = 8
#: The driver takes no null pointer for the strides of a map of one axis, and reads none of them.
_NO_STRIDES = (16,)


def encode_tensor_map(context: Context, layout: TensorLayout) -> bytes:
    """Let the driver encode a tensor map (``cuTensorMapEncodeTiled``).

    Raises
    ------
    DriverError
        The driver refuses it, or is too old to know tensor maps.
    """
    api = context.api
    swizzle = layout.swizzle.upper()
    promotion = layout.l2_promotion.upper()
    promotion = promotion if promotion == "NONE" else f"L2_{promotion}"
    # The driver's order of axes is the other one: innermost first.
    strides = layout.strides_bytes[-2::-1] if layout.rank > 1 else _NO_STRIDES
    encoded = context.run(
        "cuTensorMapEncodeTiled",
        getattr(
            api.CUtensorMapDataType,
            f"CU_TENSOR_MAP_DATA_TYPE_{ELEMENT_TYPES[layout.dtype.name]}",
        ),
        layout.rank,
        layout.pointer,
        [api.cuuint64_t(extent) for extent in reversed(layout.shape)],
        [api.cuuint64_t(stride) for stride in strides],
        [api.cuuint32_t(extent) for extent in reversed(layout.box)],
        [api.cuuint32_t(1)] * layout.rank,
        api.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(api.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{swizzle}"),
        getattr(api.CUtensorMapL2promotion, f"CU_TENSOR_MAP_L2_PROMOTION_{promotion}"),
        api.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    return b"".join(int(word).to_bytes(_WORD_BYTES, "little") for word in encoded.opaque)
