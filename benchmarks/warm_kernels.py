"""A warm C++ kernel through the whole path: API, engine, listener, containers, verdict, stream.

    DOCKER_HOST=unix:///run/docker.sock python benchmarks/warm_kernels.py [IMAGE]

`steno up` with the provider local and a machine that is warm; the shipped vector-add as a checker, one after the other.
The part of the listener and its containers: the same job given to a listener over HTTP, from the request to the result,
over its judgement as processes of this machine, which is compiler, reference and kernel alone; in turns.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
from benchmarks.support import SIZE, Lacking, Measured, measured, report, say
from stenotest.kernels import ADDITION, submission

from steno.engine.kernel.executor import job_of
from steno.engine.kernel.machine.framing import Teller
from steno.engine.kernel.machine.judge import Judge
from steno.engine.kernel.machine.local_cells import LocalCells
from steno.engine.listener.sandbox import ContainerLimits, Containers
from steno.engine.listener.server import ListenerServer
from steno.engine.listener.tasks import Tasks

KERNELS = SIZE.pick(2, 15, 15)
PAUSE = 1  # seconds between kernels, in which containers are started again
TOKEN = "t" * 40
CHANGES = {"solution_code": ADDITION, "language": "cpp", "gpu_type": "CPU", "endpoint": "checker"}


def streamed(url: str) -> tuple[float, float, float]:
    """Seconds of one kernel: from the request to the verdict, to the judge's first word, and from its last word on."""
    began, moments = time.monotonic(), dict[str, float]()
    body = {"problem": "vector-add", **CHANGES}
    with httpx.stream("POST", f"{url}/api/amd/submit", json=body, timeout=300, trust_env=False) as answer:
        if answer.status_code != 200:
            raise SystemExit(answer.read().decode())
        for line in answer.iter_lines():
            if line.startswith("data:"):
                status = json.loads(line.removeprefix("data:"))["status"]
                moments.setdefault(status, time.monotonic())
                last = status
    assert last == "CHECKED", last
    whole = time.monotonic() - began
    return whole, moments["COMPILING"] - began, began + whole - moments["TEST_RESULT"]


def parts(folder: Path, image: str) -> list[float]:
    """Seconds that the judgement by a listener takes longer than as processes."""
    job = job_of(submission("vector-add", **CHANGES), compiler="auto")
    containers, here = Containers(ContainerLimits(image=image, memory=1 << 30), name="benchmark"), LocalCells(folder)
    tasks = Tasks(containers, folder / "listened")
    server = ListenerServer(("127.0.0.1", 0), TOKEN, tasks, containers, 3600)
    thread = threading.Thread(target=server.serve)
    thread.start()
    client = httpx.Client(
        base_url=f"http://127.0.0.1:{server.server_address[1]}",
        headers={"Authorization": f"Bearer {TOKEN}"},
        timeout=300,
        trust_env=False,
    )
    listened, alone = list[float](), list[float]()
    for number in range(KERNELS):
        time.sleep(PAUSE)
        began = time.monotonic()
        assert Judge(job, here, Teller(lambda _line: None)).run() == 0
        alone.append(time.monotonic() - began)
        time.sleep(PAUSE)
        began, seen, task = time.monotonic(), 0, {"state": "queued"}
        client.post("/execute", json={"task_id": f"task-{number}", "job": job}).raise_for_status()
        while task["state"] in {"queued", "running"}:
            task = client.get(f"/tasks/task-{number}", params={"after": seen, "wait": 10}).json()
            seen += len(task["lines"])
        assert task["code"] == 0, task
        listened.append(time.monotonic() - began)
    client.close()
    server.stopped = True
    thread.join()
    tasks.close()
    containers.close()
    return [seconds - other for seconds, other in zip(listened[1:], alone[1:], strict=True)]


def main(image: str) -> Iterator[Measured]:
    """The whole path, then the listener's part."""
    if not os.environ.get("DOCKER_HOST"):
        raise Lacking(f"no containers: set DOCKER_HOST to an engine that has the image {image}")
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": folder,
            "STENO_RECORD": f"{folder}/record.db",
            "STENO_API_PORT": "0",
            "STENO_API_LOOPBACK": "open",
            "STENO_API_SUBMIT_RATE": "off",
            "STENO_KERNEL_IMAGE": image,
            "AMD_CONTAINER_MEMORY_LIMIT": "1GB",
            "DOCKER_HOST": os.environ["DOCKER_HOST"],
            "STENO_IDLE_TIMEOUT": "20s",
        }
        log = Path(folder) / "log"
        with log.open("w") as out:
            up = subprocess.Popen(
                [sys.executable, "-m", "steno.cli.main", "up"], env=environment, stdout=out, stderr=out
            )
        try:
            while (address := re.search(r"serving (http://\S+)", log.read_text())) is None:
                time.sleep(0.1)
            streamed(address[1])
            times = []
            for _ in range(KERNELS):
                time.sleep(PAUSE)
                times.append(streamed(address[1]))
            while re.search(r"kernels-\S+: .* succeeded", log.read_text()) is None:  # the machine is given back
                time.sleep(0.2)
        finally:
            up.terminate()
            up.wait()
        here = Path(tempfile.mkdtemp(dir=folder))
        Path(folder).chmod(0o755)
        own = parts(here, image)
    whole, first, rest = zip(*times, strict=True)
    say(f"until the judge's first word {min(first):.2f} s; from the last test on {min(rest):.2f} s; at best")
    yield measured("warm-kernel", f"{KERNELS} kernels", whole)
    yield measured("warm-listener", f"{KERNELS} kernels", own)


if __name__ == "__main__":
    report(main(*(SIZE.words or ["steno-lab/kernel:1"])))
