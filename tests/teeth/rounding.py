"""Faults of rounding a float32 result to the output dtype, seen in dashq weights."""

from tests.teeth.mutant import Mutant

CAST = "        return values.astype(numpy_dtype(dtype))\n"
UPPER_HALF = '.astype(np.uint16).view("bfloat16")'


def rounding(name: str, requirement: str, fault: str, new: str) -> Mutant:
    """Replace the cast in rounding.py; `new` ends before it."""
    return Mutant(name, "dashq_reconstruct", (requirement,), fault, "rounding.py", CAST, new + CAST)


MUTANTS = (
    rounding(
        "bfloat16-truncated",
        "NUM-ROUND-NEAREST",
        "bfloat16 is the upper half of float32, cut off",
        '        if dtype == "bfloat16":\n'
        f"            return (values.view(np.uint32) >> 16){UPPER_HALF}\n",
    ),
    rounding(
        "bfloat16-half-away-from-zero",
        "NUM-ROUND-NEAREST",
        "half a unit is added to the upper half of float32: ties go away from zero",
        '        if dtype == "bfloat16":\n'
        f"            return ((values.view(np.uint32) + np.uint32(0x8000)) >> 16){UPPER_HALF}\n",
    ),
    rounding(
        "float16-towards-zero",
        "NUM-ROUND-NEAREST",
        "float16 is rounded towards zero",
        '        if dtype == "float16":\n'
        "            near = values.astype(np.float16)\n"
        "            far = np.abs(near.astype(np.float32)) > np.abs(values)\n"
        "            return np.where(far, np.nextafter(near, np.float16(0)), near)\n",
    ),
    rounding(
        "float16-half-away-from-zero",
        "NUM-ROUND-NEAREST",
        "float16 takes ties away from zero",
        '        if dtype == "float16":\n'
        "            values = np.nextafter(values, np.copysign(np.float32(np.inf), values))\n",
    ),
    rounding(
        "bfloat16-by-way-of-float16",
        "NUM-ROUND-ONCE",
        "weights are dequantized to float16 and then cast to bfloat16",
        '        if dtype == "bfloat16":\n            values = values.astype(np.float16)\n',
    ),
    rounding(
        "float16-by-way-of-bfloat16",
        "NUM-ROUND-ONCE",
        "weights are dequantized to bfloat16 and then cast to float16",
        '        if dtype == "float16":\n'
        '            values = values.astype("bfloat16").astype(np.float32)\n',
    ),
    rounding(
        "float32-by-way-of-float16",
        "NUM-ROUND-ONCE",
        "weights are dequantized to float16 and then widened to float32",
        '        if dtype == "float32":\n            values = values.astype(np.float16)\n',
    ),
    rounding(
        "subnormal-results-flushed",
        "NUM-ROUND-SUBNORMAL",
        "subnormal results are replaced by zero",
        '        tiny = {"float16": 2.0**-14}.get(dtype, 2.0**-126)\n'
        "        values = np.where(np.abs(values) < tiny, values * np.float32(0), values)\n",
    ),
    Mutant(
        "subnormal-parameters-flushed",
        "dashq_reconstruct",
        ("NUM-ROUND-SUBNORMAL",),
        "subnormal float16 scales and zero points are read as zero",
        "dashq.py",
        "        by_row = parameter.astype(np.float32)",
        "        if parameter.dtype == np.float16:\n"
        "            parameter = np.where(np.abs(parameter) < 2.0**-14, 0, parameter)\n"
        "        by_row = parameter.astype(np.float32)",
    ),
    rounding(
        "overflow-clamped",
        "NUM-ROUND-OVERFLOW",
        "results saturate at the largest finite number",
        '        most = {"float16": 65504.0, "bfloat16": 3.3895314e38}.get(dtype, 3.4028235e38)\n'
        "        values = np.clip(values, np.float32(-most), np.float32(most))\n",
    ),
    rounding(
        "overflow-at-the-largest-number",
        "NUM-ROUND-OVERFLOW",
        "all above the largest number is infinite, also what rounds to it",
        '        if dtype == "float16":\n'
        "            values = np.where(np.abs(values) > 65504, values * np.float32(2), values)\n",
    ),
    rounding(
        "sign-of-zero-lost",
        "NUM-ROUND-ZERO",
        "-0 becomes +0",
        "        values = values + np.float32(0)\n",
    ),
    Mutant(
        "zero-weights-skipped",
        "dashq_reconstruct",
        ("NUM-ROUND-ZERO",),
        "groups of scale 0 are skipped and stay +0",
        "dashq.py",
        "    product = difference * scale  # rounded to float32\n",
        "    product = np.where(scale == 0, np.float32(0), difference * scale)\n",
    ),
    Mutant(
        "difference-of-the-wrong-sign-of-zero",
        "dashq_reconstruct",
        ("NUM-ROUND-ZERO",),
        "-(zero - q): equal numbers give -0",
        "dashq.py",
        "    difference = q - zero  # rounded to float32\n",
        "    difference = -(zero - q)\n",
    ),
)
