"""What a compiled kernel promises, read from its PTX: what no interpreter can show.

The interpreter divides correctly whatever division is asked for, never contracts a product and a
sum, and runs one program after the other. So these are looked for in the text that the compiler
made.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """What holds of a kernel's PTX beyond what holds of every kernel's."""

    exact: bool
    """No contraction: every float32 operation is rounded by itself."""
    dot_of_float32: bool = False
    """It multiplies float32 matrices, and there alone products and sums are fused."""
    divides: bool = False
    """It divides, and every division is correctly rounded."""
    rounds_to: str | None = None
    """`bf16` or `f16`: values are rounded to it by the instruction that rounds to nearest even."""
    wide_loads: bool = False
    """Some load is 128 bits wide, to registers or straight to shared memory."""
    wide_in: str = ""
    """A file of this package: all loads that are written there are 128 bits wide. Where several
    operands are loaded, one of them keeps `wide_loads` for all."""
    reads_what_it_wrote: bool = False
    """Some load is of what other threads of the program stored before; a barrier is between."""
    matrix_instruction: str | None = None
    """A regular expression: products go through such an instruction."""


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str]
    complaint: str


def _rule(pattern: str, complaint: str) -> _Rule:
    return _Rule(re.compile(pattern, re.MULTILINE), complaint)


_ALWAYS = (
    _rule(r"^\s*(?:@!?%p\d+ )?(?:atom|red)\.", "an atomic operation: the order of a sum is a race"),
    # An exponential may be off by 2**-126 (NUM-ATTENTION-EXP).
    _rule(r"(?<!ex2\.approx)\.ftz\b", "subnormal numbers are flushed to zero"),
    _rule(r"\b(?:div\.(?:full|approx)|rcp\.approx)\b", "an approximate division"),
    _rule(r"\bcvt\.(?:rz|rm|rp|rna)\.\S*f32\b", "a rounding from float32 that is not to nearest"),
    _rule(r"\.tf32\b", "factors cut to TF32"),
    _rule(r"\bst\.local\b|\bld\.local\b", "local memory: an array or a spill"),
)
"""What no kernel of this package may contain."""

_CONTRACTED = _rule(r"\bfma\.\S*f(?:16|32|64)", "a fused multiply-add: the product is not rounded")
_CONTRACTIBLE = _rule(
    r"\b(?:mul|add|sub)\.f32\b", "a float32 operation that ptxas may contract (without .rn)"
)
"""What no kernel of the exact class may contain."""

WIDE_LOAD = re.compile(
    r"\bld\.global\S*\.v4\.[bfsu]32|\bld\.global\S*\.v2\.[bfsu]64"
    r"|\bcp\.async\.c[ag]\.shared\.global.*(?:, 0x10\b|, 16\b)"
)

_FILE = re.compile(r'^\s*\.file\s+(\d+) "([^"]+)"', re.MULTILINE)
_PLACE = re.compile(r"\s*\.loc\s+(\d+) ")
_LOAD = re.compile(r"\bld\.global|\bcp\.async\.c[ag]\.")
_STORE = re.compile(r"\bst\.global\b")
_BARRIER = re.compile(r"\bbar(?:rier)?(?:\.cta)?\.sync\b")

ROUNDING: Mapping[str, re.Pattern[str]] = {
    "bf16": re.compile(r"\bcvt\.rn\.bf16(?:x2)?\.f32\b"),
    "f16": re.compile(r"\bcvt\.rn\.f16(?:x2)?\.f32\b"),
}


def broken_promises(ptx: str, promises: Promises) -> list[str]:
    """Return a line for each promise that a kernel's PTX breaks, with the first place it does."""
    return list(_broken(ptx, promises))


def _broken(ptx: str, promises: Promises) -> Iterator[str]:
    rules = list(_ALWAYS)
    if promises.exact:
        rules.append(_CONTRACTIBLE)
    if promises.exact and not promises.dot_of_float32:
        rules.append(_CONTRACTED)
    for rule in rules:
        found = rule.pattern.search(ptx)
        if found:
            yield f"{rule.complaint}: {_line(ptx, found.start())}"
    if promises.divides and not re.search(r"\bdiv\.rn\.f32\b", ptx):
        yield "no correctly rounded division (div.rn.f32), although the kernel divides"
    if promises.rounds_to and not ROUNDING[promises.rounds_to].search(ptx):
        yield f"no rounding to {promises.rounds_to} by cvt.rn"
    if promises.wide_loads and not WIDE_LOAD.search(ptx):
        yield f"no load of 128 bits; the widest are {_widest_loads(ptx)}"
    if promises.wide_in:
        yield from _narrow_loads(ptx, promises.wide_in)
    if promises.reads_what_it_wrote:
        yield from _early_loads(ptx)
    if promises.matrix_instruction and not re.search(promises.matrix_instruction, ptx):
        yield f"no matrix instruction {promises.matrix_instruction}"


def _narrow_loads(ptx: str, file: str) -> Iterator[str]:
    """Yield what is wrong with the loads of a file, which the compiler notes beside them."""
    numbers = {number for number, path in _FILE.findall(ptx) if path.rpartition("/")[2] == file}
    here, loads = False, []
    for line in ptx.splitlines():
        place = _PLACE.match(line)
        if place:
            here = place[1] in numbers
        elif here and _LOAD.search(line):
            loads.append(line.strip())
    if not loads:
        yield f"no load in {file}"
    for load in loads:
        if not WIDE_LOAD.search(load):
            yield f"a load of less than 128 bits in {file}: {load}"
            return


def _early_loads(ptx: str) -> Iterator[str]:
    """Yield what is wrong with loads that come after stores, in the order of the text."""
    stored, waited, loads = False, False, 0
    for line in ptx.splitlines():
        if _STORE.search(line):
            stored, waited = True, False
        elif _BARRIER.search(line):
            waited = True
        elif stored and _LOAD.search(line):
            loads += 1
            if not waited:
                yield f"a load of what was stored without a barrier between: {line.strip()}"
                return
    if not loads:
        yield "no load after a store, although the kernel reads what it wrote"


def _line(text: str, place: int) -> str:
    return text[text.rfind("\n", 0, place) + 1 : text.find("\n", place)].strip()


def _widest_loads(ptx: str) -> str:
    return ", ".join(sorted(set(re.findall(r"\bld\.global\S*|\bcp\.async\.c\S*", ptx)))) or "none"
