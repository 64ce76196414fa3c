"""A warm C++ kernel through the whole path: API, engine, listener, containers, verdict, stream.

    DOCKER_HOST=unix:///run/docker.sock python benchmarks/warm_kernels.py [IMAGE]

`steno up` with the provider local and a machine that is warm; the shipped vector-add as a checker, one after the other.
The part of the listener and its containers: the same job given to a listener over HTTP, from the request to the result,
over its judgement as processes of this machine, which is compiler, reference and kernel alone; in turns.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
import support  # noqa: F401 — makes stenotest importable
from record_table import Measured, show
from stenotest.kernels import ADDITION, KEY, submission

from engine.kernel.executor import job_of
from engine.kernel.machine.frames import Teller
from engine.kernel.machine.here import Here
from engine.kernel.machine.judge import Judge
from engine.listener.sandbox import ContainerLimits, Containers
from engine.listener.server import DeadMan, ListenerServer
from engine.listener.tasks import Tasks

KERNELS = 15
PAUSE = 1  # seconds between kernels, in which containers are started again
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


def parts(folder: Path, image: str) -> tuple[float, float]:
    """Seconds of the judgement by a listener, and as processes."""
    job = job_of(submission("vector-add", **CHANGES), KEY, compiler="auto")
    containers, here = Containers(ContainerLimits(image=image, memory=1 << 30), name="benchmark"), Here(folder)
    tasks = Tasks(containers, folder / "listened")
    server = ListenerServer(("127.0.0.1", 0), KEY, tasks, containers, DeadMan(3600, lambda: tasks.idle))
    thread = threading.Thread(target=server.serve)
    thread.start()
    client = httpx.Client(
        base_url=f"http://127.0.0.1:{server.server_address[1]}",
        headers={"Authorization": f"Bearer {KEY}"},
        timeout=300,
        trust_env=False,
    )
    listened, alone = list[float](), list[float]()
    for number in range(KERNELS):
        time.sleep(PAUSE)
        began = time.monotonic()
        assert Judge(job, here, Teller(KEY, lambda _line: None)).run() == 0
        alone.append(time.monotonic() - began)
        time.sleep(PAUSE)
        began, seen, said = time.monotonic(), 0, {"state": "queued"}
        client.post("/execute", json={"task_id": f"task-{number}", "job": job}).raise_for_status()
        while said["state"] in {"queued", "running"}:
            said = client.get(f"/tasks/task-{number}", params={"after": seen, "wait": 10}).json()
            seen += len(said["lines"])
        assert said["code"] == 0, said
        listened.append(time.monotonic() - began)
    client.close()
    server.stopped = True
    thread.join()
    tasks.close()
    containers.close()
    return statistics.median(listened[1:]), statistics.median(alone[1:])


def main(image: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": folder,
            "STENO_RECORD": f"{folder}/record.db",
            "STENO_API_PORT": "0",
            "STENO_API_SUBMIT_RATE": "off",
            "STENO_KERNEL_IMAGE": image,
            "AMD_CONTAINER_MEMORY_LIMIT": "1GB",
            "DOCKER_HOST": os.environ["DOCKER_HOST"],
            "STENO_IDLE_TIMEOUT": "20s",
        }
        log = Path(folder) / "log"
        with log.open("w") as out:
            up = subprocess.Popen([sys.executable, "-m", "cli.main", "up"], env=environment, stdout=out, stderr=out)
        try:
            while (found := re.search(r"serving (http://\S+)", log.read_text())) is None:
                time.sleep(0.1)
            streamed(found[1])
            times = []
            for _ in range(KERNELS):
                time.sleep(PAUSE)
                times.append(streamed(found[1]))
            while re.search(r"kernels-\S+: .* succeeded", log.read_text()) is None:  # the machine is given back
                time.sleep(0.2)
        finally:
            up.terminate()
            up.wait()
        here = Path(tempfile.mkdtemp(dir=folder))
        Path(folder).chmod(0o755)
        listened, judged = parts(here, image)
    whole, first, rest = (statistics.median(one[index] for one in times) for index in range(3))
    own = listened - judged
    rows = [
        Measured("the whole path", whole, "s", "at most 1.5", met=whole <= 1.5),
        Measured("until the judge's first word", first, "s", "for comparison", met=True),
        Measured("from the last test on", rest, "s", "for comparison", met=True),
        Measured("judged by a listener alone", listened, "s", "for comparison", met=True),
        Measured("judged as processes", judged, "s", "for comparison", met=True),
        Measured("the listener's and containers' own part", own, "s", "at most 0.3", met=own <= 0.3),
    ]
    show("A warm kernel", rows)


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["steno-lab/kernel:1"]))
