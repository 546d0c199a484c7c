from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from speccli.core.config import Settings, config_files, here, load, unknown_variables
from speccli.core.errors import UsageError
from speccli.options import SourceOptions

VALUES: dict[str, tuple[Any, Any, Any]] = {
    "endpoint": ("http://file:1", "http://env:1", ["http://flag:1"]),
    "alertmanager": ("http://file:1", "http://env:1", ["http://flag:1"]),
    "notify": ("json://file", "json://env", ["json://flag"]),
    "prometheus": ("http://file", "http://env", "http://flag"),
    "interval": ("1s", "2s", "3s"),
    "window": ("1m", "2m", "3m"),
    "insecure": (False, "1", True),
    "gpus_per_engine": (1, "2", 4),
    "gpu_hour_usd": (1.0, "2", 3.0),
    "baseline_cost": (1.0, "2", 3.0),
    "floor": (0.1, "0.2", 0.3),
    "queue_wait_ms": (1.0, "2", 3.0),
    "ttft_p99_ms": (1.0, "2", 3.0),
    "tpot_p99_ms": (1.0, "2", 3.0),
    "cost_target": (1.0, "2", 3.0),
    "drift_min_drafts": (100.0, "200", 300.0),
    "drift_looks": (100.0, "200", 300.0),
    "drift_margin": (0.1, "0.2", 0.3),
    "slope_fall": (0.1, "0.2", 0.3),
}
"""Per setting: in the file, in the environment, as a flag; the rest are text."""
LISTS = {"endpoint", "alertmanager", "notify"}
NAMES = [field.name for field in fields(Settings)]


class Place:
    """A project folder and a home, both without any configuration."""

    def __init__(self, root: Path) -> None:
        self.project, self.home = root / "a" / "project", root / "home"
        self.project.mkdir(parents=True)
        self.user = self.home / ".config" / "specctl" / "specctl.toml"
        self.user.parent.mkdir(parents=True)
        self.file = self.project / "specctl.toml"

    def load(
        self,
        flags: Mapping[str, Any] | None = None,
        profile: str | None = None,
        **environment: str,
    ) -> Settings:
        return load(
            flags or {},
            profile=profile,
            environment={"HOME": str(self.home), **environment},
            directory=self.project,
        )

    def refused(self, profile: str | None = None, **environment: str) -> str:
        with pytest.raises(UsageError) as caught:
            self.load(None, profile, **environment)
        assert "\n" not in caught.value.message
        return caught.value.message


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def seen(settings: Settings, name: str) -> Any:
    value = getattr(settings, name)
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize("name", NAMES)
def test_a_flag_beats_the_environment_beats_the_profile_beats_the_file(
    place: Place, name: str
) -> None:
    # A kubeconfig is not taken from a file that is merely found.
    trusted = {"SPECCTL_CONFIG": str(place.file)} if name == "kubeconfig" else {}

    def load(
        flags: dict[str, Any] | None = None, profile: str | None = None, **environment: str
    ) -> Settings:
        return place.load(flags, profile, **trusted, **environment)

    in_file, in_env, flag = VALUES.get(name, ("file", "env", "flag"))
    read: dict[type, Any] = {int: int, float: float, bool: lambda text: text == "1"}
    env = [in_env] if name in LISTS else read.get(type(in_file), str)(in_env)
    place.file.write_text("")
    assert seen(load(), name) is None

    place.file.write_text(f"{name} = {toml(in_file)}\n")
    assert seen(load(), name) == ([in_file] if name in LISTS else in_file)

    other = flag if name != "insecure" else not in_file
    text = f"{name} = {toml(in_file)}\n[profile.prod]\n{name} = {toml(other)}\n"
    place.file.write_text(text)
    assert seen(load(profile="prod"), name) == other
    assert seen(load(SPECCTL_PROFILE="prod"), name) == other
    assert seen(load(), name) == ([in_file] if name in LISTS else in_file)

    variable = {f"SPECCTL_{name.upper()}": str(in_env)}
    assert seen(load(None, "prod", **variable), name) == env
    assert seen(load({name: flag}, "prod", **variable), name) == flag
    assert seen(load({name: None}, "prod", **variable), name) == env


def test_every_option_of_the_source_is_a_setting_or_asks_for_one() -> None:
    options = {field.name for field in fields(SourceOptions)}
    assert options - {"replay", "profile"} <= set(NAMES)


def test_the_projects_file_beats_the_users(place: Place) -> None:
    place.user.write_text("window = '1m'\nfloor = 0.2\n[profile.prod]\ninterval = '9s'\n")
    place.file.write_text("window = '2m'\n")
    settings = place.load(profile="prod")
    assert (settings.window, settings.floor, settings.interval) == ("2m", 0.2, "9s")


def test_a_profile_beats_what_holds_for_all_wherever_it_stands(place: Place) -> None:
    place.user.write_text("[profile.prod]\nendpoint = 'http://prod:1'\n")
    place.file.write_text("endpoint = 'http://dev:1'\n")
    assert place.load(profile="prod").endpoint == ("http://prod:1",)
    assert place.load().endpoint == ("http://dev:1",)


def test_a_file_is_found_from_a_folder_below(place: Place) -> None:
    (place.project.parent / "specctl.toml").write_text("floor = 0.3\n")
    assert place.load().floor == 0.3
    place.file.write_text("floor = 0.2\n")
    assert place.load().floor == 0.2, "the nearest one"


def test_a_named_file_is_the_only_one(place: Place, tmp_path: Path) -> None:
    place.file.write_text("floor = 0.2\n")
    (tmp_path / "other.toml").write_text("window = '2m'\n")
    settings = place.load(SPECCTL_CONFIG=str(tmp_path / "other.toml"))
    assert (settings.floor, settings.window) == (None, "2m")
    assert "No such file" in place.refused(SPECCTL_CONFIG=str(tmp_path / "none.toml"))


def test_xdg_config_home_is_where_the_users_file_lies(place: Place, tmp_path: Path) -> None:
    (tmp_path / "xdg" / "specctl").mkdir(parents=True)
    (tmp_path / "xdg" / "specctl" / "specctl.toml").write_text("floor = 0.25\n")
    assert place.load(XDG_CONFIG_HOME=str(tmp_path / "xdg")).floor == 0.25


@pytest.mark.parametrize("typed", ["endpoint", "prometheus", "replay"])
def test_a_source_that_is_typed_replaces_one_that_is_configured(place: Place, typed: str) -> None:
    place.file.write_text("endpoint = ['http://a:1', 'http://b:1']\n")
    flags = {"endpoint": ["http://c:1"], "prometheus": "http://p", "replay": Path("r")}
    settings = place.load({typed: flags[typed]}, SPECCTL_PROMETHEUS="http://env")
    assert settings.endpoint == (("http://c:1",) if typed == "endpoint" else None)
    assert settings.prometheus == ("http://p" if typed == "prometheus" else None)


def test_a_source_of_the_environment_replaces_one_of_the_profile(place: Place) -> None:
    place.file.write_text("prometheus = 'http://p'\n")
    settings = place.load(SPECCTL_ENDPOINT="http://a:1, http://b:1,")
    assert settings.prometheus is None
    assert settings.endpoint == ("http://a:1", "http://b:1")


def test_a_typed_token_is_not_beaten_by_a_configured_file(place: Place) -> None:
    place.file.write_text("token_file = '/run/token'\n")
    settings = place.load({"token": "t0ken"})
    assert (settings.token, settings.token_file) == ("t0ken", None)


SECRET = "hunter2hunter2"


@pytest.mark.parametrize(
    "line",
    ["endpoint = 'http://elsewhere:1'", "prometheus = 'http://elsewhere'", "insecure = true"]
    + ["ca = 'their.pem'", "[profile.prod]\nendpoint = 'http://elsewhere:1'"],
)
@pytest.mark.parametrize("token", ["environment", "token file", "users file"])
def test_a_projects_file_does_not_get_a_token_that_is_not_its_own(
    place: Place, line: str, token: str
) -> None:
    given = {"environment": {"SPECCTL_TOKEN": SECRET}}
    given["token file"] = {"SPECCTL_TOKEN_FILE": "/run/token"}
    if token == "users file":
        place.user.write_text(f"token = '{SECRET}'\n")
    place.file.write_text(f"{line}\n")
    variables, profile = given.get(token, {}), "prod" if "prod" in line else None
    message = place.refused(profile, **variables)
    assert str(place.file) in message
    assert SECRET not in message
    trusted = place.load(None, profile, SPECCTL_CONFIG=str(place.file), **variables)
    assert trusted.endpoint or trusted.prometheus or trusted.insecure or trusted.ca


def test_credentials_of_a_url_are_not_sent_through_what_a_project_accepts(place: Place) -> None:
    place.file.write_text("insecure = true\n")
    assert "hunter2" not in place.refused(SPECCTL_ENDPOINT="https://me:hunter2@h")
    assert place.load(SPECCTL_ENDPOINT="https://h").insecure


def test_a_token_that_is_typed_or_the_projects_own_is_sent(place: Place) -> None:
    place.file.write_text("endpoint = 'http://a:1'\n")
    assert place.load({"token": SECRET}).token == SECRET
    assert place.load({"endpoint": ["http://b:1"]}, SPECCTL_TOKEN=SECRET).token == SECRET
    assert place.load(SPECCTL_ENDPOINT="http://b:1", SPECCTL_TOKEN=SECRET).token == SECRET
    place.file.write_text(f"endpoint = 'http://a:1'\ntoken = '{SECRET}'\n")
    assert place.load().token == SECRET
    place.file.write_text("endpoint = 'http://a:1'\ntoken_file = 'token'\n")
    assert place.load().token_file == "token"
    place.file.unlink()
    place.user.write_text(f"endpoint = 'http://a:1'\ntoken = '{SECRET}'\n")
    assert place.load().token == SECRET


@pytest.mark.parametrize("outside", ["/run/secrets/token", "~/token", "../token", "link"])
def test_a_projects_file_does_not_have_other_files_sent_as_a_token(
    place: Place, outside: str, tmp_path: Path
) -> None:
    (place.project / "link").symlink_to(tmp_path)
    place.file.write_text(f"endpoint = 'http://a:1'\ntoken_file = '{outside}'\n")
    assert "token_file lies outside" in place.refused()
    assert place.load(SPECCTL_CONFIG=str(place.file)).token_file == outside
    assert place.load({"token": SECRET}).token_file is None


def test_a_typed_certificate_does_not_take_a_configured_key(place: Place) -> None:
    place.file.write_text("cert = 'a.pem'\nkey = 'a.key'\n")
    assert (place.load({"cert": "b.pem"}).cert, place.load({"cert": "b.pem"}).key) == (
        "b.pem",
        None,
    )
    assert place.load({"key": "b.key"}).cert == "a.pem"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("endpiont = 'x'", "unknown key endpiont; did you mean endpoint?"),
        ("queue-wait = 5", "unknown key queue-wait; did you mean queue_wait_ms?"),
        ("zzz = 1", "unknown key zzz"),
        ("[profile.prod]\nflor = 0.3", "unknown key profile.prod.flor; did you mean floor?"),
        ("[profile.other]\nflor = 0.3", "unknown key profile.other.flor"),
        ("[profile]\nprod = 5", "profile.prod must be a table"),
        ("profile = 'prod'", "profile must be a table"),
        ("floor = '0.3'", "floor is '0.3'; it must be int or float"),
        ("floor = true", "floor is True; it must be int or float"),
        ("floor = 40", "floor is 40; it must be from 0 to 1"),
        ("floor = nan", "floor is nan; it must be from 0 to 1"),
        ("gpu_hour_usd = -1", "gpu_hour_usd is -1; it must be a number of at least 0"),
        ("gpu_hour_usd = 0", "gpu_hour_usd is 0; a price is above 0 (leave it out"),
        ("gpu_hour_usd = inf", "gpu_hour_usd is inf"),
        ("gpus_per_engine = 0", "gpus_per_engine is 0; it must be a number of at least 1"),
        ("gpus_per_engine = 1.5", "gpus_per_engine is 1.5; it must be int"),
        ("insecure = 1", "insecure is 1; it must be bool"),
        ("insecure = 'yes'", "insecure is 'yes'; it must be bool"),
        ("endpoint = 5", "endpoint is 5; it must be str or list"),
        ("endpoint = [1, 2]", "endpoint must be a list of strings"),
        ("window = false", "window is False; it must be str or int or float"),
        ("token = 12345", "token is …; it must be str"),
        ("floor = = 1", "is not TOML"),
        ("floor = 0.3\nfloor = 0.4", "is not TOML"),
    ],
    ids=lambda text: text.replace("\n", " ")[:30],
)
def test_a_mistake_in_a_file_names_the_file_and_what_was_meant(
    place: Place, text: str, words: str
) -> None:
    place.file.write_text(f"{text}\n")
    message = place.refused(profile="prod" if "profile.prod" in text else None)
    assert words in message
    assert str(place.file) in message


def test_a_file_that_is_not_text_is_named(place: Place) -> None:
    place.file.write_bytes(b"\xff\xfe\x00")
    assert "is not TOML" in place.refused()


@pytest.mark.parametrize(
    ("variable", "text", "words"),
    [
        ("SPECCTL_FLOOR", "abc", "SPECCTL_FLOOR='abc': it must be a number"),
        ("SPECCTL_FLOOR", "nan", "SPECCTL_FLOOR='nan': it must be from 0 to 1"),
        ("SPECCTL_FLOOR", "40", "it must be from 0 to 1"),
        ("SPECCTL_GPUS_PER_ENGINE", "1.5", "it must be a whole number"),
        ("SPECCTL_GPUS_PER_ENGINE", "0", "at least 1"),
        ("SPECCTL_GPU_HOUR_USD", "0", "'0': a price is above 0"),
        ("SPECCTL_GPU_HOUR_USD", "inf", "it must be finite"),
        ("SPECCTL_GPU_HOUR_USD", "nan", "it must be finite"),
        ("SPECCTL_INSECURE", "maybe", "it must be 1 or 0"),
    ],
)
def test_a_mistake_in_a_variable_names_the_variable(
    place: Place, variable: str, text: str, words: str
) -> None:
    assert words in place.refused(**{variable: text})


def test_a_number_out_of_range_is_refused_as_a_flag_too(place: Place) -> None:
    with pytest.raises(UsageError, match="floor is nan"):
        place.load({"floor": float("nan")})
    with pytest.raises(UsageError, match=r"gpu_hour_usd is 0\.0; a price is above 0"):
        place.load({"gpu_hour_usd": 0.0})


@pytest.mark.parametrize("text", ["1", "true", "TRUE", "yes"])
def test_a_switch_in_the_environment_may_be_spelled_as_people_do(place: Place, text: str) -> None:
    assert place.load(SPECCTL_INSECURE=text).insecure is True


def test_an_empty_variable_is_not_set(place: Place) -> None:
    place.file.write_text("floor = 0.3\n")
    assert place.load(SPECCTL_FLOOR="", SPECCTL_ENDPOINT="").floor == 0.3


def test_durations_may_be_numbers_of_seconds(place: Place) -> None:
    place.file.write_text("window = 90\ninterval = 2.5\n")
    assert (place.load().window, place.load().interval) == ("90", "2.5")


def test_a_profile_that_is_nowhere_is_an_error_that_names_the_nearest(place: Place) -> None:
    place.file.write_text("[profile.prod]\n[profile.stage]\n")
    assert "no profile 'prd' in specctl.toml; did you mean prod?" in place.refused(profile="prd")
    assert "no profile 'x'" in place.refused(SPECCTL_PROFILE="x")


def test_unknown_variables_are_noted_with_what_was_meant() -> None:
    known = {f"SPECCTL_{name.upper()}": "x" for name in NAMES}
    known |= {"SPECCTL_PROFILE": "x", "SPECCTL_CONFIG": "x", "PATH": "x"}
    assert unknown_variables(known) == []
    assert unknown_variables({"SPECCTL_ENDPIONT": "x", "SPECCTL_ZZZ": "x"}) == [
        "SPECCTL_ENDPIONT is not a setting; did you mean SPECCTL_ENDPOINT?",
        "SPECCTL_ZZZ is not a setting",
    ]


def test_no_home_at_all_is_no_users_file(place: Place) -> None:
    place.file.write_text("")
    assert config_files({}, place.project) == [place.file]


def test_a_home_that_may_not_be_looked_into_is_no_users_file(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.is_file

    def is_file(self: Path) -> bool:
        if self == place.user:
            raise PermissionError(13, "Permission denied", str(self))
        return real(self)

    monkeypatch.setattr(Path, "is_file", is_file)  # root, who may run this, may look anywhere
    assert place.load() == Settings()


def test_a_working_directory_that_is_gone_holds_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert here()[1] == Path("/")
    monkeypatch.chdir(tmp_path)


def test_a_kubeconfig_is_not_taken_from_a_file_that_merely_lies_there(place: Place) -> None:
    place.file.write_text('kubeconfig = "k"\n')
    assert "sets kubeconfig, which names programs that are run" in place.refused()
    assert place.load(SPECCTL_CONFIG=str(place.file)).kubeconfig == "k"
    assert place.load({"kubeconfig": "mine"}).kubeconfig == "mine"
