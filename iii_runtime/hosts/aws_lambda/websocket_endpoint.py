"""Where the connections of the WebSocket API are posted to."""

from __future__ import annotations

from collections.abc import Mapping

from iii_runtime.core.errors import HostError

WEBSOCKET_URL = "III_WEBSOCKET_URL"


def websocket_endpoint(variables: Mapping[str, str]) -> str:
    """Return `https://{api}.execute-api.{region}.amazonaws.com/{stage}` from the environment variables.

    Raises:
        HostError: `environment_invalid`: it is not set, or is no https address.
    """
    url = variables.get(WEBSOCKET_URL, "")
    if not url.startswith(("https://", "http://")):
        found = f"is {url[:100]!r}" if url else "is not set"
        raise HostError(
            f"the environment variable {WEBSOCKET_URL} {found}; it must be the https address of the WebSocket API. The "
            "constructs of iii_runtime.cdk set it; deploy the stage again.",
            code="environment_invalid",
        )
    return url
