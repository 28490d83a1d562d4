"""The configuration: every key of contract section 4, values and faults, secrets, and what `kenari check` shows."""

import ipaddress
import tomllib
from pathlib import Path
from typing import Any

import pytest

from kenari.catalog.models import Catalog, Price, TargetRef
from kenari.config import Config, ConfigError, ServerSettings, builtin_config, load_config, parse_config
from kenari.config.show import show_config

# The text of contract section 4, with a key and files that a test can have.
WHOLE = """
[server]
listen = "127.0.0.1:8080"
admin_listen = "127.0.0.1:8081"
workers = 1
keepalive = "15s"
noop_after = "120s"
header_timeout = "600s"
first_event_timeout = "600s"
idle_timeout = "600s"
max_body = "32MiB"
drain = "30s"
tls = { cert = "", key = "" }
trusted_proxies = []
cors_origins = []
log = "json"
[store]
url = "sqlite:///kenari.db"
[limits]
url = "memory://"
[billing]
currency = "USD"
enforce = true

[providers.groq]
dialect = "chat"
base_url = "https://example.test/openai/v1"
api_key = "env:GROQ_API_KEY"
connect_timeout = "10s"
proxy = ""
[providers.groq.profile]
max_tokens_field = "max_completion_tokens"
system_first_only = false
prompt_cache_key = false
reasoning_content_roundtrip = false
think_tags = false

[models."step-3-7-flash:free"]
targets = ["groq/step-3.7-flash"]
kind = "chat"
reasoning = true
vision = false
context_window = 131072
max_output_tokens = 65536
access = "public"
price = { input = "0", output = "0", cache_read = "0", cache_write = "0" }
aliases = []
custom_tools = false

[routes.smart]
models = ["step-3-7-flash:free"]
policy = "order"
"""
ENV = {"GROQ_API_KEY": "gsk-secret"}
MODEL = '[providers.groq]\n[models.m]\ntargets = ["groq/a"]\n'


def parse(text: str, env: dict[str, str] | None = None) -> Config:
    return parse_config(tomllib.loads(text), ENV if env is None else env, "kenari.toml")


def faults(text: str, env: dict[str, str] | None = None) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        parse(text, env)
    return dict(caught.value.faults)


def test_the_text_of_section_4_loads() -> None:
    config = parse(WHOLE)
    assert config.server == ServerSettings()
    provider = config.providers["groq"]
    assert (provider.dialect, provider.base_url) == ("chat", "https://example.test/openai/v1")
    assert provider.keys == ("gsk-secret",)
    assert provider.profile.max_tokens_field == "max_completion_tokens"
    assert provider.profile.prompt_cache_key is False
    model = config.models["step-3-7-flash:free"]
    assert model.targets == (TargetRef("groq", "step-3.7-flash"),)
    assert (model.reasoning, model.vision, model.price) == (True, False, Price("0", "0", "0", "0"))
    assert config.routes["smart"].models == ("step-3-7-flash:free",)


def test_a_model_of_the_provider_is_split_at_the_first_slash() -> None:
    config = parse('[providers.groq]\n[models.m]\ntargets = ["groq/openai/gpt-oss-120b"]')
    assert config.models["m"].targets == (TargetRef("groq", "openai/gpt-oss-120b"),)


def test_reasoning_and_vision_left_out_mean_unknown() -> None:
    model = parse(MODEL).models["m"]
    assert (model.reasoning, model.vision, model.max_output_tokens) == (None, None, 65536)


def test_every_table_is_optional() -> None:
    config = parse("")
    assert list(config.models) == ["demo/scripted"]
    assert config.providers["demo"].base_url == "scripted:"


@pytest.mark.parametrize(
    ("text", "seconds"), [("250ms", 0.25), ("15s", 15.0), ("1.5s", 1.5), ("10m", 600.0), ("2h", 7200.0)]
)
def test_durations(text: str, seconds: float) -> None:
    server = parse(f'[server]\nidle_timeout = "{text}"\n{MODEL}').server
    assert server.idle_timeout == pytest.approx(seconds)


@pytest.mark.parametrize("text", ['"15"', '"s"', '"-1s"', '"0s"', '"1 s"', '"1d"', "15", "true", '"99999999h"'])
def test_bad_durations(text: str) -> None:
    assert "duration" in faults(f"[server]\nkeepalive = {text}\n")["server.keepalive"]


@pytest.mark.parametrize(("text", "size"), [("512B", 512), ("1KiB", 1024), ("32MiB", 32 << 20), ("1GiB", 1 << 30)])
def test_sizes(text: str, size: int) -> None:
    assert parse(f'[server]\nmax_body = "{text}"\n').server.max_body == size


@pytest.mark.parametrize("text", ['"32MB"', '"1.5MiB"', "1024", '"0B"'])
def test_bad_sizes(text: str) -> None:
    assert "size" in faults(f"[server]\nmax_body = {text}\n")["server.max_body"]


def test_networks() -> None:
    server = parse('[server]\ntrusted_proxies = ["10.0.0.0/8", "::1/128", "192.0.2.7"]\n').server
    assert server.trusted_proxies[0] == ipaddress.ip_network("10.0.0.0/8")
    assert server.trusted_proxies[2] == ipaddress.ip_network("192.0.2.7/32")


@pytest.mark.parametrize("listen", ["0.0.0.0:80", "[::1]:8080", "unix:/run/kenari.sock", ":8080", "localhost:0"])
def test_listen_takes_ipv6_and_unix_sockets(listen: str) -> None:
    assert parse(f'[server]\nlisten = "{listen}"\n').server.listen == listen


@pytest.mark.parametrize("listen", ["8080", "::1:8080", "127.0.0.1", "127.0.0.1:70000", "unix:relative", "[::1:80"])
def test_bad_listen(listen: str) -> None:
    assert "server.listen" in faults(f'[server]\nlisten = "{listen}"\n')


def test_server_times_are_the_default_of_every_provider() -> None:
    text = '[server]\nidle_timeout = "7s"\nheader_timeout = "8s"\n[providers.groq]\nheader_timeout = "9s"\n'
    provider = parse(text + '[models.m]\ntargets = ["groq/a"]\n').providers["groq"]
    assert (provider.idle_timeout, provider.header_timeout, provider.first_event_timeout) == (7.0, 9.0, 600.0)


# -- secrets


def test_secrets_come_from_the_environment_from_files_or_stand_there(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-file\n")
    text = f'[providers.groq]\napi_key = "sk-literal"\napi_keys = ["env:GROQ_API_KEY", "file:{tmp_path}/key"]\n'
    assert parse(text).providers["groq"].keys == ("sk-literal", "gsk-secret", "sk-file")


@pytest.mark.parametrize(
    ("reference", "word"),
    [("env:NOT_THERE", "NOT_THERE"), ("file:/not/there", "/not/there"), ("file:/", "/"), ("sk-a\\nb", "printable")],
)
def test_secrets_that_cannot_be_had(reference: str, word: str) -> None:
    found = faults(f'[providers.groq]\napi_key = "{reference}"\n')
    assert word in found["providers.groq.api_key"]


def test_a_secret_that_would_break_its_header_is_a_fault_and_is_not_told(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-top\nx-injected: secret")
    found = faults(f'[providers.groq]\napi_key = "file:{tmp_path}/key"\n')
    assert "printable" in found["providers.groq.api_key"]
    assert "sk-top" not in str(found)


def test_header_values_of_a_profile_may_be_secrets() -> None:
    config = parse('[providers.groq.profile]\nheaders = { x-team = "env:GROQ_API_KEY" }\n')
    assert config.providers["groq"].profile.headers == {"x-team": "gsk-secret"}
    assert "gsk-secret" not in show_config(config)


def test_no_secret_is_shown_by_check() -> None:
    text = (
        '[store]\nurl = "postgresql://user:hidden-1@db/kenari?password=hidden-2"\n'
        '[limits]\nurl = "valkey://:hidden-3@cache:6379/0"\n'
        '[providers.groq]\napi_keys = ["hidden-4"]\nproxy = "http://hidden-5:hidden-6@proxy:3128"\n'
        'profile = { headers = { x-a = "hidden-7" } }\n'
    )
    env = {"KENARI_SECRET": "hidden-8", "KENARI_ADMIN_TOKEN": "hidden-9", "KENARI_BOOTSTRAP_KEY": "kn-hidden"}
    config = parse(text, env)
    assert "hidden" not in show_config(config)
    assert "hidden" not in str(config.notes)


def test_the_environment_names_the_bootstrap_key_the_token_and_the_secret(tmp_path: Path) -> None:
    (tmp_path / "root").write_text("from a file\n")
    env = {"KENARI_BOOTSTRAP_KEY": "kn-x", "KENARI_ADMIN_TOKEN": "t", "KENARI_SECRET": f"file:{tmp_path}/root"}
    config = parse("", env)
    assert (config.bootstrap_key, config.admin_token, config.secret) == ("kn-x", "t", "from a file")


def test_f11_the_management_token_may_be_in_a_file_and_is_no_api_key_a3(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from a file\n")
    assert parse("", {"KENARI_ADMIN_TOKEN": f"file:{tmp_path}/token"}).admin_token == "from a file"
    same = {"KENARI_ADMIN_TOKEN": "kn-x", "KENARI_BOOTSTRAP_KEY": "kn-x"}
    assert "api key" in faults("", same)["KENARI_ADMIN_TOKEN"]


def test_the_admin_port_can_be_off() -> None:
    assert parse('[server]\nadmin_listen = ""\n').server.admin_listen == ""
    assert "server.listen" in faults('[server]\nlisten = ""\n')


def test_a1_a_bootstrap_key_starts_with_kn() -> None:
    assert "kn-" in faults("", {"KENARI_BOOTSTRAP_KEY": "sk-1"})["KENARI_BOOTSTRAP_KEY"]


# -- faults


BAD: list[tuple[str, str]] = [
    ("server = 1", "server"),
    ("providers = 1", "providers"),
    ("providers.groq = 1", "providers.groq"),
    ("models.m = 1", "models.m"),
    ("server.listen = 1", "server.listen"),
    ("server.admin_listen = 1", "server.admin_listen"),
    ("server.workers = 0", "server.workers"),
    ("server.workers = 257", "server.workers"),
    ("server.workers = true", "server.workers"),
    ("server.noop_after = 1", "server.noop_after"),
    ("server.header_timeout = 1", "server.header_timeout"),
    ("server.first_event_timeout = 1", "server.first_event_timeout"),
    ("server.idle_timeout = 1", "server.idle_timeout"),
    ("server.drain = 1", "server.drain"),
    ('server.tls = { cert = "/not/there" }', "server.tls"),
    ('server.tls = { cert = "/not/there" }', "server.tls.cert"),
    ('server.trusted_proxies = ["10.0.0.1/8"]', "server.trusted_proxies"),
    ("server.trusted_proxies = [1]", "server.trusted_proxies"),
    ('server.cors_origins = "*"', "server.cors_origins"),
    ('server.log = "xml"', "server.log"),
    ('store.url = "mysql://"', "store.url"),
    ('limits.url = "redis://"', "limits.url"),
    ("billing.currency = 1", "billing.currency"),
    ('billing.enforce = "yes"', "billing.enforce"),
    ('providers.groq.dialect = "smtp"', "providers.groq.dialect"),
    ('providers.groq.preset = "grok"', "providers.groq.preset"),
    ('providers.own.base_url = "http://a"', "providers.own.dialect"),
    ('providers.own.dialect = "chat"', "providers.own.base_url"),
    ('providers.groq.base_url = "ftp://a"', "providers.groq.base_url"),
    ('providers.groq.base_url = "https://a:b@c"', "providers.groq.base_url"),
    ('providers.groq.base_url = "https://a:x/v1"', "providers.groq.base_url"),
    ('providers.groq.base_url = "https://a/v1?key=1"', "providers.groq.base_url"),
    ('providers.groq.base_url = "https://a/v 1"', "providers.groq.base_url"),
    ("providers.groq.api_key = 1", "providers.groq.api_key"),
    ('providers.groq.api_keys = "a"', "providers.groq.api_keys"),
    ("providers.groq.connect_timeout = 1", "providers.groq.connect_timeout"),
    ('providers.groq.proxy = "socks5://a"', "providers.groq.proxy"),
    ('providers.groq.ca = "/not/there"', "providers.groq.ca"),
    ('providers."a/b".dialect = "chat"', 'providers."a/b"'),
    ("models.m.targets = []", "models.m.targets"),
    ("models.m.reasoning = true", "models.m.targets"),
    ('models.m.targets = ["groq"]', "models.m.targets"),
    ('models.m.targets = ["nobody/a"]', "models.m.targets"),
    ('models.m.kind = "video"', "models.m.kind"),
    ('models.m.vision = "no"', "models.m.vision"),
    ("models.m.context_window = 0", "models.m.context_window"),
    ("models.m.max_output_tokens = -1", "models.m.max_output_tokens"),
    ('models.m.access = "all"', "models.m.access"),
    ('models.m.price = { input = "1" }', "models.m.price"),
    ('models.m.price = { input = 1, output = "1" }', "models.m.price.input"),
    ('models.m.price = { input = "-1", output = "1" }', "models.m.price.input"),
    ('models.m.aliases = "a"', "models.m.aliases"),
    ("models.m.custom_tools = 1", "models.m.custom_tools"),
    ("routes.r.models = []", "routes.r.models"),
    ('routes.r.policy = "order"', "routes.r.models"),
    ('routes.r.models = ["nobody"]', "routes.r.models"),
    ('routes.r.policy = "best"', "routes.r.policy"),
]


@pytest.mark.parametrize(("text", "path"), BAD)
def test_a_bad_value_names_its_path(text: str, path: str) -> None:
    assert path in faults(text)


BAD_FLAGS: list[tuple[str, str]] = [
    ("max_tokens_field", '"max"'),
    ("system_first_only", '"no"'),
    ("prompt_cache_key", "1"),
    ("reasoning_field", '"thoughts"'),
    ("effort", '"loud"'),
    ("efforts", '["loud"]'),
    ("efforts", '"low"'),
    ("min_budget", "1.5"),
    ("min_budget", "-1"),
    ("temperature_max", '"1"'),
    ("temperature_max", "0"),
    ("response_format", '"xml"'),
    ("auth", '"basic"'),
    ("betas", '"a"'),
    ("headers", '"a: b"'),
    ("headers", "{ x-a = 1 }"),
    ("headers", '{ "x a" = "1" }'),
    ("headers", '{ Host = "a" }'),
    ("headers", '{ x-a = "b\\r\\nx-c: d" }'),
]


@pytest.mark.parametrize(("flag", "value"), BAD_FLAGS)
def test_profile_flags_are_checked(flag: str, value: str) -> None:
    assert f"providers.groq.profile.{flag}" in faults(f"[providers.groq.profile]\n{flag} = {value}\n")


@pytest.mark.parametrize(
    ("text", "path", "near"),
    [
        ("[sever]\n", "sever", "server"),
        ('[server]\nlisen = "a"\n', "server.lisen", "listen"),
        ('[server.tls]\ncrt = "a"\n', "server.tls.crt", "cert"),
        ('[store]\nuri = "a"\n', "store.uri", "url"),
        ("[billing]\nenforced = true\n", "billing.enforced", "enforce"),
        ('[providers.groq]\napikey = "a"\n', "providers.groq.apikey", "api_key"),
        ("[providers.groq.profile]\nthink_tag = true\n", "providers.groq.profile.think_tag", "think_tags"),
        ('[models."a:b"]\ntarget = []\n', 'models."a:b".target', "targets"),
        ('[models.m]\nprice = { inptu = "1" }\n', "models.m.price.inptu", "input"),
        ('[routes.r]\npolicys = "a"\n', "routes.r.policys", "policy"),
    ],
)
def test_an_unknown_key_names_its_path_and_a_near_one(text: str, path: str, near: str) -> None:
    assert f"did you mean {near}?" in faults(text)[path]


def test_all_faults_are_told_at_once() -> None:
    found = faults('x = 1\n[server]\nkeepalive = 1\nlog = "xml"\n[models.m]\n', {"KENARI_BOOTSTRAP_KEY": "no"})
    assert {"x", "server.keepalive", "server.log", "models.m.targets", "KENARI_BOOTSTRAP_KEY"} <= set(found)


def test_faults_do_not_tell_secrets() -> None:
    text = (
        '[store]\nurl = "mysql://u:hidden@db"\n[providers.groq]\nbase_url = "https://u:hidden@a"\n'
        'proxy = "socks5://u:hidden@a"\nprofile = { headers = { x-a = "hidden\\n" } }\n'
    )
    assert "hidden" not in str(faults(text))


# -- providers, models, routes


def test_a_known_provider_needs_only_its_key() -> None:
    provider = parse('[providers.groq]\napi_key = "env:GROQ_API_KEY"\n').providers["groq"]
    assert (provider.dialect, provider.base_url) == ("chat", "https://api.groq.com/openai/v1")
    assert provider.profile.max_tokens_field == "max_completion_tokens"


def test_a_preset_gives_a_row_another_name_and_flags_change_it() -> None:
    text = '[providers.second]\npreset = "groq"\n[providers.second.profile]\nlogprobs = true\n'
    provider = parse(text).providers["second"]
    assert provider.base_url == "https://api.groq.com/openai/v1"
    assert (provider.profile.logprobs, provider.profile.max_tokens_field) == (True, "max_completion_tokens")


def test_a_scripted_provider_may_be_configured() -> None:
    text = '[providers.demo]\ndialect = "chat"\nbase_url = "scripted:"\n[models.m]\ntargets = ["demo/scripted"]\n'
    assert parse(text).providers["demo"].base_url == "scripted:"


def test_routes_have_weights_and_take_aliases_and_ids_with_an_at() -> None:
    text = MODEL + 'aliases = ["n"]\n[models."a@b"]\ntargets = ["groq/b"]\n'
    route = parse(text + '[routes.r]\nmodels = ["m@3", "n", "a@b", "a@b@2"]\npolicy = "weighted"\n').routes["r"]
    assert route.models == ("m", "n", "a@b", "a@b")
    assert route.weights == (3, 1, 1, 2)


@pytest.mark.parametrize("member", ["m@0", "m@x", "m@-1", "m@1.5"])
def test_bad_weights(member: str) -> None:
    assert "weight" in faults(f'{MODEL}[routes.r]\nmodels = ["{member}"]\n')["routes.r.models"]


def test_names_are_unique() -> None:
    text = MODEL + 'aliases = ["n", "m"]\n[models.n]\ntargets = ["groq/b"]\n'
    assert "models.m.aliases" in str(faults(text)) or 'models."m".aliases' in faults(text)
    assert "routes.m" in faults(MODEL + '[routes.m]\nmodels = ["m"]\n')


def test_the_members_of_a_route_are_of_one_kind() -> None:
    text = MODEL + '[models.e]\ntargets = ["groq/e"]\nkind = "embedding"\n[routes.r]\nmodels = ["m", "e"]\n'
    assert "one kind" in faults(text)["routes.r.models"]


def test_check_says_what_has_no_effect_yet_and_f9_names_models_without_a_price() -> None:
    config = parse(WHOLE.replace('"order"', '"cheapest"').replace("127.0.0.1:8081", "0.0.0.0:8081"))
    notes = " | ".join(config.notes)
    assert "admin_listen" in notes
    assert any("without a price" in note and "m" in note for note in parse(MODEL).notes)


# -- files and what check prints


def test_run_cases_text_loads(tmp_path: Path) -> None:
    text = (
        '[server]\nlisten = "127.0.0.1:1"\nadmin_listen = "127.0.0.1:2"\nkeepalive = "200ms"\nidle_timeout = "500ms"\n\n'
        f'[store]\nurl = "sqlite:///{tmp_path}/kenari.db"\n\n[limits]\nurl = "memory://"\n\n'
        '[providers.case-cc-1-1]\ndialect = "messages"\nbase_url = "http://127.0.0.1:3/cc-1/1/v1"\n'
        'api_key = "sk-up-cc-1-1"\n\n[providers.case-cc-1-1.profile]\nthink_tags = true\n\n'
        '[models."case-cc-1-m1"]\ntargets = ["case-cc-1-1/bug-model"]\nkind = "chat"\nreasoning = true\nvision = true\n'
        'context_window = 200000\nmax_output_tokens = 65536\naccess = "public"\n'
        'price = { input = "0", output = "0", cache_read = "0", cache_write = "0" }\n\n'
        '[routes.case-cc-1]\nmodels = ["case-cc-1-m1"]\npolicy = "order"\n'
    )
    (tmp_path / "kenari.toml").write_text(text)
    config = load_config(str(tmp_path / "kenari.toml"), {"KENARI_BOOTSTRAP_KEY": "kn-boot"}, tmp_path)
    assert config.providers["case-cc-1-1"].profile.think_tags
    assert config.routes["case-cc-1"].models == ("case-cc-1-m1",)


def test_the_file_here_is_taken_when_none_is_named(tmp_path: Path) -> None:
    assert load_config(None, {}, tmp_path) == builtin_config()
    (tmp_path / "kenari.toml").write_bytes(b"\xef\xbb\xbf" + MODEL.encode())
    assert list(load_config(None, {}, tmp_path).models) == ["m"]


@pytest.mark.parametrize("content", [None, b"\xff", b"[server", b'a = 1\n"'])
def test_a_file_that_cannot_be_read_is_a_fault_with_its_path(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "kenari.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_config(str(path), {}, tmp_path)
    assert caught.value.faults[0][0] == str(path)


RICH = (
    WHOLE.replace("32MiB", "1MiB")
    + """
[providers."odd.name"]
preset = "openrouter"
api_keys = ["a", "b"]
idle_timeout = "1500ms"
profile = { temperature_max = 1.5, headers = { x-a = "b" }, betas = ["b-1"] }
[models."with \\"quotes\\" and é"]
targets = ["odd.name/vendor/model:free"]
price = { input = "0.15", output = "1" }
[routes."a b"]
models = ["step-3-7-flash:free@3"]
policy = "weighted"
"""
)


@pytest.mark.parametrize("text", ["", WHOLE, RICH, MODEL])
def test_what_check_prints_loads_back_as_the_same_configuration(text: str) -> None:
    shown = show_config(parse(text))
    again = parse(shown, {})
    assert show_config(again) == shown
    first = parse(text)
    assert (again.server, again.models, again.routes) == (first.server, first.models, first.routes)
    assert {name: one.profile.efforts for name, one in again.providers.items()} == {
        name: one.profile.efforts for name, one in first.providers.items()
    }


def test_a_route_is_a_name_for_its_models_m2() -> None:
    config = parse(MODEL + '[models.n]\ntargets = ["groq/b"]\n[routes.r]\nmodels = ["n", "m"]\n')
    catalog = Catalog(config.models, config.routes)
    targets: Any = [target.model for target in catalog.entry("r").model.targets]
    assert targets == ["b", "a"]
