"""What checkers of security rules report about an app, and why each is as it should be.

cdk-nag and the like find these at the construct that they concern. Nothing is acknowledged for a whole stack.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import aws_cdk as cdk
from constructs import IConstruct

from iii_runtime.core.errors import HostError
from iii_runtime.plan.app_plan import Permission


def acknowledge(scope: IConstruct, reasons: Mapping[str, str]) -> None:
    """Acknowledge findings about a construct.

    Args:
        scope: The construct.
        reasons: The reason for each finding, by its whole name, such as `AwsSolutions-SQS3`.
    """
    cdk.Validations.of(scope).acknowledge(
        *(
            cdk.Acknowledgment(id=f"{finding.partition('-')[0]}::{finding}", reason=reason)
            for finding, reason in reasons.items()
        )
    )


def acknowledge_patterns(scope: IConstruct, permissions: Iterable[Permission]) -> None:
    """Acknowledge the patterns among the resources of permissions.

    Raises:
        HostError: `pattern_unexplained`: a permission has a pattern and does not say why.
    """
    reasons: dict[str, str] = {}
    for permission in permissions:
        for resource in permission.resources:
            if "*" not in resource:
                continue
            if permission.why is None:
                raise HostError(
                    f"{scope.node.path}: {', '.join(permission.actions)} on {resource} has no reason for its pattern.",
                    code="pattern_unexplained",
                )
            reasons[resource] = permission.why
    if reasons:
        reported = _as_reported(scope, list(reasons))
        acknowledge(
            scope,
            {
                f"AwsSolutions-IAM5[Resource::{resource}]": why
                for resource, why in zip(reported, reasons.values(), strict=True)
            },
        )


def _as_reported(scope: IConstruct, resources: Sequence[str]) -> list[str]:
    """Return ARNs as checkers write them, with a name in place of what is known at deployment only."""
    return [_flat(resolved) for resolved in cdk.Stack.of(scope).resolve(resources)]


def _flat(resolved: object) -> str:
    match resolved:
        case {"Ref": name}:
            return f"<{name}>"
        case {"Fn::GetAtt": [name, attribute]}:
            return f"<{name}.{attribute}>"
        case {"Fn::Join": [separator, parts]}:
            return str(separator).join(map(_flat, parts))
        case _:
            return str(resolved)
