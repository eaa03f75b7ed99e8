"""The way from the text of `iii-config.yaml` to a `Config`."""

from __future__ import annotations

from collections.abc import Mapping

from iii_runtime.core.config.document import DocumentReader
from iii_runtime.core.config.problem import ConfigError
from iii_runtime.core.config.values import Config


def parse_config(text: str, *, source: str, env: Mapping[str, str], load: DocumentReader) -> Config:
    """Return the configuration in `text`.

    Args:
        text: The file's content.
        source: The file's name for messages.
        env: Variables for `${VAR}` and `${VAR:default}`.
        load: Reads the YAML.

    Raises:
        ConfigError: With every problem of the file at once.
    """
    # Here because a start without a file needs none of it, least of all pydantic.
    from iii_runtime.core.config.expand import expand  # noqa: PLC0415
    from iii_runtime.core.config.findings import Findings  # noqa: PLC0415
    from iii_runtime.core.config.sections import read_config  # noqa: PLC0415

    expansion = expand(text, source=source, env=env, load=load)
    findings = Findings(expansion, source=source)
    config = read_config(expansion.document.value, findings, source=source)
    if findings.problems:
        raise ConfigError(findings.problems)
    return config
