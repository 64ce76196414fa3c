"""`steno slurm bench`: how fast scratch, the network and the links between nodes are, compared with earlier results."""

import json
from contextlib import closing
from statistics import median
from typing import Final

import click

from steno.engine.errors import ProviderError
from steno.engine.providers.kind import Host
from steno.engine.providers.slurm.launch import opened
from steno.engine.providers.slurm.query import PREFIX
from steno.engine.providers.slurm.shell import Shell, result_poll

_LONGEST_S: Final = 600.0
_SCRATCH: Final = """
mkdir -p "$1" && file="$1/bench.$$" && trap 'rm -f "$file"' EXIT && from=$(date +%s%N) &&
dd if=/dev/zero of="$file" bs=1M count="$2" conv=fsync 2>/dev/null && to=$(date +%s%N) &&
echo $(($2 * 1048576 * 1000 / ((to - from) / 1000000 + 1)))
"""
"""Bytes a second of a file of `$2` MiB, with what the system buffers written out."""
_DOWNLOAD: Final = 'curl -fsSL --max-time 120 -o /dev/null -w "%{speed_download}\n" "$1"'
_NODES: Final = """
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR=$(scontrol show node -o "$first" | sed "s/.*NodeAddr=\\([^ ]*\\).*/\\1/")
exec python3 -c "$1" "$2"
"""
_ALL_REDUCE: Final = """
import os, socket, sys, threading, time
from array import array
from operator import add
rank, size, rounds = int(os.environ["SLURM_PROCID"]), int(sys.argv[1]) << 20, 5
port = 29400 + int(os.environ["SLURM_JOB_ID"]) % 1000
if rank == 0:
    server = socket.create_server(("", port))
    server.settimeout(60)
    peer, _ = server.accept()
else:
    for _ in range(300):
        try:
            peer = socket.create_connection((os.environ["MASTER_ADDR"], port))
            break
        except OSError:
            time.sleep(0.2)
def swap(part):
    got = bytearray(len(part))
    sender = threading.Thread(target=peer.sendall, args=(part,))
    sender.start()
    view = memoryview(got)
    while view:
        count = peer.recv_into(view)
        if not count:
            raise SystemExit("the other node has gone")
        view = view[count:]
    sender.join()
    return got
values, half, spent = array("d", [rank + 1.0]) * (size // 8), size // 16, 0.0
for _ in range(rounds):
    mine, theirs = (slice(half), slice(half, None)) if rank == 0 else (slice(half, None), slice(half))
    begun = time.perf_counter()
    got = array("d", bytes(swap(values[theirs].tobytes())))
    spent += time.perf_counter() - begun
    total = array("d", map(add, values[mine], got))
    begun = time.perf_counter()
    rest = array("d", bytes(swap(total.tobytes())))
    spent += time.perf_counter() - begun
    assert set(total) | set(rest) == {3.0}, "the sum is wrong"
if rank == 0:
    print(int(size * rounds / spent))
"""
"""Two nodes sum `argv[1]` MiB of doubles: each sends one half and gets it back summed. Bytes a second each way."""


@click.command("bench")
@click.option("--size", metavar="MIB", type=click.IntRange(1, 1 << 20), default=1024, help="Of the file on scratch.")
@click.option("--url", metavar="URL", help="Also download this.")
@click.option("--nodes", is_flag=True, help="Also sum over sockets between two nodes; this is a job and is billed.")
@click.option("--partition", metavar="NAME", help="Where these two nodes are.")
@click.pass_obj
def bench_command(host: Host, /, size: int, url: str | None, nodes: bool, partition: str | None) -> None:
    """Measure how fast scratch is written; also a download, and the link between two nodes.

    Each result is in the record, and is shown with the median of the earlier results.

    \b
    Examples:
      steno slurm bench
      steno slurm bench --url https://speed.cloudflare.com/__down?bytes=500000000 --nodes
    """
    with closing(opened(host)) as client:
        commands: dict[str, tuple[str, ...]] = {"scratch": ("sh", "-c", _SCRATCH, "sh", client.folder(), str(size))}
        if url is not None:
            commands["download"] = ("sh", "-c", _DOWNLOAD, "sh", url)
        if nodes:
            where = [f"--partition={partition}"] if partition else []
            step = ("srun", "-Q", *where, "-N2", "--ntasks-per-node=1", "-t5", "--mem=500M", "sh", "-c", _NODES, "sh")
            commands["nodes"] = (*step, _ALL_REDUCE, "16")
        rows = [(what, *_measured(host, client, what, words)) for what, words in commands.items()]
    table = host.table(("", "SPEED", "BEFORE"), [(what, _rate(speed), before) for what, speed, before in rows])
    host.print(table, {"bytes_per_second": {what: speed for what, speed, _ in rows}})


def _measured(host: Host, client: Shell, what: str, words: tuple[str, ...]) -> tuple[float, str]:
    """Bytes a second, and the earlier results in words. Raises ProviderError if it cannot be measured."""
    polls = [poll for poll in host.answers(f"{PREFIX}bench {what}") if poll.body and poll.answered]
    earlier = [json.loads(poll.body or b"")["bytes_per_second"] for poll in polls]
    begun = host.clock.now()
    done = client.run(words, timeout=_LONGEST_S)
    try:
        if done.status != 0:
            raise ValueError
        speed = float(done.out.split()[-1])
    except (IndexError, ValueError):
        raise ProviderError(f"{what} on {client.where} cannot be measured: {done.problem}") from None
    req, result = ("bench", what, words[-1]), {"bytes_per_second": speed}
    host.append([result_poll(client.site, f"bench {what}", req, begun, host.clock.now(), result)])
    if not earlier:
        return speed, "–"
    usual = median(earlier)
    return speed, f"{_rate(usual)} (median of {len(earlier)}), now {speed / usual - 1:+.0%}" if usual else "0 MB/s"


def _rate(speed: float) -> str:
    return f"{speed / 1e9:.2f} GB/s" if speed >= 1e9 else f"{speed / 1e6:.1f} MB/s"
