"""Count rooms, floors, arrows and import cycles of the package, and compare them with their limits.

A room is a package or a module directly in ``mu2mpi/``. An arrow leads from a room to another one that it
imports. All imports count, also those for type checkers and in functions. `__init__` and `__main__` import
the package as users do: they are doors, not rooms, and are listed apart. Exits with 1 if a limit is passed.
"""

import ast
import sys
from collections import defaultdict
from pathlib import Path

LIMITS = {"floors": 8, "arrows": 90, "rooms": 18, "cycles": 0, "top-level modules": 6, "upward imports": 0}
DOORS = ("__init__", "__main__")
# Rooms by floor, from below: no room imports one of a higher floor
ORDER = (
    ("_version", "core"),
    ("data", "losses", "privacy"),
    ("federation",),
    ("methods", "config"),
    ("results",),
    ("execution",),
    ("analysis", "audit", "cluster", "sklearn"),
    ("cli",),
)
WITHOUT_CONFIG = ("data", "losses", "privacy", "federation", "methods")

Graph = dict[str, set[str]]


def read_imports(package: Path) -> Graph:
    """Return the modules of the package that each of its modules names in an import."""
    modules = {}
    for file in package.rglob("*.py"):
        parts = file.relative_to(package.parent).with_suffix("").parts
        modules[".".join(parts).removesuffix(".__init__")] = file
    graph: Graph = {name: set() for name in modules}
    for name, file in modules.items():
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                whole = [f"{node.module}.{alias.name}" for alias in node.names]
                found = [each if each in modules else str(node.module) for each in whole]
            else:
                continue
            graph[name] |= {each for each in found if each in modules} - {name}
    return graph


def room_of(module: str) -> str:
    """Return the room of a module, or the door that it is."""
    return (*module.split("."), "__init__")[1]


def find_cycles(graph: Graph) -> list[list[str]]:
    """Return the groups of nodes that reach each other."""
    reached: Graph = {}
    for start in graph:
        reached[start], new = set(), {start}
        while new := {w for v in new for w in graph[v]} - reached[start]:
            reached[start] |= new
    groups = {frozenset(w for w in reached[v] if v in reached[w]) for v in graph if v in reached[v]}
    return sorted(map(sorted, groups))


def count_floors(rooms: Graph) -> int:
    """Return the number of rooms on the longest path; rooms in a cycle share a floor."""
    shared = {room: "+".join(group) for group in find_cycles(rooms) for room in group}
    merged: Graph = defaultdict(set)
    for room, others in rooms.items():
        name = shared.get(room, room)
        merged[name] |= {shared.get(w, w) for w in others} - {name}
    heights: dict[str, int] = {}

    def height(name: str) -> int:
        if name not in heights:
            heights[name] = 1 + max(map(height, merged[name]), default=0)
        return heights[name]

    return max(map(height, [*merged]), default=0)


def main(package: Path) -> int:
    """Print the table, and return the exit code."""
    graph, at = read_imports(package), {room: k for k, floor in enumerate(ORDER) for room in floor}
    rooms: Graph = {room_of(module): set() for module in graph if room_of(module) not in DOORS}
    doors, upward = dict.fromkeys(DOORS, 0), list[str]()
    for module, others in sorted(graph.items()):
        for other in sorted(others):
            room, target = room_of(module), room_of(other)
            if room in DOORS:
                doors[room] += 1
            elif target in DOORS:
                upward.append(f"{module} imports {other}")
            elif room != target:
                rooms[room].add(target)
                goes_up = at.get(room, -1) < at.get(target, len(ORDER))
                if goes_up or (target == "config" and room in WITHOUT_CONFIG):
                    upward.append(f"{module} imports {other}")
    cycles = find_cycles(graph) + find_cycles(rooms)
    counts = {
        "floors": count_floors(rooms),
        "arrows": sum(map(len, rooms.values())),
        "rooms": len(rooms),
        "cycles": len(cycles),
        "top-level modules": sum(1 for _ in package.glob("*.py")),
        "upward imports": len(upward),
    }
    for name, count in counts.items():
        print(f"{name:18} {count:3} of {LIMITS[name]:2}{'  too many' if count > LIMITS[name] else ''}")
    print("doors, apart       " + ", ".join(f"{door}: {count} imports" for door, count in doors.items()))
    for line in [*upward, *("cycle: " + ", ".join(cycle) for cycle in cycles)]:
        print(line)
    return any(count > LIMITS[name] for name, count in counts.items())


if __name__ == "__main__":
    sys.exit(main(Path(__file__).parents[1] / "mu2mpi"))
