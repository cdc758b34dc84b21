"""Prints the results of bench/run as one table: medians over the rounds, and ratios to durable Switchboard."""

import json
import statistics
import sys
from collections import defaultdict

BASE = "switchboard"
COLUMNS = ["binding", "mode", "at once", "server", "per second", "ratio", "p50 ms", "p99 ms", "errors", "peak MiB"]


def median(runs, value):
    found = [value(run) for run in runs]
    return statistics.median(number for number in found if number is not None) if any(found) else None


def latency(name):
    return lambda run: (run["result"]["latency_us"] or {}).get(name)


def shown(number, digits):
    return "-" if number is None else f"{number:,.{digits}f}"


def milliseconds(number):
    return None if number is None else number / 1000


def rows(cells):
    for binding, mode, at_once in sorted({key[:3] for key in cells}):
        servers = {key[3]: runs for key, runs in cells.items() if key[:3] == (binding, mode, at_once)}
        rates = {server: median(runs, lambda run: run["result"]["per_second"]) for server, runs in servers.items()}
        base = rates.get(BASE)
        for server, runs in servers.items():
            rate = rates[server]
            yield [
                binding,
                mode,
                str(at_once),
                server,
                shown(rate, 0),
                shown(rate / base if rate is not None and base else None, 2),
                shown(milliseconds(median(runs, latency("p50"))), 2),
                shown(milliseconds(median(runs, latency("p99"))), 2),
                str(sum(run["result"]["errors"]["count"] for run in runs)),
                shown(max(run["peak_kib"] for run in runs) / 1024, 0),
            ]


def main():
    cells = defaultdict(list)
    with open(sys.argv[1], encoding="utf-8") as lines:
        for line in lines:
            run = json.loads(line)
            result = run["result"]
            cells[(result["binding"], result["mode"], result["concurrency"], run["server"])].append(run)
    table = [COLUMNS, *rows(cells)]
    widths = [max(len(row[index]) for row in table) for index in range(len(COLUMNS))]
    rounds = max((len(runs) for runs in cells.values()), default=0)
    for position, row in enumerate(table):
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |")
        if position == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")
    print(f"\nMedians of {rounds} rounds; ratio: rate over that of durable Switchboard in the same cell.")


main()
