"""Faults against the contract of a call: form of results, memory, inputs, repetition."""

from tests.teeth.mutant import Mutant

UNPACKED = "    return codes.reshape(-1)[:count].copy()\n"
QUANTIZED = "    return codes.astype(np.int8).reshape(rows, columns), scale\n"
TRANSFORMED = "    return round_float32(y.reshape(x.shape), dtype)\n"
WEIGHT = "    return weight[:, : module.in_features].copy()\n"


def contract(
    name: str, operation: str, requirement: str, fault: str, file: str, old: str, new: str
) -> Mutant:
    """Change one file."""
    return Mutant(name, operation, (requirement,), fault, file, old, new)


MUTANTS = (
    contract(
        "words-returned-unsigned",
        "pack_words",
        "NUM-OUTPUT-FORM",
        "words are uint32",
        "words.py",
        "    return words.view(np.int32)\n",
        "    return words\n",
    ),
    contract(
        "codes-returned-as-integers",
        "quantize_activations",
        "NUM-OUTPUT-FORM",
        "codes are int32",
        "activations.py",
        QUANTIZED,
        QUANTIZED.replace("int8", "int32"),
    ),
    contract(
        "scales-without-their-axis",
        "quantize_activations",
        "NUM-OUTPUT-FORM",
        "scales are [M] instead of [M, 1]",
        "activations.py",
        QUANTIZED,
        QUANTIZED.replace("scale\n", "scale.squeeze(axis=1) if scale.shape[1] == 1 else scale\n"),
    ),
    contract(
        "scales-in-float64",
        "kv_quantize",
        "NUM-OUTPUT-FORM",
        "scales are float64",
        "kv.py",
        "pack_nibbles(qr.astype(np.int8)), scale\n",
        "pack_nibbles(qr.astype(np.int8)), scale.astype(np.float64)\n",
    ),
    contract(
        "scale-keeps-an-axis",
        "kv_quantize",
        "NUM-OUTPUT-FORM",
        "scales are [..., H, L, 1] instead of [..., H, L]",
        "kv.py",
        "pack_nibbles(qr.astype(np.int8)), scale\n",
        "pack_nibbles(qr.astype(np.int8)), scale[..., np.newaxis]\n",
    ),
    contract(
        "list-of-planes",
        "unpack_planes",
        "NUM-OUTPUT-FORM",
        "results come as a list, not as a tuple",
        "planes.py",
        "    return unpack_nibbles(hi), unpack_nibbles(lo)\n",
        "    return [unpack_nibbles(hi), unpack_nibbles(lo)]\n",
    ),
    contract(
        "transform-flattened",
        "hadamard",
        "NUM-OUTPUT-FORM",
        "leading axes are flattened into one",
        "hadamard.py",
        TRANSFORMED,
        "    return round_float32(y.reshape(-1, x.shape[-1]), dtype)\n",
    ),
    contract(
        "weight-transposed",
        "dashq_reconstruct",
        "NUM-OUTPUT-FORM",
        "the weight is [K, N]",
        "dashq.py",
        WEIGHT,
        "    return weight[:, : module.in_features].T.copy()\n",
    ),
    contract(
        "attention-by-token",
        "kv_attention",
        "NUM-OUTPUT-FORM",
        "the result is [B, M, Hq, D]",
        "attention.py",
        "    return round_float64(result, dtype)\n",
        "    return round_float64(result, dtype).swapaxes(1, 2)\n",
    ),
    contract(
        "nested-weight-in-float32",
        "nested_reconstruct",
        "NUM-OUTPUT-FORM",
        "the weight is float32, whatever is asked for",
        "nested.py",
        "    return round_float32(weight, dtype)\n",
        "    return round_float32(weight, dtype).astype(np.float32)\n",
    ),
    contract(
        "codes-are-the-input",
        "unpack_words",
        "NUM-OUTPUT-FRESH",
        "codes of 8 bits are a view of the words",
        "words.py",
        UNPACKED,
        "    if nbits == 8:\n        return words.view(np.uint8)[:count]\n" + UNPACKED,
    ),
    contract(
        "buffer-handed-out-twice",
        "nested_linear",
        "NUM-OUTPUT-FRESH",
        "results live in one buffer that the next call overwrites",
        "nested.py",
        "    return round_float64(total, dtype)\n",
        "    answer = round_float64(total, dtype)\n"
        '    buffer = vars(segments).setdefault("buffer", np.zeros(2**16, np.float64))\n'
        "    shared = buffer.view(answer.dtype)[: answer.size].reshape(answer.shape)\n"
        "    shared[:] = answer\n"
        "    return shared\n",
    ),
    contract(
        "planes-share-memory",
        "kv_quantize",
        "NUM-OUTPUT-FRESH",
        "hi and lo are two views of interleaved bytes",
        "kv.py",
        "    return pack_nibbles(q4.astype(np.int8)), pack_nibbles(qr.astype(np.int8)), scale\n",
        "    both = np.stack([pack_nibbles(q4.astype(np.int8)), pack_nibbles(qr.astype(np.int8))], "
        "axis=-1)\n"
        "    return both[..., 0], both[..., 1], scale\n",
    ),
    contract(
        "weight-kept-and-handed-out-again",
        "nested_reconstruct",
        "NUM-OUTPUT-FRESH",
        "the last weight is kept, and the same array is returned for the same planes",
        "nested.py",
        "    return round_float32(weight, dtype)\n",
        "    key = str((hi.tobytes(), lo is None or lo.tobytes(), scale.tobytes(), dtype))\n"
        "    return vars(segments).setdefault(key, round_float32(weight, dtype))\n",
    ),
    contract(
        "input-transformed-in-place",
        "hadamard",
        "NUM-INPUT-UNCHANGED",
        "the transform overwrites its input",
        "hadamard.py",
        TRANSFORMED,
        "    x.setflags(write=True)\n    x[:] = y.reshape(x.shape)\n" + TRANSFORMED,
    ),
    contract(
        "codes-shifted-in-place",
        "pack_planes",
        "NUM-INPUT-UNCHANGED",
        "8 is added to the codes where they are",
        "planes.py",
        "    excess = (codes + np.int8(8)).astype(np.uint8)\n",
        "    codes.setflags(write=True)\n    codes += np.int8(8)\n"
        "    excess = codes.astype(np.uint8)\n",
    ),
    contract(
        "padding-cleared-in-place",
        "unpack_words",
        "NUM-INPUT-UNCHANGED",
        "spare bits are cleared in the words that were handed in",
        "words.py",
        UNPACKED,
        "    words.setflags(write=True)\n"
        "    words &= np.int32(2 ** (nbits * (32 // nbits)) - 1 if 32 % nbits else -1)\n"
        + UNPACKED,
    ),
    contract(
        "result-depends-on-calls-before",
        "quantize_activations",
        "NUM-INVARIANT-REPEAT",
        "scales are smoothed with those of the call before",
        "activations.py",
        "    scale = np.maximum(largest / np.float32(127), SMALLEST_SCALE)\n",
        "    scale = np.maximum(largest / np.float32(127), SMALLEST_SCALE)\n"
        '    before = vars(check_finite).get("before", np.float32(0))\n'
        '    vars(check_finite)["before"] = scale.max()\n'
        "    scale = np.maximum(scale, before * np.float32(0.25))\n",
    ),
    contract(
        "every-tenth-call-rounds-at-random",
        "dashq_reconstruct",
        "NUM-INVARIANT-REPEAT",
        "weights are rounded stochastically",
        "dashq.py",
        WEIGHT,
        '    turn = vars(fused)["turn"] = 1 + vars(fused).get("turn", 0)\n'
        "    noise = np.random.default_rng(turn).integers(0, 8, weight.shape) == 0\n"
        '    with np.errstate(over="ignore", invalid="ignore"):\n'
        "        weight = np.where(noise, np.nextafter(weight, weight + weight), weight)\n"
        + WEIGHT,
    ),
)
