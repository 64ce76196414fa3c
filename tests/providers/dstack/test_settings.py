"""Where each setting comes from, what wins, and that no secret is shown or sent elsewhere."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from steno.engine.errors import NotConfigured, ProjectNotFound
from steno.engine.providers.dstack.settings import address_of
from steno.engine.providers.registry import load_settings, settings_table
from steno.engine.settings.settings import Settings

SECRET = "dop_v1_must_never_be_seen"
Load = Callable[..., Settings]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """`load(FLAG=…, environ={…})` in an empty home and folder, made under tmp_path."""
    for name in ("cwd", "home/.dstack", "config"):
        (tmp_path / name).mkdir(parents=True)

    def loaded(environ: dict[str, str] | None = None, **flags: str) -> Settings:
        return load_settings(
            flags=flags,
            environ=environ or {},
            cwd=tmp_path / "cwd",
            home=tmp_path / "home",
            config=tmp_path / "config",
            data=tmp_path / "data",
        )

    return loaded


def known(tmp_path: Path, *projects: dict[str, object]) -> Path:
    path = tmp_path / "home" / ".dstack" / "config.yml"
    path.write_text(yaml.safe_dump({"projects": list(projects), "repos": [{"odd": 1}]}))
    return path


def project(name: str, url: str = "http://a:3000", token: str = "token-a", **more: object) -> dict[str, object]:
    return {"name": name, "url": url, "token": token, **more}


def test_without_anything_there_are_defaults(load: Load, tmp_path: Path) -> None:
    """Every setting is listed, with `default` or `not set`."""
    settings = load()
    assert [entry.name for entry in settings.entries] == [known.name for known in settings_table().known]
    assert settings.record == str(tmp_path / "data" / "record.db")
    assert settings.provider == "local"
    assert {entry.source for entry in settings.entries} == {"default", "not set"}
    with pytest.raises(NotConfigured, match="STENO_DSTACK_URL"):
        address_of(settings)


def test_later_sources_win(load: Load, tmp_path: Path) -> None:
    """User's file, the folder's file, .env, environment, flag: each over the one before, and each says where."""
    sources = []

    def look(**more: str) -> None:
        setting = load(**more).find("record")
        sources.append((setting.value, setting.source.removeprefix(str(tmp_path) + "/")))

    (tmp_path / "config" / "steno.toml").write_text('record = "one"\n')
    look()
    (tmp_path / "cwd" / "steno.toml").write_text('record = "two"\n')
    look()
    (tmp_path / "cwd" / ".env").write_text("export STENO_RECORD='three'\nOTHER=$HOME\n")
    look()
    setting = load({"STENO_RECORD": "four"}).find("record")
    sources.append((setting.value, setting.source))
    setting = load({"STENO_RECORD": "four"}, record="five").find("record")
    sources.append((setting.value, setting.source))
    assert sources == [
        ("one", "config/steno.toml"),
        ("two", "cwd/steno.toml"),
        ("three", "STENO_RECORD in .env"),
        ("four", "STENO_RECORD"),
        ("five", "flag"),
    ]


def test_dstacks_own_file_gives_server_token_and_project(load: Load, tmp_path: Path) -> None:
    """The default entry, or the one named; its keys of other versions do no harm."""
    path = known(tmp_path, project("a"), project("b", "http://b:3000/", "token-b", default=True, color="red"))
    settings = load()
    address = address_of(settings)
    assert (address.url, address.token, address.project) == ("http://b:3000", "token-b", "b")
    assert settings.find("dstack.token").source == str(path)
    assert address_of(load({"STENO_PROJECT": "a"})).token == "token-a"
    assert address_of(load({"DSTACK_PROJECT": "a"})).url == "http://a:3000"
    assert address_of(load(project="a")).project == "a"


def test_an_only_project_needs_no_default(load: Load, tmp_path: Path) -> None:
    """And of several without one we do not guess."""
    known(tmp_path, project("only"))
    assert address_of(load()).project == "only"
    known(tmp_path, project("a"), project("b"))
    with pytest.raises(NotConfigured, match="several projects"):
        address_of(load())


def test_a_project_or_file_that_is_not_there_is_named(load: Load, tmp_path: Path) -> None:
    """The line says which there are, or which variable named the file."""
    known(tmp_path, project("a", default=True), project("b"))
    with pytest.raises(ProjectNotFound, match=r"project c is not in .*a, b"):
        address_of(load(project="c"))
    with pytest.raises(NotConfigured, match="STENO_DSTACK_CONFIG names"):
        address_of(load({"STENO_DSTACK_CONFIG": str(tmp_path / "absent.yml")}))
    ours = {"STENO_DSTACK_URL": "http://x", "STENO_DSTACK_TOKEN": "t", "STENO_PROJECT": "c"}
    assert address_of(load(ours)).project == "c"


def test_a_token_goes_to_its_own_server_only(load: Load, tmp_path: Path) -> None:
    """A URL from elsewhere (a `.env` in a folder somebody gave us) does not get the token of dstack's file."""
    known(tmp_path, project("a", default=True))
    (tmp_path / "cwd" / ".env").write_text("STENO_DSTACK_URL=http://evil.invalid\n")
    with pytest.raises(NotConfigured, match="STENO_DSTACK_TOKEN"):
        address_of(load())
    assert address_of(load({"STENO_DSTACK_URL": "http://a:3000/"})).token == "token-a"


def test_dstacks_own_variables_are_known(load: Load) -> None:
    """The variables of its command line; ours are stronger."""
    environ = {"DSTACK_SERVER_URL": "https://d", "DSTACK_TOKEN": "t", "DSTACK_PROJECT": "p"}
    assert address_of(load(environ)).url == "https://d"
    ours = {**environ, "STENO_DSTACK_URL": "https://s", "STENO_DSTACK_TOKEN": "u", "STENO_PROJECT": "q"}
    address = address_of(load(ours))
    assert (address.url, address.token, address.project) == ("https://s", "u", "q")


def test_the_cloud_key_is_only_ever_set_or_not(load: Load, tmp_path: Path) -> None:
    """It is the backend's key, never dstack's token: its value is not even held."""
    settings = load({"DSTACK_AMDDEVCLOUD_API_KEY": SECRET, "STENO_DSTACK_TOKEN": "hidden-token"})
    assert settings.find("dstack.amddevcloud_api_key").shown == "set"
    assert settings.value("dstack.token") == "hidden-token"
    assert settings.find("dstack.token").shown == "set"
    assert SECRET not in repr(settings)
    assert SECRET not in str([entry.value for entry in settings.entries])
    assert "hidden-token" not in repr(settings)
    (tmp_path / "cwd" / ".env").write_text(f'DSTACK_AMDDEVCLOUD_API_KEY="{SECRET}"\nDSTACK_BACKEND=amddevcloud\n')
    settings = load({"AMD_DEFAULT_GPU": "MI300X"})
    assert settings.find("dstack.amddevcloud_api_key").source == "DSTACK_AMDDEVCLOUD_API_KEY in .env"
    assert SECRET not in repr(settings)
    assert (settings.value("dstack.backend"), settings.value("dstack.gpu")) == ("amddevcloud", "MI300X")
    assert load().find("dstack.amddevcloud_api_key").shown == "set"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("projects: [", ["not valid YAML", "line"]),
        ("projects: 3\n", ["no list `projects:`"]),
        ("just words\n", ["no list `projects:`"]),
        ("\x00", ["not valid YAML"]),
    ],
)
def test_a_broken_file_of_dstacks_matters_only_to_who_needs_it(
    load: Load, tmp_path: Path, text: str, words: list[str]
) -> None:
    """The settings load; asking for the server says in one line what is wrong with the file."""
    (tmp_path / "home" / ".dstack" / "config.yml").write_text(text)
    settings = load()
    assert settings.provider == "local"
    with pytest.raises(NotConfigured) as error:
        address_of(settings)
    assert "\n" not in str(error.value)
    for word in ["config.yml", *words]:
        assert word in str(error.value)


def test_odd_entries_of_dstacks_file_are_passed_over(load: Load, tmp_path: Path) -> None:
    """An entry without a token, or of another type, hides no good entry."""
    path = tmp_path / "home" / ".dstack" / "config.yml"
    path.write_text(yaml.safe_dump({"projects": ["x", {"name": "half"}, project("whole", default=True)]}))
    assert address_of(load()).project == "whole"
    path.write_text("")
    with pytest.raises(NotConfigured, match="dstack is not configured"):
        address_of(load())


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("record = ", ["not valid TOML"]),
        ('recrod = "x"\n', ["unknown setting recrod"]),
        ("[dstack]\nurl = true\n", ["dstack.url", "text or a number"]),
        ('provider = "slurm9"\n', ["provider", "slurm9", "local, dstack"]),
        ("[dstack]\nfleet_nodes = 0\n", ["dstack.fleet_nodes", "above 0"]),
    ],
)
def test_a_broken_file_of_ours_is_one_line(load: Load, tmp_path: Path, toml: str, words: list[str]) -> None:
    """It names the file and the setting."""
    (tmp_path / "cwd" / "steno.toml").write_text(toml)
    with pytest.raises(NotConfigured) as error:
        load()
    assert "\n" not in str(error.value)
    for word in ["steno.toml", *words]:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("url", "token", "name", "word"),
    [
        ("ftp://x", "t", "p", "http"),
        ("localhost:3000", "t", "p", "http"),
        ("http://", "t", "p", "host"),
        ("http://[::1", "t", "p", "cannot be read"),
        ("http://u:p@x", "t", "p", "plain"),
        ("http://x", "t t", "p", "token"),
        ("http://x", "tök", "p", "token"),
        ("http://x", "t\nX-Evil: 1", "p", "token"),
        ("http://x", "t", "../admin", "project"),
    ],
)
def test_an_address_that_cannot_be_one(load: Load, url: str, token: str, name: str, word: str) -> None:
    """Said before anything is sent, without the token."""
    with pytest.raises(NotConfigured, match=word) as error:
        address_of(load(**{"dstack.url": url, "dstack.token": token, "project": name}))
    assert "X-Evil" not in str(error.value)
