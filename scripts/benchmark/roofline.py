"""Shares of a machine-round by phase, and lower bounds on its time on this processor."""

from workload import MACHINE_ROUNDS, D

# Operations per normal, counted in the source of the kernels. A block of ChaCha20
# gives eight normals and takes 80 quarter rounds of 12 operations on 32 bits, and 16 sums. A pair of normals
# takes 44 operations on floating-point numbers (with the square root as one), and 20 on integers of 64 bits,
# which count twice.
INTEGERS_PER_NORMAL = (80 * 12 + 16) / 8 + 20
MULTIPLICATIONS_PER_NORMAL = 44 / 2
COLUMNS = {  # phases in each column of shares
    "noise": ["noise"],
    "increments and step": ["compute", "step"],
    "communication": ["communication", "waiting"],
    "evaluation": ["evaluation"],
}


def table(limits: dict[str, float], phases: dict[str, dict[str, float]]) -> str:
    """Format the shares of phases, and lower bounds on the time of noise and increments.

    `limits` are a core's operations per second, `phases` the seconds by phase of each run, by server and M.
    """
    lines = [f"| run | {' | '.join(COLUMNS)} | rest |", "| --- |" + " ---: |" * (len(COLUMNS) + 1)]
    for key, seconds in phases.items():
        shares = [sum(seconds[phase] for phase in of) / seconds["all"] for of in COLUMNS.values()]
        cells = " | ".join(f"{share:.1%}" for share in (*shares, 1 - sum(shares)))
        lines.append(f"| {key.replace(' ', ', M = ')} | {cells} |")
    multiplications, integers, moved = (limits[n] for n in ("multiplications", "integer operations", "bytes"))
    lines += [
        "",
        f"A core did {multiplications / 1e9:.0f} · 10⁹ fused multiplications (64 bits), "
        f"{integers / 1e9:.0f} · 10⁹ integer operations (32 bits) and copied "
        f"{moved / 1e9:.0f} GB (read and written, second-level cache) in a second. "
        "Per machine-round, untrusted server, M = 100:",
        "",
        "| part | operations | bytes moved | the machine would need | it took |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    noise = D * (INTEGERS_PER_NORMAL / integers + MULTIPLICATIONS_PER_NORMAL / multiplications)
    # Two inner products for each class, and a product that is rounded and added; x, x_{t-1} and q are read
    # and q is written once for each batch of four samples.
    gradient = max(4 * D / multiplications, 8 * D / moved)
    of_noise = (INTEGERS_PER_NORMAL + MULTIPLICATIONS_PER_NORMAL) * D
    rows = [("noise", of_noise, 16 * D / 100, noise), ("increments and step", 4 * D, 8 * D, gradient)]
    for label, operations, read, bound in rows:
        took = sum(phases["untrusted 100"][phase] for phase in COLUMNS[label]) / MACHINE_ROUNDS
        lines.append(
            f"| {label} | {operations:,.0f} | {read:,.0f} | {bound * 1e6:.1f} µs | {took * 1e6:.1f} µs |"
        )
    return "\n".join(lines)
