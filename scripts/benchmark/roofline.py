"""Where the time of a machine-round goes, and what the machine would allow."""

from workload import MACHINE_ROUNDS, D

# Operations on one number that a normal needs, counted in the source of the kernels. A block of ChaCha20
# gives eight normals and takes 80 quarter rounds of 12 operations on 32 bits, and 16 sums. A pair of normals
# takes 44 operations on floating-point numbers (with the square root as one), and 20 on integers of 64 bits,
# which count twice.
INTEGERS_PER_NORMAL = (80 * 12 + 16) / 8 + 20
MULTIPLICATIONS_PER_NORMAL = 44 / 2
COLUMNS = {
    "noise": ["noise"],
    "increments and step": ["compute", "step"],
    "communication": ["moving", "waiting"],
    "evaluation": ["evaluation"],
}
"""The phases in each column of shares."""


def table(limits: dict[str, float], phases: dict[str, dict[str, float]]) -> str:
    """Return the shares of the phases, and for noise and increments what the machine would allow.

    Parameters
    ----------
    limits : dict
        What a core does in a second.
    phases : dict
        Seconds by phase of each run, by server and M.
    """
    lines = [
        "| run | " + " | ".join(COLUMNS) + " | rest |",
        "| --- |" + " ---: |" * (len(COLUMNS) + 1),
    ]
    for key, seconds in phases.items():
        server, machines = key.split()
        shares = [sum(seconds[phase] for phase in of) / seconds["all"] for of in COLUMNS.values()]
        cells = " | ".join(f"{share:.1%}" for share in (*shares, 1 - sum(shares)))
        lines.append(f"| {server}, M = {machines} | {cells} |")
    lines += [
        "",
        f"A core did {limits['multiplications'] / 1e9:.0f} · 10⁹ fused multiplications (64 bits), "
        f"{limits['integer operations'] / 1e9:.0f} · 10⁹ integer operations (32 bits) and copied "
        f"{limits['bytes'] / 1e9:.0f} GB (read and written, second-level cache) in a second. "
        "Per machine-round, untrusted server, M = 100:",
        "",
        "| part | operations | bytes moved | the machine would need | it took |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    hundred = phases["untrusted 100"]
    noise_time = (
        D * INTEGERS_PER_NORMAL / limits["integer operations"]
        + D * MULTIPLICATIONS_PER_NORMAL / limits["multiplications"]
    )
    # Two inner products for each class, and a product that is rounded and added; x, x_{t-1} and q are read
    # and q is written once for each batch of four samples.
    gradient_operations = 4 * D
    gradient_bytes = 4 * 8 * D / 4
    gradient_time = max(gradient_operations / limits["multiplications"], gradient_bytes / limits["bytes"])
    rows = [
        (
            "noise",
            (INTEGERS_PER_NORMAL + MULTIPLICATIONS_PER_NORMAL) * D,
            2 * 8 * D / 100,
            noise_time,
        ),
        ("increments and step", gradient_operations, gradient_bytes, gradient_time),
    ]
    for label, operations, moved, bound in rows:
        took = sum(hundred[phase] for phase in COLUMNS[label]) / MACHINE_ROUNDS
        lines.append(
            f"| {label} | {operations:,.0f} | {moved:,.0f} | {bound * 1e6:.1f} µs | {took * 1e6:.1f} µs |"
        )
    return "\n".join(lines)
