"""The configuration: one frozen `Config` from TOML and the environment; faults name their path."""

from kenari.config.load import ConfigError, builtin_config, load_config, parse_config
from kenari.config.settings import Config, Route, ServerSettings

__all__ = ["Config", "ConfigError", "Route", "ServerSettings", "builtin_config", "load_config", "parse_config"]
