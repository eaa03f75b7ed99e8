"""Whatever passes the checks synthesises, into templates that CloudFormation takes."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import cfnlint  # type: ignore[import-untyped]
from hypothesis import HealthCheck, Phase, given, reject, settings
from hypothesis import strategies as st

from iii_runtime import Cron, DurableSubscriber, Http, Queue, Subscribe, Worker
from iii_runtime.adapters.config_file import load_config
from iii_runtime.core.config import Config
from iii_runtime.core.errors import IiiError
from iii_runtime.core.triggers import TriggerKind
from tests.infra.synthesis import Template, manifest_of, prepared, synthesise


def mostly(plain: st.SearchStrategy[Any], odd: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return what is seldom odd: one odd value is enough to be refused, and then the others are not looked at."""
    return st.integers(0, 4).flatmap(lambda number: odd if number == 4 else plain)


METHODS = mostly(
    st.sampled_from(["GET", "post", "DELETE"]),
    st.sampled_from(["*", "GTE", "PURGE", "ANY"]) | st.from_regex(r"[A-Za-z]{1,6}", fullmatch=True),
)
ORIGINS = mostly(
    st.sampled_from(["*", "https://a.example", "http://localhost:3000"]),
    st.sampled_from(["null", "https://*", "app://x", "https://ö"]),
)
ISSUERS = mostly(
    st.sampled_from(["https://login.example.com/", "https://a.example/v2"]),
    st.sampled_from(["https://?", "https://a b", "https://ö/"]),
)
APPS = mostly(
    st.from_regex(r"[a-z][a-z0-9-]{0,23}", fullmatch=True), st.sampled_from(["xn--shop", "sthree-a", "shop-q", "s-"])
)
WORDS = mostly(
    st.sampled_from(["a/b", "größe", "${x}", "<aws>", "x" * 200, "a::b", '"', "a|b"]),
    st.just("a\nb") | st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=12),
)
NUMBERS = mostly(st.sampled_from([60, 100, 900]), st.sampled_from([1, 2, 1001, 3600, 2**31, 2**32 - 1]))
AUTHS = st.sampled_from(["iam", "jwt", "none"])
SECTIONS = st.fixed_dictionaries(
    {
        "iii-http": st.fixed_dictionaries(
            {},
            optional={
                "auth": AUTHS,
                "cors": st.fixed_dictionaries(
                    {},
                    optional={
                        "allowed_methods": st.lists(METHODS, min_size=1, max_size=3),
                        "allowed_origins": st.lists(ORIGINS, max_size=2),
                    },
                ),
                "jwt": st.fixed_dictionaries({"issuer": ISSUERS, "audience": st.lists(WORDS, min_size=1, max_size=2)}),
            },
        ),
        "iii-stream": st.fixed_dictionaries({"auth": st.sampled_from(["iam", "ticket", "none"])}),
        "iii-queue": st.fixed_dictionaries(
            {
                "queue_configs": st.dictionaries(
                    st.sampled_from(["mail", "a.b", "a-b", "q" * 80]),
                    st.fixed_dictionaries({}, optional={"concurrency": NUMBERS, "max_retries": NUMBERS}),
                    max_size=3,
                )
            }
        ),
        "iii-aws": st.fixed_dictionaries(
            {"app": APPS},
            optional={
                "throttle_rate": NUMBERS,
                "throttle_burst": NUMBERS,
                "oldest_message_alarm_s": NUMBERS,
                "log_retention_days": st.sampled_from([1, 7, 731]),
                "memory_mb": st.integers(128, 10_240),
                "stacks": st.integers(1, 3),
                "tracing": st.booleans(),
            },
        ),
    }
)
TRIGGERS: st.SearchStrategy[Callable[[], TriggerKind]] = st.one_of(
    st.builds(lambda word: lambda: DurableSubscriber(word), WORDS),
    st.builds(lambda word: lambda: Subscribe(word), WORDS),
    st.builds(
        lambda method, word, auth: lambda: Http(method, f"/{word}/:id", auth=auth),
        st.sampled_from(["GET", "post", "DELETE"]),
        mostly(st.from_regex(r"[a-z]{1,9}", fullmatch=True), WORDS),
        AUTHS,
    ),
    st.builds(
        lambda second, zone: lambda: Cron(f"{second} */10 2 * * *", timezone=zone),
        st.sampled_from([0, 5]),
        mostly(st.sampled_from(["UTC", "Europe/Berlin"]), st.sampled_from(["posixrules", "localtime"])),
    ),
    st.just(lambda: Queue("mail", batch_size=2)),
)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "environment": st.dictionaries(mostly(st.just("COLOUR"), st.just("A")), WORDS, max_size=2),
        "secrets": st.fixed_dictionaries({"KEY": mostly(st.just("/{stage}/card"), WORDS).map("ssm:{}".format)}),
        "reserved_concurrency": st.integers(1, 100),
        "memory_mb": st.integers(128, 10_240),
    },
)
FUNCTIONS = st.lists(
    st.tuples(WORDS, st.lists(TRIGGERS, max_size=3), OPTIONS), max_size=4, unique_by=lambda each: each[0]
)


def read(folder: Path, sections: dict[str, Any]) -> Config:
    workers = [{"name": name, "config": config} for name, config in sections.items()]
    file = folder / "iii-config.yaml"
    file.write_text(json.dumps({"workers": workers}), "utf-8")
    return load_config(file, {})


@settings(
    max_examples=12,  # each takes seconds; every run makes others
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking would take minutes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
@given(sections=SECTIONS, functions=FUNCTIONS)
def test_whatever_passes_the_checks_synthesises(sections: dict[str, Any], functions: list[Any]) -> None:
    def register(worker: Worker) -> None:
        for name, triggers, options in functions:
            worker.function(name, triggers=[make() for make in triggers], **options)(print)

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        try:
            manifest = manifest_of(read(root, sections), register)
            prepared(root, manifest=manifest)
        except IiiError:
            reject()
        lint(synthesise(root, manifest=manifest).templates)


def lint(templates: Mapping[str, Template]) -> None:
    checks = cfnlint.ManualArgs(regions=["eu-west-1"], ignore_checks=["W"])
    for template in templates.values():
        if not template.resources:
            continue  # a stack that no function has fallen to; the CDK's command line does not deploy it
        assert [
            str(each) for each in cfnlint.lint(json.dumps(template.content, ensure_ascii=False), config=checks)
        ] == []
