"""From settings to the policy in force: the first site's names and defaults, and what a value cannot be."""

from collections.abc import Callable
from pathlib import Path

import pytest

from steno.engine.decide.budget import worst_case
from steno.engine.errors import NotConfigured
from steno.engine.providers.dstack.settings import default_gpu, fleet_nodes
from steno.engine.providers.registry import load_settings
from steno.engine.runtime.controllers import routes_of
from steno.engine.settings.settings import Settings, policy_from
from steno.engine.settings.table import PROFILES
from steno.engine.state.policy import Billing, Policy, Rate
from steno.engine.state.run import Requirements
from steno.engine.state.world import World
from steno.events.clock import SECOND

Load = Callable[..., Settings]
MINUTE = 60 * SECOND


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """`load({variable: value}, toml="…")` in an empty folder."""

    def loaded(environ: dict[str, str] | None = None, toml: str = "", dotenv: str = "", **flags: str) -> Settings:
        (tmp_path / "steno.toml").write_text(toml)
        (tmp_path / ".env").write_text(dotenv)
        nowhere = tmp_path / "nobody"
        return load_settings(
            flags=flags, environ=environ or {}, cwd=tmp_path, home=nowhere, config=nowhere, data=nowhere
        )

    return loaded


def test_the_defaults_are_the_first_sites(load: Load) -> None:
    """600 s, 3 machines, no budget, an alert at 0.8, $1.99 assumed and nobody's override."""
    assert policy_from(load(), "dstack") == Policy()
    assert Policy().assumed == (Rate(gpu="MI300X", hourly=1_990_000),)
    assert policy_from(load(), "local") == Policy(free=True, assumed=())
    assert default_gpu(load()) == "MI300X"


def test_the_budget_of_the_first_site_is_the_default_of_its_variables_only(load: Load) -> None:
    """$1,400.00 where any `AMD_` variable sets something, unless a budget is set; else none."""
    assert policy_from(load(), "dstack").budget_total is None
    assert policy_from(load(dotenv="STENO_MAX_VMS=2\n"), "dstack").budget_total is None
    policy = load(dotenv="AMD_VM_MAX_CONCURRENT=2\n")
    assert policy_from(policy, "dstack").budget_total == 1_400_000_000
    assert not policy.find("budget.total").given
    assert policy_from(load(dotenv="AMD_VM_MAX_CONCURRENT=2\nSTENO_BUDGET=off\n"), "dstack").budget_total is None
    assert policy_from(load(dotenv="AMD_VM_MAX_CONCURRENT=2\nSTENO_BUDGET=5\n"), "dstack").budget_total == 5_000_000


def test_the_first_sites_names_are_read(load: Load) -> None:
    """As they stood in its `.env`; an explicit rate is an override, even of the same amount."""
    policy = policy_from(
        load(
            dotenv="AMD_VM_IDLE_TIMEOUT=300\nAMD_VM_MAX_CONCURRENT=2\nAMD_MI300X_HOURLY_RATE=1.99\n"
            "AMD_GRANT_CREDITS_TOTAL=700.50\nAMD_COST_ALERT_THRESHOLD=0.5\n"
        ),
        "dstack",
    )
    assert (policy.idle_timeout, policy.max_vms) == (300 * SECOND, 2)
    assert (policy.rates, policy.assumed) == ((Rate(gpu="MI300X", hourly=1_990_000),), ())
    assert (policy.budget_total, policy.thresholds) == (700_500_000, (500,))


def test_our_own_names_are_stronger(load: Load) -> None:
    """And the environment is stronger than `.env`, whichever name it uses."""
    both = {"STENO_IDLE_TIMEOUT": "2m", "AMD_VM_IDLE_TIMEOUT": "600", "STENO_MAX_VMS": "5"}
    assert policy_from(load(both), "dstack").idle_timeout == 2 * MINUTE
    assert load(both).find("vms.idle_timeout").source == "STENO_IDLE_TIMEOUT"
    assert load({"AMD_VM_IDLE_TIMEOUT": "60"}, dotenv="STENO_IDLE_TIMEOUT=7\n").value("vms.idle_timeout") == "60"


@pytest.mark.parametrize(
    ("text", "meant"),
    [("600", 600 * SECOND), ("10m", 600 * SECOND), ("1h", 60 * MINUTE), ("0", 0), ("0m", 0), ("off", None)],
)
def test_an_idle_timeout_is_seconds_a_duration_zero_or_off(load: Load, text: str, meant: int | None) -> None:
    """0 is at once and not "unset"; off is never."""
    assert policy_from(load({"STENO_IDLE_TIMEOUT": text}), "dstack").idle_timeout == meant


def test_a_file_gives_rates_billing_and_several_thresholds(load: Load) -> None:
    """`[rates]` takes any GPU, compared without case; `[billing.<backend>]` any backend; numbers keep their digits."""
    policy = policy_from(
        load(
            toml="[rates]\nmi300x = 2.1\nH100 = '3.000001'\n[billing.hotaisle]\nminimum = '60s'\n"
            "[billing.amddevcloud]\nminimum = 300\ngranularity = 1\n[budget]\ntotal = 'off'\nalerts = [0.9, '50%', 1]\n"
        ),
        "dstack",
    )
    assert set(policy.rates) == {Rate(gpu="MI300X", hourly=2_100_000), Rate(gpu="H100", hourly=3_000_001)}
    assert policy.assumed == ()
    assert policy.billing == (
        Billing(backend="amddevcloud", minimum=300 * SECOND, granularity=SECOND),
        Billing(backend="hotaisle", minimum=MINUTE),
    )
    assert (policy.budget_total, policy.thresholds) == (None, (500, 900, 1000))


def test_this_machine_is_free_until_it_has_a_price(load: Load) -> None:
    """With a price everything holds for it that holds for a rented one."""
    assert policy_from(load({"STENO_LOCAL_PRICE": "0.00"}), "local").free
    priced = policy_from(load({"STENO_LOCAL_PRICE": "2.50"}), "local")
    assert not priced.free
    assert priced.assumed == (Rate(gpu="", hourly=2_500_000),)
    assert not policy_from(load(), "dstack").free


def test_a_command_on_a_priced_machine_is_guarded_before_any_was_seen(load: Load) -> None:
    """Every machine of this host has the price of the settings, whatever GPU is asked for, or none."""
    policy = policy_from(load({"STENO_LOCAL_PRICE": "2.50"}), "local")
    for gpu in ((), ("MI300X",)):
        terms = Requirements(submitter="ada", gpu=gpu, gpu_count=len(gpu), max_duration=60 * MINUTE)
        assert worst_case(terms, policy, World(rules="current")).price == 2_500_000


def test_a_machine_for_one_user_needs_the_pool(load: Load) -> None:
    """dstack chooses among its idle machines without asking who used them."""
    with pytest.raises(NotConfigured, match="pool"):
        policy_from(load({"STENO_VMS_SHARE": "user"}), "dstack")
    assert policy_from(load({"STENO_VMS_SHARE": "user", "STENO_VMS_MODE": "pool"}), "dstack").share == "user"


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_a_profile_gives_the_idle_timeout_that_nobody_set(load: Load, name: str) -> None:
    """`batch` would be cut to ten minutes otherwise; a timeout that is set itself stands."""
    settings = load({"STENO_PROFILE": name})
    assert settings.value("vms.idle_timeout") == PROFILES[name].idle_duration
    assert settings.find("vms.idle_timeout").source == f"profile {name}"
    assert load({"STENO_PROFILE": name, "AMD_VM_IDLE_TIMEOUT": "60"}).value("vms.idle_timeout") == "60"


def test_a_fleet_holds_as_many_machines_as_the_cap(load: Load) -> None:
    """Two numbers that contradict each other have to be written down by somebody."""
    assert fleet_nodes(load()) == 3
    assert fleet_nodes(load({"STENO_MAX_VMS": "7"})) == 7
    assert fleet_nodes(load({"STENO_MAX_VMS": "off"})) is None
    assert fleet_nodes(load({"STENO_MAX_VMS": "7", "STENO_FLEET_NODES": "2"})) == 2


ABSURD = {
    "STENO_IDLE_TIMEOUT": ["-1", "-600", "nan", "1e9", "10 parsecs", "99999999999", "1h30", "٦٠٠", "0.0000001"],
    "STENO_MAX_VMS": ["-3", "3.5", "nan", "three", "1000000", "9" * 40],
    "AMD_MI300X_HOURLY_RATE": ["0", "-1.99", "nan", "inf", "1e3", "99999999", "1,99", "$", "0.0000001"],
    "AMD_GRANT_CREDITS_TOTAL": ["0", "-1400", "nan", "Infinity", "lots", "1" * 30],
    "AMD_COST_ALERT_THRESHOLD": ["0", "-0.8", "1.5", "nan", "80", "0.8;0.9", "0.12345", "101%", ","],
    "STENO_ASSUMED_DURATION": ["0", "off", "-1h", "soon"],
    "STENO_QUEUE_PATIENCE": ["-1", "off", "nan"],
    "STENO_LOCAL_PRICE": ["-1", "nan", "free"],
    "STENO_LOCAL_BOOT": ["-5", "off"],
    "STENO_VMS_MODE": ["Pool", "x"],
    "STENO_VMS_SHARE": ["all"],
    "STENO_PROFILE": ["dev"],
    "STENO_WEBHOOK": ["ftp://x", "example.org/hook", "https://", "http://[", "https://a b", "https://x:notaport/"],
}


@pytest.mark.parametrize(("variable", "value"), [(name, value) for name in ABSURD for value in ABSURD[name]])
def test_an_absurd_value_is_refused_in_one_line_that_says_where_it_stands(
    load: Load, variable: str, value: str
) -> None:
    """Negative, without end, no number, or more than anybody means."""
    with pytest.raises(NotConfigured, match=variable) as error:
        load({variable: value})
    assert "it must be " in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "toml",
    [
        "[rates]\nH100 = nan\n",
        "[rates]\nH100 = -1.0\n",
        "[rates]\nH100 = true\n",
        "[rates]\nH100 = [[1]]\n",
        "[rates]\nmi300x = 1\nMI300X = 2\n",
        "[rates.H100]\nspot = 1\n",
        "[billing.x]\nminimum = '-1s'\n",
        "[billing.x]\nmaximum = 5\n",
        "[container]\nisolation = 'false'\n",
        "[budget]\nalerts = [0.5, 2]\n",
    ],
)
def test_an_absurd_file_is_refused_in_one_line(load: Load, toml: str) -> None:
    """The file is named."""
    with pytest.raises(NotConfigured, match=r"steno\.toml") as error:
        load(toml=toml)
    assert "\n" not in str(error.value)


def test_a_webhook_and_its_secret_are_never_shown(load: Load) -> None:
    """An address can be a key to itself, even a wrong one."""
    settings = load({"STENO_WEBHOOK": "https://hooks.example/T0/s3cret", "STENO_WEBHOOK_SECRET": "s3cret"})
    assert settings.value("alerts.webhook") == "https://hooks.example/T0/s3cret"
    assert "s3cret" not in repr(settings)
    with pytest.raises(NotConfigured) as error:
        load({"STENO_WEBHOOK": "hooks.example/s3cret"})
    assert "s3cret" not in str(error.value)


def test_a_rate_of_one_gpu_is_found_whatever_its_case(load: Load) -> None:
    """Two spellings of one model are one setting."""
    assert load(toml="[rates]\nmi300x = 2\n").find("rates.MI300X").source.endswith("steno.toml")
    assert [entry.name for entry in load(toml="[rates]\nh100 = 2\n").entries if entry.name.startswith("rates.")] == [
        "rates.MI300X",
        "rates.H100",
    ]


@pytest.mark.parametrize(("mine", "owner"), [("", "carol"), ("mine = true", "carol"), ("mine = false", None)])
def test_a_route_with_an_owner_is_about_his_runs_unless_it_says_no(load: Load, mine: str, owner: str | None) -> None:
    """A key that has no effect without another would send him everybody's."""
    (route,) = routes_of(load(toml=f'[notify.chat]\nurl = "http://127.0.0.1:9/x"\nowner = "carol"\n{mine}\n'))
    assert route.owner == owner
