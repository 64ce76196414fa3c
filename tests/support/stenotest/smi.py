"""Stand-ins for the tools of GPU vendors: they print what the tool prints, of a GPU with a known duty cycle.

In its loop a stand-in prints all lines at once, the time of each ten seconds after the last, so that no test waits.
"""

from pathlib import Path

LINES = 400
HEADERS = {
    "nvidia-smi": "timestamp, index, utilization.gpu [%], memory.used [MiB], memory.total [MiB], power.draw [W], "
    "temperature.gpu, clocks_event_reasons.active, ecc.errors.uncorrected.volatile.total",
    "amd-smi": "timestamp,gpu,power_usage,hotspot_temperature,memory_temperature,gfx,gfx_clock,single_bit_ecc,"
    "double_bit_ecc,vram_used,vram_total",
    "rocm-smi": "device,Temperature (Sensor junction) (C),Current Socket Graphics Package Power (W),GPU use (%),"
    "VRAM Total Memory (B),VRAM Total Used Memory (B)",
}
_ROWS = {
    "nvidia-smi": "%(%Y/%m/%d %H:%M:%S)T.123, 0, {use}, 7234, 15360, 71.20, 63, 0x0000000000000040, [N/A]",
    "amd-smi": "%(%s)T,0,312,63,51,{use},1700,0,2,7234,196592",
    "rocm-smi": "%(%s)T\\ncard0,63.0,312.0,{use},206141652992,7585398784",
}
_LOOPS = {"nvidia-smi": "-l", "amd-smi": "-w", "rocm-smi": "--csv"}


def stand_in(folder: Path, tool: str, duty: int) -> str:
    """Write the tool; the `PATH` on which it comes first."""
    folder.mkdir(exist_ok=True)
    (folder / tool).write_text(f"""#!/bin/bash
export TZ=UTC0
echo "{HEADERS[tool]}"
case " $* " in *" {_LOOPS[tool]} "*) ;; *) exit 0;; esac
printf -v at '%(%s)T' -1
for ((n = 0; n < {LINES}; n++)); do
    use=$((n * {duty} % 100 < {duty} ? 100 : 0))
    printf "{_ROWS[tool].replace("{use}", "$use")}\\n" $((at + n * 10))
done
exec sleep 1000
""")
    (folder / tool).chmod(0o755)
    return f"{folder}:/usr/local/bin:/usr/bin:/bin"
