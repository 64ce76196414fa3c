"""Reasons of a waiting job that name a limit of its account, QOS or partition, in plain words. Pure.

Slurm builds such a word from whose limit it is, on whom and of what: `AssocGrpGRESMinutes`, `QOSMaxCpuPerUserLimit`.
Source: https://slurm.schedmd.com/resource_limits.html and the words of 22.05's library.
"""

import re
from typing import Final, NamedTuple

_LIMIT: Final = re.compile(
    r"(?P<whose>Assoc|QOS)?(?P<scale>Grp|Max|Min)"
    r"(?P<what>Cpu|GRES|Mem|Node|BB|Billing|Energy|License|Unknown|Wall|Submit|Job)(?:ory|Duration|s|Jobs?)?"
    r"(?P<sum>RunMinutes|Minutes)?(?:Per(?P<per>Job|Node|User|Account))?(?:Limit|NotSatisfied)?",
    re.IGNORECASE,
)
_WHAT: Final = {  # what is limited → its name, its name as a sum over time, the option that asks for it
    "cpu": ("CPUs", "CPU minutes", "--cpus-per-task"),
    "gres": ("GPUs", "GPU minutes", "--gpu"),
    "mem": ("memory", "memory minutes", "--mem"),
    "node": ("nodes", "node minutes", "fewer nodes"),
    "bb": ("burst buffer", "burst buffer minutes", "--bb"),
    "billing": ("billing units", "billing minutes", "fewer CPUs or GPUs"),
    "energy": ("energy", "energy minutes", "--time"),
    "license": ("licences", "licence minutes", "--licenses"),
    "unknown": ("units of a resource", "minutes of a resource", ""),
    "wall": ("time", "time", "--time"),
}


class Limit(NamedTuple):
    means: str
    remedy: str
    never: bool = False  # the job never runs as it is


def limit(word: str) -> Limit | None:
    """What such a reason means and what to do; None: it is another reason."""
    found = _LIMIT.fullmatch(word)
    if found is None:
        return None
    what, per, summed = found["what"].lower(), (found["per"] or "").lower(), (found["sum"] or "").lower()
    qos = found["whose"] == "QOS"
    group, other = ("its QOS", "use another QOS (--qos)") if qos else ("its account", "use another account (--account)")
    shared = found["scale"] == "Grp" or per == "account"
    if what in ("submit", "job"):
        who, has = (group, "has") if shared else ("you", "have")
        return Limit(f"{who} {has} as many jobs at once as allowed", "wait until one of them ends")
    name, minutes, option = _WHAT[what]
    less = f"ask for less ({option})" if option else "ask for less"
    if summed == "runminutes":
        return Limit(
            f"the allocation of {group} is used up for now: its running jobs have reserved all {minutes}",
            f"wait until one of them ends, ask for less time, or {other}",
        )
    if shared and (summed or what == "wall"):
        return Limit(f"the allocation of {group} is used up ({minutes})", f"{other}, or ask the site for more")
    if shared:
        return Limit(f"the running jobs of {group} have all the {name} they may have at once", f"wait, or {other}")
    if found["scale"] == "Min":
        return Limit(
            f"{group} demands more {name} than it asks for", f"ask for more ({option}), or {other}", never=True
        )
    if summed:
        return Limit(f"it asks for more {minutes} than one job may have", "ask for less time (--time)", never=True)
    if per == "node":
        return Limit(f"it asks for more {name} on a node than one job may have", less, never=True)
    if per == "user":
        return Limit(f"your running jobs have all the {name} that one user may have at once", "wait until one ends")
    return Limit(f"it asks for more {name} than one job may have", less, never=True)
