"""The costs of a compiled program, from its optimized HLO: memory traffic and collectives.

XLA's own cost analysis counts the body of a loop once, however often it runs; it counts a whole table if a few rows are
gathered; and it does not distinguish a TPU's memory on the chip from HBM. Except for these three, ours agrees with it
(`tests/training/costs/test_program.py`).
"""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple


class Collective(NamedTuple):
    """All exchanges of one kind: the number of calls in a step, and the bytes of all of them together.

    The bytes are those of the whole arrays: the inputs of all-reduce and reduce-scatter, the outputs of all-gather.
    """

    kind: str
    devices: int
    calls: int
    bytes: int

    @property
    def bytes_sent(self) -> float:
        """The bytes that each device sends on a ring: the share of the others, twice for all-reduce."""
        return self.sent_inside(self.devices)

    def sent_inside(self, node: int) -> float:
        """The bytes that each device sends to others of its node, which has `node` devices.

        Devices of a node exchange first, then each a part of the result with the same part's devices of other nodes.
        """
        if self.kind == "collective-permute":
            return self.bytes
        inside = min(self.devices, node)
        return self.bytes * self._ways * (inside - 1) / inside

    def sent_outside(self, node: int) -> float:
        """The bytes that each device sends to other nodes; see `sent_inside`."""
        if self.devices <= node:
            return 0.0
        if self.kind == "collective-permute":
            return self.bytes / node
        nodes = self.devices / node
        part = self.bytes if self.kind == "all-to-all" else self.bytes / node  # of all-to-all, no two have the same
        return part * self._ways * (nodes - 1) / nodes

    @property
    def _ways(self) -> int:
        return 2 if self.kind == "all-reduce" else 1


class Array(NamedTuple):
    """One array of an HLO type; `on_chip`: its layout has S(1) or higher, a memory on the chip."""

    bytes: int
    on_chip: bool


class Instruction(NamedTuple):
    """One line of HLO; `operands` are names of other lines of the same computation."""

    name: str
    arrays: list[Array]
    opcode: str
    operands: list[str]
    attributes: str
    is_root: bool

    @property
    def bytes(self) -> int:
        """The bytes of all its arrays."""
        return sum(array.bytes for array in self.arrays)


Lines = dict[str, Instruction]  # a computation, by name

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
FREE = ("parameter", "constant", "get-tuple-element", "tuple", "bitcast", "after-all", "partition-id", "replica-id")
OUTER = ("while", "call", "conditional", "async-start")  # their computations count in their place
FREE_TARGETS = re.compile('"(ConcatBitcast|AssumeGatherIndicesInBound|AllocateBuffer)"')  # calls that move nothing
SLICES = ("slice", "dynamic-slice", "gather", "slice-start", "dynamic-slice-start")
STARTS = '"AsyncCollectiveStart"'
WORKSPACES = re.compile('custom_call_target="__cublas')  # its last result is scratch memory
UPDATES = {"dynamic-update-slice": 1, "scatter": 2}  # the operand with the new values
HEADER = re.compile(r"(ENTRY )?%?([\w.-]+) \(.*\{$")
LINE = re.compile(r"\s+(ROOT )?%?([\w.-]+) = (.*)")
ARRAY = re.compile(r"\b(pred|[a-z]+(\d+)\w*)\[([\d,]*)\](\{[^{}]*\})?")
CALLEES = re.compile(r"\b(?:calls|to_apply|body|condition|\w+_computations?)=\{?(%[\w.-]+(?:, *%[\w.-]+)*)")


class Program:
    """The text of a compiled program (`compiled.as_text()`), read as far as the costs need it."""

    def __init__(self, text: str):
        self.computations: dict[str, Lines] = {}
        self.entry = current = ""
        partitions = re.search(r"num_partitions=(\d+)", text)
        self.devices = int(partitions[1]) if partitions else 1
        for line in text.splitlines():
            if header := HEADER.match(line):
                current = header[2]
                self.computations[current] = {}
                self.entry = current if header[1] else self.entry
            elif current and (match := LINE.match(line)):
                text = re.sub(r"/\*.*?\*/", "", match[3])
                self.computations[current][match[2]] = _instruction(match[2], text, bool(match[1]))

    def runs(self, computation: str = "", times: int = 1) -> Iterator[tuple[int, Lines, Instruction]]:
        """For each instruction outside of fusions: its number of runs in a step, its computation, and itself.

        Of the branches of a conditional, the one with the most traffic runs.
        """
        lines = self.computations[computation or self.entry]
        for line in lines.values():
            if line.opcode in OUTER:
                callees = self._callees(line)
                if line.opcode == "conditional":
                    callees = [max(callees, key=lambda callee: self.bytes_accessed(computation=callee))]
                for callee in callees:
                    yield from self.runs(callee, times * (self._trip_count(line) if line.opcode == "while" else 1))
            else:
                yield times, lines, line

    def bytes_accessed(self, on_chip: bool = False, computation: str = "") -> int:
        """Bytes that a step reads and writes in HBM; with `on_chip` also in memories on the chip, as XLA counts."""
        total = 0
        for times, lines, line in self.runs(computation):
            if line.opcode in FREE or line.opcode.endswith("-done") or FREE_TARGETS.search(line.attributes):
                continue
            total += times * sum(size for array, size in self._written(lines, line) if on_chip or not array.on_chip)
            for position, name in enumerate(line.operands):
                if name in lines and (on_chip or not any(array.on_chip for array in lines[name].arrays)):
                    total += times * self._read(lines, line, position)
        return total

    def collectives(self) -> list[Collective]:
        """The exchanges between devices, by kind and size of group."""
        totals_of: dict[tuple[str, int], list[int]] = {}
        for times, outside, instruction in self.runs():
            for lines, line in [(outside, instruction), *self._started(instruction)]:
                kind = line.opcode.removesuffix("-start")
                if kind in COLLECTIVES:
                    taken = sum(lines[name].bytes for name in line.operands)
                    written = sum(size for _, size in self._written(lines, line))
                    totals = totals_of.setdefault((kind, group_size(line.attributes, self.devices)), [0, 0])
                    totals[0] += times
                    totals[1] += times * max(taken, written)
        return [Collective(*key, *totals) for key, totals in sorted(totals_of.items())]

    def _started(self, fusion: Instruction) -> Iterator[tuple[Lines, Instruction]]:
        """The collectives that a fusion of a TPU starts.

        Fusions that follow have them too, and carry them on. And it may be a whole reduce-scatter, written as an
        all-reduce of which the device's part is taken.
        """
        for callee in self._callees(fusion) if fusion.opcode == "fusion" else ():
            lines = self.computations[callee]
            for line in lines.values():
                if STARTS in line.attributes:
                    yield from ((lines, lines[name]) for name in line.operands if name in lines)
                if line.opcode == "all-reduce" and callee.startswith("all-reduce-scatter"):
                    yield lines, line._replace(opcode="reduce-scatter")

    def _callees(self, line: Instruction) -> list[str]:
        return [name for names in CALLEES.findall(line.attributes) for name in re.findall(r"[^%, ]+", names)]

    def _trip_count(self, loop: Instruction) -> int:
        if match := re.search(r'"known_trip_count":\{"n":"(\d+)"', loop.attributes):
            return int(match[1])
        # The TPU compiler does not write it. JAX's loops count up from 0 by 1: the integer in the condition is the
        # bound.
        condition = self.computations[re.findall(r"condition=%?([\w.-]+)", loop.attributes)[0]]
        bounds = {line.operands[0] for line in condition.values() if line.opcode == "constant"}
        if len(bounds) != 1 or not (bound := bounds.pop()).isdigit():
            raise ValueError(f"the loop {loop.name} runs an unknown number of times")
        return int(bound)

    def _read(self, lines: Lines, user: Instruction, position: int) -> int:
        """Bytes of an operand that its user reads: for a slice its result, for an update's target the new part."""
        whole = lines[user.operands[position]].bytes
        if position == 0 and user.opcode in SLICES:
            return sum(size for _, size in self._written(lines, user))
        if position == 0 and user.opcode == "dynamic-update-slice":
            return 0
        if position == 0 and user.opcode == "scatter":
            return lines[user.operands[UPDATES["scatter"]]].bytes
        if user.opcode == "bitcast":
            return self._read_by_users(lines, user, whole)
        if user.opcode == "fusion":
            (callee,) = self._callees(user)
            inside = self.computations[callee].values()
            parameter = next(x for x in inside if x.opcode == "parameter" and x.operands == [str(position)])
            return self._read_by_users(self.computations[callee], parameter, whole)
        return whole

    def _read_by_users(self, lines: Lines, line: Instruction, whole: int) -> int:
        """Bytes of a value that its users read together: all of it if it is the result, and never more than that."""
        if line.is_root:
            return whole
        uses = [(x, index) for x in lines.values() for index, name in enumerate(x.operands) if name == line.name]
        return min(whole, sum(self._read(lines, *use) for use in uses))

    def _written(self, lines: Lines, line: Instruction) -> list[tuple[Array, int]]:
        """The arrays that an instruction returns, and the bytes it writes to each: for an update the new part."""
        if line.opcode == "copy-start":  # (target, source, flag)
            return [(line.arrays[0], line.arrays[0].bytes)]
        if line.opcode.endswith("-start") and line.opcode != "all-reduce-start":  # (sources, targets, flags)
            sources = len(line.operands) if line.opcode == "all-gather-start" else 1
            return [(array, array.bytes) for array in line.arrays[sources : 2 * sources]]
        if line.opcode == "custom-call" and len(line.arrays) > 1 and WORKSPACES.search(line.attributes):
            return [(array, array.bytes) for array in line.arrays[:-1]]
        made = [line] * len(line.arrays)
        if line.opcode == "fusion":
            (callee,) = self._callees(line)
            lines = self.computations[callee]
            root = next(x for x in lines.values() if x.is_root)
            made = [lines[name] for name in root.operands] if root.opcode == "tuple" else [root]
            made = [maker for maker in made for _ in maker.arrays]  # one may return several, e.g. a reduction's two
        written = []
        for array, maker in zip(line.arrays, made, strict=True):
            while maker.opcode == "bitcast":
                maker = lines[maker.operands[0]]
            new = UPDATES.get(maker.opcode)
            written.append((array, array.bytes if new is None else lines[maker.operands[new]].bytes))
        return written


def _instruction(name: str, text: str, is_root: bool) -> Instruction:
    """Reads `TYPE OPCODE(OPERANDS), ATTRIBUTES`."""
    end = _closing(text, 0) if text.startswith("(") else text.index(" ")
    arrays = []
    for kind, bits, shape, layout in ARRAY.findall(text[:end]):
        size = math.prod(int(axis) for axis in shape.split(",") if axis) * (8 if kind == "pred" else int(bits))
        arrays.append(Array(-(-size // 8), bool(re.search(r"S\([1-9]", layout))))
    start = text.index("(", end)
    stop = _closing(text, start)
    operands = [operand.strip().rpartition("%")[2] for operand in text[start + 1 : stop - 1].split(",")]
    return Instruction(name, arrays, text[end:start].strip(), operands, text[stop:], is_root)


def _closing(text: str, start: int) -> int:
    """The position after the bracket that closes the one at `start`."""
    depth = 0
    for position in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if depth == 0:
            return position + 1
    raise ValueError(f"no closing bracket in {text[start : start + 100]}")


def group_size(attributes: str, devices: int) -> int:
    """The number of devices in each of a collective's groups, which all have one size.

    The groups are listed, or counted (`[4,2]<=[8]`: two in each), or the axes of a mesh are named. Without groups a
    collective is for all devices.
    """
    if listed := re.search(r"replica_groups=\{\{([\d,]+)\}", attributes):
        return len(listed[1].split(","))
    if counted := re.search(r"replica_groups=\[\d+,(\d+)\]", attributes):
        return int(counted[1])
    if mesh := re.search(r"replica_groups=mesh\[([^\]]*)\] ?\{([^}]*)\}", attributes):
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", mesh[1]))
        return math.prod(int(sizes[axis]) for axis in re.findall(r"'(\w+)'", mesh[2]))
    return devices
